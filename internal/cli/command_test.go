package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"

	"laneway/internal/config"
	"laneway/internal/secret"
	"laneway/internal/wire"
)

func TestEveryCommandShowsAnExample(t *testing.T) {
	t.Parallel()
	parser, err := newParser(newBench("").env, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	leaves := 0
	err = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if n, ok := node.(*kong.Node); ok && n.Type == kong.CommandNode && n.Leaf() {
			leaves++
			if !strings.Contains(n.Detail, "laneway "+strings.TrimPrefix(n.Path(), "laneway ")) {
				t.Errorf("the help of %q has no example: %q", n.Path(), n.Detail)
			}
		}
		return next(nil)
	})
	if err != nil || leaves < 15 {
		t.Errorf("%d commands, %v", leaves, err)
	}
}

func TestALostConnectionIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"cut", "gone"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench("")
				b.run(t, exitOK, "send", text)
				if got := b.stdout.String(); got != text+"\n" {
					t.Errorf("got %q, want %q", got, text)
				}
				if b.gateway.dials != 2 || len(b.gateway.runs) != 1 {
					t.Errorf("%d connections and %d runs, want 2 and 1", b.gateway.dials, len(b.gateway.runs))
				}
			})
		})
	}
}

func TestAGatewayThatStaysAwayEndsTheCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		dial := b.env.dial
		b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
			conn, err := dial(ctx, to)
			b.gateway.refuse = errors.New("no process listens on 127.0.0.1:18790")
			return conn, err
		}
		b.run(t, exitFailure, "send", "cut")
		if got := b.stderr.String(); !strings.Contains(got, "did not come back: no process listens") || strings.Count(got, "\n") != 1 {
			t.Errorf("got %q", got)
		}
	})
}

func TestATimeoutStopsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		began := time.Now()
		b.run(t, exitFailure, "send", "hang", "--timeout", "5s")
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %s", waited)
		}
		if got := b.stderr.String(); got != "laneway: no answer within 5s; it was stopped\n" {
			t.Errorf("got %q", got)
		}
		if len(b.gateway.aborted) != 1 {
			t.Errorf("stopped %v, want the run", b.gateway.aborted)
		}
	})
}

// A replica that is disconnected from the others may not publish the end of a run. Such a run was
// not stopped: it has an answer.
func TestATimeoutPrintsTheAnswerOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		b.run(t, exitOK, "send", "silent", "--timeout", "5s")
		if b.stdout.String() != "silent\n" || strings.Contains(b.stderr.String(), "stopped") {
			t.Errorf("got %q and %q, want the answer", b.stdout.String(), b.stderr.String())
		}
	})
}

// Standard output is for programs, which receive the empty answer. The same applies after a lost
// connection.
func TestAnEmptyAnswerIsShownOnStandardError(t *testing.T) {
	t.Parallel()
	const note = "(empty answer: the model stopped at its length limit)\n"
	for _, text := range []string{"nothing", "nothing-gone"} {
		b := newBench("")
		b.run(t, exitOK, "send", text)
		if b.stdout.String() != "" || !strings.HasSuffix(b.stderr.String(), note) {
			t.Errorf("send %s: got %q and %q", text, b.stdout.String(), b.stderr.String())
		}
	}
	b := newBench("")
	b.run(t, exitOK, "send", "nothing", "--json")
	var end turnEnd
	if err := json.Unmarshal(b.stdout.Bytes(), &end); err != nil || end.Text != "" || end.Note+"\n" != note || end.StopReason != "length" {
		t.Errorf("got %v, %+v", err, end)
	}
	b = newBench("nothing\nthen\n")
	b.run(t, exitOK, "chat")
	if got := b.stdout.String(); got != "then\n" || !strings.HasSuffix(b.stderr.String(), note) {
		t.Errorf("chat: got %q and %q", got, b.stderr.String())
	}
}

func TestASignalStopsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan int)
		go func() { ended <- run(ctx, []string{"send", "hang"}, b.env) }()
		synctest.Wait()
		cancel(ErrInterrupted)
		if code := <-ended; code != exitFailure || b.stderr.String() != "laneway: interrupted; it was stopped\n" {
			t.Errorf("got %d, %q", code, b.stderr.String())
		}
	})
}

func TestChatAnswersEachLineOfAPipe(t *testing.T) {
	t.Parallel()
	for _, lines := range []string{"one\n\n  two  \n/quit\nnever sent\n", "one\ntwo"} {
		b := newBench(lines)
		b.run(t, exitOK, "chat")
		if got := b.stdout.String(); got != "one\ntwo\n" {
			t.Errorf("%q: got %q", lines, got)
		}
	}
}

func TestChatOverAPipeReportsFailures(t *testing.T) {
	t.Parallel()
	b := newBench("refuse\nfail\nfine\n")
	b.run(t, exitFailure, "chat")
	if got := b.stdout.String(); got != "fa\nfine\n" {
		t.Errorf("stdout %q", got)
	}
	if got := b.stderr.String(); !strings.Contains(got, "queue of the session is full") || !strings.Contains(got, "the model said no") {
		t.Errorf("stderr %q", got)
	}
}

func TestChatSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("cut\ngone\nlast\n")
		b.run(t, exitOK, "chat")
		if got := b.stdout.String(); got != "cut\ngone\nlast\n" {
			t.Errorf("got %q", got)
		}
	})
}

// keys is a terminal with a person who types lines.
type keys struct {
	lines   chan string
	pressed chan struct{} // Ctrl-C
	strings.Builder
	prompts int
}

func (k *keys) readLine() (string, error) {
	line, open := <-k.lines
	if !open {
		return "", io.EOF
	}
	return line, nil
}
func (k *keys) interrupts() <-chan struct{} { return k.pressed }
func (k *keys) ready()                      { k.prompts++ }
func (k *keys) above(lines string)          { k.WriteString(lines) }

func TestCtrlCStopsTheAnswerAndThenLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{})}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		for _, line := range []string{"hang", "^C", "evil \x1b[31m text", "^C"} {
			if line == "^C" {
				typing.pressed <- struct{}{}
			} else {
				typing.lines <- line
			}
			synctest.Wait()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		close(typing.lines)
		talk.close()
		got := typing.String()
		if got != "ha\nStopped.\nevil \\u001b[31m text\n\n" {
			t.Errorf("the screen shows %q", got)
		}
		if len(b.gateway.aborted) != 1 || typing.prompts != 3 {
			t.Errorf("stopped %d runs and showed %d prompts, want 1 and 3", len(b.gateway.aborted), typing.prompts)
		}
	})
}

func TestAnAnswerThatBeginsAnewIsShownAnew(t *testing.T) {
	t.Parallel()
	b := newBench("")
	typing := &keys{}
	loop := newChatLoop(nil, b.env)
	loop.screen, loop.open = typing, []pending{{key: "r"}}
	for _, e := range []wire.ChatEvent{
		{RunID: "r", State: wire.ChatDelta, DeltaText: new("Hel")},
		{RunID: "r", State: wire.ChatDelta, DeltaText: new("lo"), Message: assistantMessage("Hello")},
		{RunID: "r", State: wire.ChatDelta, DeltaText: new("Good"), Replace: true, Message: assistantMessage("Good")},
		{RunID: "r", State: wire.ChatFinal, Message: assistantMessage("Good day")},
	} {
		loop.show(e)
	}
	if got := typing.String(); got != "Hello\nGood day\n" {
		t.Errorf("got %q", got)
	}
}

func TestTabCompletesCommands(t *testing.T) {
	t.Parallel()
	words := []string{"/quit", "/stop", "/stopall", "/status"}
	for line, want := range map[string]string{"/q": "/quit", "/sto": "/stop", "/s": "/st", "/stop": "", "/x": "", "hello": ""} {
		got, at, ok := complete(line, len(line), '\t', words)
		if got != want || ok != (want != "") || at != len(want) {
			t.Errorf("%s: got %q, %d, %v; want %q", line, got, at, ok, want)
		}
	}
	if _, _, ok := complete("/q", 2, 'x', words); ok {
		t.Error("a letter completed a word")
	}
}

func TestHistoryIsKeptForTheNextTime(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/chat_history"
	h := openHistory(path)
	for _, line := range []string{"one", "two", "two", " ", "three"} {
		h.Add(line)
	}
	again := openHistory(path)
	if again.Len() != 3 || again.At(0) != "three" || again.At(2) != "one" {
		t.Errorf("got %q", again.lines)
	}
	for range maxHistory + 5 {
		again.Add("a")
		again.Add("b")
	}
	if again.Len() != maxHistory {
		t.Errorf("kept %d lines, want %d", again.Len(), maxHistory)
	}
}

func TestWhereTheGatewayIs(t *testing.T) {
	t.Parallel()
	rows := []struct {
		name  string
		flags clientFlags
		env   []string
		want  string
		err   string
	}{
		{name: "default", want: "ws://127.0.0.1:18790"},
		{name: "flag first", flags: clientFlags{URL: []string{"https://gw.example"}}, env: []string{"LANEWAY_URL", "ws://127.0.0.1:1"}, want: "wss://gw.example"},
		{name: "variable", env: []string{"LANEWAY_URL", "http://127.0.0.1:9"}, want: "ws://127.0.0.1:9"},
		{name: "without a scheme", flags: clientFlags{URL: []string{"localhost:1234"}}, want: "ws://localhost:1234"},
		{name: "container that listens everywhere", env: []string{"LANEWAY_LISTEN", "0.0.0.0:8080"}, want: "ws://127.0.0.1:8080"},
		{name: "another loopback address", env: []string{"LANEWAY_LISTEN", "127.0.0.2:7, 0.0.0.0:8"}, want: "ws://127.0.0.2:7"},
		{name: "several", env: []string{"LANEWAY_URL", "a:1, https://b"}, want: "ws://a:1 wss://b"},
		{name: "several flags", flags: clientFlags{URL: []string{"a:1", "b:2"}}, want: "ws://a:1 ws://b:2"},
		{name: "foreign scheme", flags: clientFlags{URL: []string{"ftp://x"}}, err: "must begin with ws:// or wss://"},
		{name: "no host", flags: clientFlags{URL: []string{"ws://"}}, err: "is not the address of a gateway"},
	}
	for _, row := range rows {
		list, err := row.flags.addresses(newBench("", row.env...).env)
		got := strings.Join(list, " ")
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: got %q, %v; want %q, %q", row.name, got, err, row.want, row.err)
		}
	}
}

func TestAgentsAndTheirServersAreListed(t *testing.T) {
	t.Parallel()
	b := newBench("", "HOME", t.TempDir(), "LANEWAY_TOKEN", "right")
	b.run(t, exitOK, "agents")
	for _, line := range []string{"main (default)  main  openai  -      files\n", "files   failed  files_read  no "} {
		if got := b.stdout.String(); !strings.Contains(got, line) || strings.Contains(got, "\x1b") {
			t.Errorf("no line %q, or a control character, in\n%s", line, got)
		}
	}
}

func TestTheLocalTokenIsNotSentToOtherHosts(t *testing.T) {
	t.Parallel()
	b := newBench("", "HOME", t.TempDir())
	lookup := b.env.lookupEnv
	b.env.lookupEnv = func(name string) (string, bool) {
		if name == "LANEWAY_TOKEN" {
			return "", false
		}
		return lookup(name)
	}
	b.run(t, exitUsage, "status", "--url", "wss://gw.example")
	if got := b.stderr.String(); !strings.Contains(got, "a gateway on another host needs a credential") || b.gateway.dials != 0 {
		t.Errorf("got %q and %d connections", got, b.gateway.dials)
	}
}

func TestTheLogHidesSecretsThatLibrariesPrint(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	loaded, err := config.Load(config.Options{LookupEnv: func(name string) (string, bool) {
		v, ok := map[string]string{"HOME": "/x", "LANEWAY_LOG_FORMAT": "json", "LANEWAY_DATABASE_URL": "postgres://u:pass-canary@127.0.0.1/x", "LANEWAY_PASSWORD": "longer-token-canary-more"}[name]
		return v, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	logger, known := newLogger(&out, loaded, config.Credentials{Token: secret.New("token-canary")})
	logger.With("a", "x token-canary y").WithGroup("g").Info("dial pass-canary", "err", errors.New(`Get "https://api/token-canary"`), "n", 7, "longer", "longer-token-canary-more",
		"map", map[string]string{"k": "pass-canary"}, "fine", errors.New("fine"))
	if strings.Contains(out.String(), "canary") || strings.Contains(out.String(), "more") {
		t.Errorf("got %s", out.String())
	}
	var record map[string]any
	if err := json.Unmarshal([]byte(out.String()), &record); err != nil || record["msg"] != "dial [redacted]" {
		t.Errorf("got %v, %v", record, err)
	}
	// A secret that is replaced while the gateway runs is redacted as well, even by older loggers;
	// the old secret remains redacted.
	older := logger.With("part", "older")
	known.add([]secret.Secret{secret.New("rotated-canary"), secret.New("token-canary")})
	out.Reset()
	older.Info("was token-canary, is rotated-canary")
	if !strings.Contains(out.String(), `"was [redacted], is [redacted]"`) {
		t.Errorf("got %s", out.String())
	}
}

func TestStatusIsShownAgainUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, ErrInterrupted)
		defer cancel()
		if code := run(ctx, []string{"status", "--watch"}, b.env); code != exitOK || strings.Count(b.stdout.String(), "gateway ") != 3 {
			t.Errorf("ended with %d and showed %d pictures: %s", code, strings.Count(b.stdout.String(), "gateway "), b.stderr.String())
		}
		b.run(t, exitUsage, "status", "--watch", "--every", "1ms")
	})
}

// While the gateway is unavailable, the client shows that and handles keys; the conversation
// continues by itself.
func TestALostConnectionIsShownOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		b.gateway.questions = nil
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		typing.lines <- "cut"
		synctest.Wait()
		time.Sleep(firstRedial * 2)
		synctest.Wait()
		if got := typing.String(); !strings.Contains(got, "laneway: the gateway is away; connecting again (Ctrl-C leaves)\nlaneway: connected again\n") {
			t.Errorf("the screen shows %q", got)
		}
		b.gateway.mu.Lock()
		b.gateway.refuse = errors.New("no program listens")
		b.gateway.mu.Unlock()
		typing.lines <- "cut"
		synctest.Wait()
		typing.pressed <- struct{}{}
		if err := <-ended; err != nil {
			t.Errorf("Ctrl-C while the gateway is away: %v", err)
		}
		close(typing.lines)
		talk.close()
	})
}

// Ctrl-D ends the input; the answer that is being written is shown completely.
func TestCtrlDWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		talk := &conversation{session: "main", dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		typing.lines <- "hang"
		synctest.Wait()
		close(typing.lines)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it left before the end of the answer: %v", err)
		default:
		}
		typing.pressed <- struct{}{} // the answer does not end: stop it
		if err := <-ended; err != nil || !strings.Contains(typing.String(), "Stopped.") {
			t.Errorf("%v, the screen shows %q", err, typing.String())
		}
		talk.close()
	})
}

// converse runs a conversation on a terminal in a bubble: do types and lets things happen, and
// synctest.Wait settles the screen.
func converse(t *testing.T, do func(b *bench, typing *keys)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("")
		b.gateway.questions = nil
		talk := &conversation{session: "main", follows: true, dial: func(ctx context.Context) (gatewayConn, error) { return b.env.dial(ctx, target{}) }}
		if err := talk.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		typing := &keys{lines: make(chan string), pressed: make(chan struct{}, 1)}
		loop := newChatLoop(talk, b.env)
		loop.screen, loop.interactive = typing, true
		if err := loop.greet(t.Context(), "", 0); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- loop.run(t.Context()) }()
		do(b, typing)
		close(typing.lines)
		b.gateway.release()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		talk.close()
	})
}

// settle waits until the screen shows what has happened.
func settle() {
	time.Sleep(2 * newsDelay)
	synctest.Wait()
}

// Before, the command line never subscribed to the session: nothing was shown until the next start.
func TestChatShowsWhatOthersWriteAtOnce(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		b.gateway.others("assistant", "The digest: \x1b[31mall green.")
		settle()
		if got, want := typing.String(), "assistant: The digest: \\u001b[31mall green.\n"; got != want {
			t.Errorf("the screen shows %q, want %q", got, want)
		}
		typing.lines <- "hang"
		settle()
		b.gateway.others("user", "and from the phone?")
		settle()
		if got, want := typing.String(), "all green.\nha\nuser: and from the phone?\n"; !strings.HasSuffix(got, want) {
			t.Errorf("the screen shows %q, want %q at the end", got, want)
		}
		b.gateway.release()
		settle()
		if got := typing.String(); !strings.HasSuffix(got, "phone?\nng\n") {
			t.Errorf("the rest of the answer is not shown alone: %q", got)
		}
	})
}

func TestACommandDoesNotReprintTheStreamedAnswer(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		typing.lines <- "hang"
		settle()
		typing.lines <- "/status"
		settle()
		b.gateway.release()
		settle()
		if got := typing.String(); got != "ha\n/status\nng\n" {
			t.Errorf("the screen shows %q", got)
		}
	})
}

func TestSeveralStoppedAnswersAreOneSentence(t *testing.T) {
	t.Parallel()
	converse(t, func(b *bench, typing *keys) {
		for range 4 {
			typing.lines <- "hang"
			synctest.Wait()
		}
		b.gateway.mu.Lock()
		b.gateway.conn.abort(wire.ChatAbortParams{})
		b.gateway.mu.Unlock()
		settle()
		if got := strings.Count(typing.String(), "Stopped."); got != 1 || strings.Contains(typing.String(), "stopped:") {
			t.Errorf("said %d times: %q", got, typing.String())
		}
	})
}

func TestAQuestionInChatIsAnswered(t *testing.T) {
	t.Parallel()
	const asks = "The agent main wants to do this for you: run \\u001b[31mls\nAllow it?\n  1  Allow\n  2  Deny\nWrite the number of an answer.\n"
	for _, line := range []string{"1", "yes", "allow"} {
		converse(t, func(b *bench, typing *keys) {
			b.gateway.ask("asked", mayIRun("q-1"))
			b.gateway.others("assistant", "The agent main wants to do this for you: run ls\nAllow it?\nWrite /allow q-1 or /deny q-1 within 5m.")
			settle()
			typing.lines <- line
			settle()
			if got, want := typing.String(), asks+"The answer is: \\u001b[31mAllow.\n"; got != want || strings.Join(b.gateway.answers, "") != "q-1 1" {
				t.Errorf("answers %q, the screen shows %q, want %q", b.gateway.answers, got, want)
			}
		})
	}
	converse(t, func(b *bench, typing *keys) {
		b.gateway.ask("asked", mayIRun("q-1"))
		settle()
		b.gateway.ask("answered")
		settle()
		typing.lines <- "1"
		settle()
		if got, want := typing.String(), asks+"The question was answered elsewhere.\n1\n"; got != want || len(b.gateway.answers) != 0 {
			t.Errorf("answers %q, the screen shows %q, want %q", b.gateway.answers, got, want)
		}
	})
}

func TestAQuestionIsAMenu(t *testing.T) {
	t.Parallel()
	q := wire.Question{AgentID: "main", Text: "run the command “ls”", Options: []wire.QuestionOption{{Label: "Allow: once", Allow: true}, {Label: "Allow always", Allow: true}, {Label: "Deny"}}}
	if got := menu(q); got != "The agent main wants to do this for you: run the command “ls”\nAllow it?\n  1  Allow: once\n  2  Allow always\n  3  Deny" {
		t.Errorf("menu %q", got)
	}
	for line, want := range map[string]string{
		"2": "2 <nil>", "3": "3 <nil>", "allow always": "2 <nil>", "no": "3 <nil>", "Deny": "3 <nil>", "why?": "0 <nil>",
		"0": "0 the question has the answers 1 to 3", "4": "0 the question has the answers 1 to 3", "yes": "0 yes fits several answers; write the number of one",
	} {
		option, err := choose(q, line)
		if got := fmt.Sprint(option, " ", err); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// Before, send showed no question: nothing told it that one was open.
func TestSendShowsQuestionsAndReadsTheirAnswers(t *testing.T) {
	t.Parallel()
	const asks = "The agent main wants to do this for you: run \\u001b[31mls\nAllow it?\n  1  Allow\n  2  Deny\n"
	for name, row := range map[string]struct {
		typed    string
		args     []string
		terminal bool
		by       func(*fakeGateway) // another client
		code     int
		says     string
		answers  []string
	}{
		"a number":        {typed: "what?\n1\n", terminal: true, says: asks + "Write the number of an answer.\nlaneway: write the number of an answer, 1 to 2\nThe answer is: \\u001b[31mAllow.\n", answers: []string{"q-1 1"}},
		"a word":          {typed: "no\n", terminal: true, says: asks + "Write the number of an answer.\nThe answer is: \\u001b[31mAllow.\n", answers: []string{"q-1 2"}},
		"no terminal":     {typed: "1\n", by: func(g *fakeGateway) { g.ask("answered") }, says: asks + "Answer it in laneway chat, on the dashboard, or with: laneway questions answer q-1 1\nlaneway: The question was answered elsewhere.\n"},
		"another client":  {terminal: true, by: func(g *fakeGateway) { g.ask("answered") }, says: asks + "Write the number of an answer.\nlaneway: The question was answered elsewhere.\n"},
		"without waiting": {args: []string{"--no-wait"}, code: exitFailure, says: "laneway: the agent asks for a permission, and --no-wait was given; it was stopped. The agent main wants to do this for you: run \\u001b[31mls\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(row.typed)
				b.env.fromTerminal = row.terminal
				b.gateway.questions = nil
				ended := make(chan int, 1)
				go func() { ended <- run(t.Context(), append([]string{"send", "hang"}, row.args...), b.env) }()
				synctest.Wait()
				b.gateway.ask("asked", mayIRun("q-1"))
				synctest.Wait()
				if row.by != nil {
					row.by(b.gateway)
					synctest.Wait()
				}
				b.gateway.release()
				if code := <-ended; code != row.code || b.stderr.String() != row.says {
					t.Errorf("ended with %d, said %q, want %q", code, b.stderr.String(), row.says)
				}
				if got := strings.Join(b.gateway.answers, ", "); got != strings.Join(row.answers, ", ") {
					t.Errorf("answers %q, want %q", got, row.answers)
				}
			})
		})
	}
}
