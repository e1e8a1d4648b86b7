package acp_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
	"laneway/internal/testrun"
)

// An agent that can close sessions receives session/close; the process of another agent is
// replaced.
func TestAResetConversationFreesTheOldSession(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Dir: dir}, acp.Config{})
			first := look(t, runner, request("a", "run-1", "one"))
			second := look(t, runner, request("a", "run-2", "two")) // without a history
			if (first.PID == second.PID) != closes {
				t.Errorf("processes %d and %d", first.PID, second.PID)
			}
			runner.Close()
			raw, err := os.ReadFile(filepath.Join(dir, "closed"))
			if closes && (err != nil || !strings.HasPrefix(string(raw), first.Session+"\n")) {
				t.Errorf("closed %q, %v; want %s", raw, err, first.Session)
			}
			if _, living := starts(t, dir); len(living) > 0 {
				t.Errorf("%d processes live", len(living))
			}
		})
	}
}

// The session ends without a further turn: by session/close, or with its process. The next turn has
// another session.
func TestAConversationThatEndedFreesItsSession(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Dir: dir}, acp.Config{})
			first := look(t, runner, request("a", "run-1", "one"))
			runner.EndSession(chat.SessionKey{Agent: "main", Rest: "other"})
			runner.EndSession(chat.SessionKey{Agent: "main", Rest: "a"})
			testrun.Eventually(t, "the session is freed", func() bool {
				raw, err := os.ReadFile(filepath.Join(dir, "closed"))
				_, living := starts(t, dir)
				return closes && err == nil && string(raw) == first.Session+"\n" || !closes && len(living) == 0
			})
			second := look(t, runner, request("a", "run-2", "two", entry(1, "run-1", chat.RoleUser, "one")))
			if (first.PID == second.PID) != closes || closes && second.Session == first.Session || len(second.Blocks) != 2 || !strings.HasSuffix(second.Blocks[0], `[{"role":"user","text":"one"}]`) {
				t.Errorf("got %+v after %+v, want another session with the history", second, first)
			}
		})
	}
}

// A session of this agent holds 4 MiB until it is closed.
func TestFiftyConversationsHoldTheMemoryOfOne(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]bool{"Closes": true, "EndsItsProcess": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runner := open(t, script{Blocks: true, Closes: closes, Holds: 4, Dir: dir}, acp.Config{})
			var first, last int64
			var opened []string
			for n := range 51 {
				session := look(t, runner, request("a", fmt.Sprint("run-", n), "begin")).Session // without a history
				opened = append(opened, session)
				all := runner.Processes()
				if all.Living != 1 {
					t.Fatalf("after %d conversations: %+v", n, all)
				}
				if n == 0 {
					first = all.Memory
				}
				last = all.Memory
			}
			if last > first+40<<20 {
				t.Errorf("%d MiB grew to %d MiB", first>>20, last>>20)
			}
			if closes {
				raw, err := os.ReadFile(filepath.Join(dir, "closed"))
				if err != nil || !slices.Equal(strings.Fields(string(raw)), opened[:50]) {
					t.Errorf("closed %q, %v; want all of %q except the last", raw, err, opened)
				}
			}
		})
	}
}

func TestAKeyAuthenticates(t *testing.T) {
	t.Parallel()
	if got, err := run(t, open(t, script{Key: "api-key", Script: agenttest.Script{Repeat: true}}, acp.Config{Auth: "api-key"}), request("a", "run", "fine")); err != nil || got.Text != "fine" {
		t.Errorf("got %q and %v", got.Text, err)
	}
	_, err := run(t, open(t, script{Key: "api-key"}, acp.Config{SignIn: "run: agent login"}), request("a", "run", "one"))
	if agent.ReasonOf(err) != chat.FailAuth || !strings.Contains(err.Error(), "run: agent login") {
		t.Errorf("got %v, want what to do", err)
	}
}

func TestFilesGoBothWays(t *testing.T) {
	t.Parallel()
	picture := "\x89PNG\r\n\x1a\n"
	files := disk{dir: t.TempDir()}
	for name, text := range map[string]string{"a.png": picture, "b c.pdf": "%PDF-1.7"} {
		if err := os.WriteFile(files.Path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		pictures bool
		want     []string
	}{
		"Pictures": {true, []string{"image image/png " + base64.StdEncoding.EncodeToString([]byte(picture)), "link b.pdf file://" + files.dir + "/b%20c.pdf"}},
		"Links":    {false, []string{"link a.png file://" + files.dir + "/a.png", "link b.pdf file://" + files.dir + "/b%20c.pdf"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			req := request("a", "run", "look")
			req.Files, req.OutputDir, req.Attempt = files, func() (string, error) { return out, nil }, 2
			req.Messages[0].Attachments = []chat.Attachment{{Path: "a.png", Name: "a.png", MIMEType: "image/png"}, {Path: "b c.pdf", Name: "b.pdf", MIMEType: "application/pdf"}}
			runner := open(t, script{Blocks: true, Leaves: true, Pictures: tt.pictures}, acp.Config{})
			result, err := run(t, runner, req)
			if err != nil || len(result.Attachments) != 1 || result.Attachments[0].Path != "report.txt" {
				t.Fatalf("got %+v and %v, want the file of the agent", result.Attachments, err)
			}
			blocks := look(t, runner, req).Blocks
			if len(blocks) < 4 || blocks[0] != "attempt 2: the first one ended when the gateway stopped; check what was done before you repeat it" ||
				!slices.Equal(blocks[2:4], tt.want) {
				t.Errorf("blocks %q, want the attempt, the directory and %q", blocks, tt.want)
			}
		})
	}
}

func TestImagesInMessagesOfAgentsAreFiles(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	req := request("a", "run", "draw")
	req.OutputDir = func() (string, error) { return out, nil }
	result, err := run(t, open(t, script{Script: agenttest.Script{Repeat: true}, Draws: []string{"image/png", "image/x-unknown", "image/jpeg"}}, acp.Config{}), req)
	if err != nil || len(result.Attachments) != 2 || strings.Count(result.Text, "[an image of the agent could not be kept]") != 1 {
		t.Fatalf("got %+v and %v, want two files, and a line about the third", result, err)
	}
	for i, want := range []string{"image-1.png: image/png", "image-3.jpg: image/jpeg"} {
		name := result.Attachments[i].Path
		data, err := os.ReadFile(filepath.Join(out, name))
		if got := name + ": " + string(data); err != nil || got != want {
			t.Errorf("got %s and %v, want %s", got, err, want)
		}
	}
}

func TestQuestionsOfEarlierTurnsAreNotReplayed(t *testing.T) {
	t.Parallel()
	asked := entry(2, "question", chat.RoleAssistant, "The agent main wants to do this for you: x\nAllow it?\nWrite /allow 0123456789ab or /deny 0123456789ab within 5m.")
	command := entry(3, "command", chat.RoleUser, "/allow 0123456789ab")
	command.Command = true
	got := look(t, open(t, script{Blocks: true}, acp.Config{}), request("a", "run", "two", entry(1, "run-0", chat.RoleUser, "one"), asked, command))
	if len(got.Blocks) != 2 || !strings.HasSuffix(got.Blocks[0], `[{"role":"user","text":"one"}]`) {
		t.Errorf("got %q, want the history without the question and its answer", got.Blocks)
	}
}

// disk serves the files of a directory.
type disk struct{ dir string }

func (d disk) Path(name string) string                   { return filepath.Join(d.dir, name) }
func (d disk) Read(name string, _ int64) ([]byte, error) { return os.ReadFile(d.Path(name)) }

func TestEachSessionHasItsDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}}, acp.Config{Dir: base + "/{session}"})
	for _, session := range []string{"a", "b/../c"} {
		if _, err := run(t, runner, request(session, "run", "one")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"agent+main+a", "agent+main+b=2F..=2Fc"} {
		if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// A new process in that directory receives the conversation so far; while the directory stays the
// same, the process is reused.
func TestASessionMovesToAnotherDirectory(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	s := script{Blocks: true, Loads: true, Dir: t.TempDir()}
	runner := open(t, s, acp.Config{Sessions: agenttest.NewSessions(), Dir: first})
	moved := func(n int, dir string, history ...chat.TranscriptEntry) seen {
		t.Helper()
		req := request("a", fmt.Sprintf("run-%d", n), fmt.Sprintf("said %d", n), history...)
		req.Dir = dir
		return look(t, runner, req)
	}
	at := func(dir string) string {
		t.Helper()
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one := moved(1, "")
	two := moved(2, second, entry(1, "run-1", chat.RoleUser, "said 1"))
	if one.WD != at(first) || two.WD != at(second) || two.PID == one.PID || two.Session == one.Session || len(two.Blocks) != 2 {
		t.Errorf("got %+v after %+v, want another process with the history", two, one)
	}
	if _, living := starts(t, s.Dir); len(living) != 1 {
		t.Errorf("%d processes live, want 1", len(living))
	}
	three := moved(3, second, entry(1, "run-1", chat.RoleUser, "said 1"), entry(2, "run-2", chat.RoleUser, "said 2"))
	if three.PID != two.PID || !slices.Equal(three.Blocks, []string{"said 3"}) {
		t.Errorf("got %+v after %+v, want the same process", three, two)
	}
}

func TestAProbeDescribesTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	who, err := open(t, script{Closes: true, Pictures: true, Dir: dir}, acp.Config{}).Probe(t.Context())
	if err != nil || who.Name != "scripted" || who.Version != "7" || !slices.Equal(who.Abilities, []string{"pictures", "closing sessions"}) {
		t.Errorf("got %+v and %v", who, err)
	}
	if _, living := starts(t, dir); len(living) > 0 {
		t.Errorf("%d processes live", len(living))
	}
	if _, err := open(t, script{Unsigned: true}, acp.Config{SignIn: "run: agent login"}).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "run: agent login") {
		t.Errorf("got %v", err)
	}
}

// Three turns run in three gateways. The third one has the prompt of the first one, no prompt is
// sent twice, and replayed updates are not part of an answer.
func TestAnAgentContinuesItsSessionAfterRestarts(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]script{
		"Loads": {Loads: true}, "Resumes": {Resumes: true}, "ClosesAndLoads": {Loads: true, Closes: true}, "ClaimsToResume": {Loads: true, Resumes: true}, "WantsAKey": {Loads: true, Key: "key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Blocks, s.Dir = true, t.TempDir()
			cfg := acp.Config{Sessions: agenttest.NewSessions(), Dir: t.TempDir(), Auth: s.Key}
			history := []chat.TranscriptEntry{entry(1, "job", chat.RoleAssistant, "before")}
			var first seen
			for i, run := range []string{"run-1", "run-2", "run-3"} {
				runner := open(t, s, cfg)
				got := look(t, runner, request("a", run, "said in "+run, history...)) // fails when the answer is more than the JSON
				runner.Close()
				if i == 0 {
					first = got
					if len(got.Blocks) != 2 {
						t.Errorf("the first turn got %q, want the history and the message", got.Blocks)
					}
				} else if got.Session != first.Session || got.PID == first.PID || !slices.Equal(got.Blocks, []string{"said in " + run}) {
					t.Errorf("%s: got %+v after %+v, want its session with the message alone", run, got, first)
				}
				if run == "run-3" && !slices.Equal(got.Said, []string{"said in run-1", "said in run-2"}) {
					t.Errorf("in turn three the agent knows %q", got.Said)
				}
				seq := int64(2*i + 2)
				history = append(history, entry(seq, run, chat.RoleUser, "said in "+run), entry(seq+1, run, chat.RoleAssistant, "answer"))
			}
		})
	}
}

// The count of this agent for its session restarts with its process.
func TestTheUsageOfAContinuedSessionIsThatOfTheTurn(t *testing.T) {
	t.Parallel()
	s := script{Blocks: true, Loads: true, Dir: t.TempDir(), Used: &sdk.Usage{InputTokens: 3, OutputTokens: 4}}
	cfg := acp.Config{Sessions: agenttest.NewSessions(), Dir: t.TempDir(), UsageOfSession: true}
	runner := open(t, s, cfg)
	var history []chat.TranscriptEntry
	for _, turn := range []string{"run-1", "run-2"} {
		look(t, runner, request("a", turn, "text", history...))
		history = append(history, entry(int64(len(history)+1), turn, chat.RoleUser, "text"))
	}
	runner.Close()
	got, err := run(t, open(t, s, cfg), request("a", "run-3", "text", history...))
	if err != nil || got.Usage.InputTokens != 3 || got.Usage.OutputTokens != 4 {
		t.Errorf("got %+v and %v, want 3 and 4 tokens", got.Usage, err)
	}
}

// The session continues in another process of the same gateway.
func TestAnAgentContinuesItsSessionAfterIdleTime(t *testing.T) {
	t.Parallel()
	s := script{Blocks: true, Loads: true, Dir: t.TempDir()}
	runner := open(t, s, acp.Config{Sessions: agenttest.NewSessions(), Idle: time.Millisecond})
	first := look(t, runner, request("a", "run-1", "one"))
	testrun.Eventually(t, "its process ends", func() bool { _, living := starts(t, s.Dir); return len(living) == 0 })
	second := look(t, runner, request("a", "run-2", "two", entry(1, "run-1", chat.RoleUser, "one")))
	if second.PID == first.PID || second.Session != first.Session || !slices.Equal(second.Blocks, []string{"two"}) {
		t.Errorf("got %+v after %+v", second, first)
	}
}

// The first attempt was killed.
func TestATurnThatRunsAgainContinuesTheSessionOfItsFirstAttempt(t *testing.T) {
	t.Parallel()
	cfg, dir := acp.Config{Sessions: agenttest.NewSessions(), Dir: t.TempDir()}, t.TempDir()
	if _, err := run(t, open(t, script{Blocks: true, Loads: true, Crash: true, Dir: dir}, cfg), request("a", "run-1", "one")); err == nil {
		t.Fatal("the agent did not crash")
	}
	again := request("a", "run-1", "one")
	again.Attempt = 2
	got := look(t, open(t, script{Blocks: true, Loads: true, Dir: dir}, cfg), again)
	if !slices.Equal(got.Said, []string{"one"}) || len(got.Blocks) != 2 || !strings.HasPrefix(got.Blocks[0], "attempt 2: ") {
		t.Errorf("got %+v, want the session of the first attempt, and the word of it", got)
	}
}

// A new session replaces it and receives the transcript once.
func TestASessionThatCannotBeLoadedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(dir, session string, k *agenttest.Sessions){
		"TheAgentHasLostIt": func(dir, session string, _ *agenttest.Sessions) { _ = os.Remove(filepath.Join(dir, session)) },
		"TheAgentLoadsNothing": func(dir, session string, _ *agenttest.Sessions) {
			_ = os.WriteFile(filepath.Join(dir, session), nil, 0o600)
		},
		"OnAnotherMachine":     func(_, _ string, k *agenttest.Sessions) { k.Change(func(s *chat.AgentSession) { s.Host = "another" }) },
		"WithAnUnknownProcess": func(_, _ string, k *agenttest.Sessions) { k.Change(func(s *chat.AgentSession) { s.PIDStarted = "" }) },
		"OfAnotherConversation": func(_, _ string, k *agenttest.Sessions) {
			k.Change(func(s *chat.AgentSession) { s.Runs = []string{"run-0"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, k := script{Blocks: true, Loads: true, Dir: t.TempDir()}, agenttest.NewSessions()
			cfg := acp.Config{Sessions: k, Dir: t.TempDir()}
			runner := open(t, s, cfg)
			first := look(t, runner, request("a", "run-1", "one"))
			runner.Close()
			breaks(s.Dir, first.Session, k)
			runner = open(t, s, cfg)
			history := []chat.TranscriptEntry{entry(1, "run-1", chat.RoleUser, "one")}
			second := look(t, runner, request("a", "run-2", "two", history...))
			if second.Session == first.Session || len(second.Blocks) != 2 || !strings.HasPrefix(second.Blocks[0], "The conversation before this message") {
				t.Errorf("got %+v after %+v, want another session with the transcript", second, first)
			}
			runner.Close()
			third := look(t, open(t, s, cfg), request("a", "run-3", "three", append(history, entry(2, "run-2", chat.RoleUser, "two"))...))
			if third.Session != second.Session || !slices.Equal(third.Blocks, []string{"three"}) {
				t.Errorf("got %+v after %+v, want its session with the message alone", third, second)
			}
		})
	}
}

// Another gateway on the machine takes over a session whose process still waits for a turn.
func TestThePreviousProcessEndsFirst(t *testing.T) {
	t.Parallel()
	s := script{Blocks: true, Loads: true, Dir: t.TempDir()}
	cfg := acp.Config{Sessions: agenttest.NewSessions(), Dir: t.TempDir()}
	first := look(t, open(t, s, cfg), request("a", "run-1", "one"))
	second := look(t, open(t, s, cfg), request("a", "run-2", "two", entry(1, "run-1", chat.RoleUser, "one")))
	if _, living := starts(t, s.Dir); second.Session != first.Session || !slices.Equal(living, []int{second.PID}) {
		t.Errorf("got %+v after %+v, processes %d live", second, first, living)
	}
}

func TestAProcessThatIsNotUsedEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir}, acp.Config{Idle: 20 * time.Millisecond})
	for _, text := range []string{"one", "two"} {
		if got, err := run(t, runner, request("a", "run-"+text, text)); err != nil || got.Text != text {
			t.Fatalf("got %q and %v", got.Text, err)
		}
		testrun.Eventually(t, "no process is left", func() bool { _, living := starts(t, dir); return len(living) == 0 })
	}
	if all, _ := starts(t, dir); len(all) != 2 {
		t.Errorf("started %d times, want a second start after the idle time", len(all))
	}
}

func TestProcessesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir, Closes: true}, acp.Config{MaxProcesses: 2})
	for _, session := range []string{"a", "b", "a", "c", "a"} { // c replaces b
		if _, err := run(t, runner, request(session, "run", session)); err != nil {
			t.Fatal(err)
		}
		if _, living := starts(t, dir); len(living) > 2 {
			t.Errorf("%d processes live", len(living))
		}
	}
	if all, _ := starts(t, dir); !slices.Equal(all, []string{"agent:main:a", "agent:main:b", "agent:main:c"}) {
		t.Errorf("started for %q, want the process that was idle the longest to be replaced", all)
	}
}

func TestWhileAllProcessesWorkATurnWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Hang: true}, Dir: dir}, acp.Config{MaxProcesses: 1})
	var group sync.WaitGroup
	begin := func(session string) (end context.CancelFunc, steps chan string) {
		ctx, cancel := context.WithCancel(t.Context())
		steps = make(chan string, 10)
		group.Go(func() {
			defer close(steps)
			_, err := runner.Run(ctx, request(session, "run-"+session, session), func(e agent.Event) {
				if e.Tool != nil {
					steps <- e.Tool.Phase + " " + e.Tool.Name
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the turn of %s: got %v", session, err)
			}
		})
		return cancel, steps
	}
	const waiting = "Waiting: all 1 processes of this agent are at work"
	endA, _ := begin("a")
	testrun.Eventually(t, "the first turn runs", func() bool { return len(prompts(t, dir)) == 1 })
	endB, ofB := begin("b")
	if got := <-ofB; got != "start "+waiting {
		t.Errorf("the second turn shows %q", got)
	}
	endC, ofC := begin("c")
	<-ofC
	endD, ofD := begin("d")
	<-ofD
	sub := request("sub", "run-sub", "sub")
	sub.Awaited = true
	_, err := run(t, runner, sub)
	if failed, ok := errors.AsType[*agent.Error](err); !ok || failed.Reason != chat.FailOverloaded || !failed.Retryable {
		t.Errorf("got %v, want overloaded", err)
	}
	endC() // it stops waiting
	<-ofC
	endA()
	if got := <-ofB; got != "result "+waiting {
		t.Errorf("the second turn shows %q", got)
	}
	ran := func(want ...string) func() bool {
		return func() bool { all, _ := starts(t, dir); return slices.Equal(all, want) }
	}
	testrun.Eventually(t, "the second turn runs", ran("agent:main:a", "agent:main:b"))
	endB()
	if got := <-ofD; got != "result "+waiting {
		t.Errorf("the last turn shows %q", got)
	}
	testrun.Eventually(t, "the last turn runs", ran("agent:main:a", "agent:main:b", "agent:main:d"))
	endD()
	group.Wait()
}

func TestAHundredSessionsShareEightProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir}, acp.Config{MaxProcesses: 8})
	var group sync.WaitGroup
	most := 0
	for n := range 100 {
		session := strconv.Itoa(n)
		group.Go(func() {
			if got, err := run(t, runner, request(session, "run", session)); err != nil || got.Text != session {
				t.Errorf("session %s: got %q and %v", session, got.Text, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			_, living := starts(t, dir)
			most = max(most, len(living))
		}
	}
	if all := runner.Processes(); most > 8 || all.Living > 8 || all.Most != 8 || all.Evicted < 92 || runtime.GOOS == "linux" && all.Memory < int64(all.Living)<<20 {
		t.Errorf("%d processes lived at once, and %+v", most, all)
	}
}

// The agent closes its output and keeps running.
func TestAMuteProcessEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runner := open(t, script{Script: agenttest.Script{Repeat: true}, Dir: dir, Mutes: true}, acp.Config{})
	if got, err := run(t, runner, request("a", "run", "one")); err != nil || got.Text != "one" {
		t.Fatalf("got %q and %v", got.Text, err)
	}
	testrun.Eventually(t, "no process is left", func() bool { _, living := starts(t, dir); return len(living) == 0 })
}
