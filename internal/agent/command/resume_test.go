package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/command"
	"laneway/internal/chat"
	"laneway/internal/process"
	"laneway/internal/testrun"
)

// keeper is a program that keeps its conversations in files of DIR, as Claude Code and Codex do.
// For each turn it stores its prompt and its arguments there. It answers with its session.
const keeper = `
for arg in "$@"; do case "$before" in --resume|resume) session=$arg;; esac; before=$arg; done
if [ -n "$session" ] && [ ! -e "$DIR/$session" ]; then
  echo '{"type":"result","is_error":true,"errors":["No conversation found"],"session_id":"'$session'"}'; exit 1
fi
[ -n "$session" ] || session=s$$
cat >"$DIR/asked-$LANEWAY_RUN_ID-$LANEWAY_ATTEMPT"
printf %s "$*" >"$DIR/args-$LANEWAY_RUN_ID-$LANEWAY_ATTEMPT"
cat "$DIR/asked-$LANEWAY_RUN_ID-$LANEWAY_ATTEMPT" >>"$DIR/$session"
echo '{"type":"system","subtype":"hook_started","session_id":"another"}'
echo '{"type":"system","subtype":"init","session_id":"'$session'"}'
echo '{"type":"thread.started","thread_id":"'$session'"}'
if [ -e "$DIR/wait" ]; then sleep 1000; fi
if [ -e "$DIR/fail" ]; then echo $session >>"$DIR/fail"; exit 3; fi
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"'$session'"}]}}'
`

// keeping makes runners of keeper over one directory and store, as each start of a gateway does.
type keeping struct {
	dir      string
	cfg      command.Config
	sessions *agenttest.Sessions
}

func newKeeping(t *testing.T, output command.Output, argv ...string) keeping {
	t.Helper()
	sessions, dir := agenttest.NewSessions(), t.TempDir()
	return keeping{dir, command.Config{Argv: argv, Output: output, Dir: t.TempDir(), Env: map[string]string{"DIR": dir}, Sessions: sessions}, sessions}
}

// turn makes a turn with a new runner and returns the session that has answered, and its prompt.
func (k keeping) turn(t *testing.T, run, text string, history ...chat.TranscriptEntry) (session, asked string) {
	t.Helper()
	req := agenttest.Request(text)
	req.RunID, req.History = run, history
	result, err := ask(t, shell(t, keeper, k.cfg), req)
	if err != nil {
		t.Fatal(err)
	}
	return result.Text, k.read(t, "asked-"+run+"-1")
}

func (k keeping) read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(k.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func entry(seq int64, run, role, text string) chat.TranscriptEntry {
	return chat.TranscriptEntry{Seq: seq, RunID: run, Role: role, Text: text}
}

// TestAKnownProgramContinuesItsConversation makes three turns with three runners. The first
// receives the history, the later ones what the program has not seen.
func TestAKnownProgramContinuesItsConversation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		output command.Output
		argv   []string
		want   string // the arguments of the second turn
	}{
		"Claude":           {command.OutputClaude, []string{"-p", "--verbose"}, "-p --verbose --resume SESSION"},
		"ClaudeByArgument": {command.OutputClaude, []string{"-p", "--", "{message}"}, "-p --resume SESSION -- two"},
		"Codex":            {command.OutputCodex, []string{"exec", "--json", "-", "--more"}, "exec --json resume SESSION - --more"},
		"CodexByArgument":  {command.OutputCodex, []string{"exec", "x {message}"}, "exec resume SESSION x two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeping(t, tt.output, tt.argv...)
			history := []chat.TranscriptEntry{entry(1, "job", chat.RoleAssistant, "before")}
			first, asked := k.turn(t, "run-1", "one", history...)
			if want := "The conversation before this message, as JSON:\n" + `[{"role":"assistant","text":"before"}]` + "\n\none"; asked != want && !strings.Contains(k.read(t, "args-run-1-1"), want) {
				t.Errorf("the first turn was asked %q, want %q", asked, want)
			}
			history = append(history, entry(2, "run-1", chat.RoleUser, "one"), entry(3, "run-1", chat.RoleAssistant, first))
			second, _ := k.turn(t, "run-2", "two", history...)
			if args, want := k.read(t, "args-run-2-1"), strings.Replace(tt.want, "SESSION", first, 1); second != first || args != want {
				t.Errorf("turn two had the session %s after %s, and the arguments %q, want %q", second, first, args, want)
			}
			history = append(history, entry(4, "run-2", chat.RoleUser, "two"), entry(5, "run-2", chat.RoleAssistant, second), entry(6, "job", chat.RoleAssistant, "a report"))
			third, _ := k.turn(t, "run-3", "three", history...)
			if got := k.read(t, "asked-run-3-1") + k.read(t, "args-run-3-1"); third != first || !strings.Contains(got, "Added to the conversation meanwhile, as JSON:\n"+`[{"role":"assistant","text":"a report"}]`+"\n\nthree") {
				t.Errorf("turn three had the session %s and was asked %q", third, got)
			}
		})
	}
}

// TestAConversationThatCannotBeContinuedGetsTheTranscript checks that this happens once: the next
// turn continues the new conversation.
func TestAConversationThatCannotBeContinuedGetsTheTranscript(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(k keeping, session string){
		"TheProgramHasLostIt": func(k keeping, session string) { _ = os.Remove(filepath.Join(k.dir, session)) },
		"OnAnotherMachine":    func(k keeping, _ string) { k.sessions.Change(func(s *chat.AgentSession) { s.Host = "another" }) },
		"OfAnotherDirectory":  func(k keeping, _ string) { k.sessions.Change(func(s *chat.AgentSession) { s.Dir = "/another" }) },
		"OfAnotherConversation": func(k keeping, _ string) {
			k.sessions.Change(func(s *chat.AgentSession) { s.Runs = []string{"run-0"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeping(t, command.OutputClaude, "-p")
			first, _ := k.turn(t, "run-1", "one")
			breaks(k, first)
			history := []chat.TranscriptEntry{entry(1, "run-1", chat.RoleUser, "one")}
			second, asked := k.turn(t, "run-2", "two", history...)
			if second == first || !strings.HasPrefix(asked, "The conversation before this message") || !strings.HasSuffix(asked, "\n\ntwo") {
				t.Errorf("the session is %s after %s, asked %q", second, first, asked)
			}
			third, asked := k.turn(t, "run-3", "three", append(history, entry(2, "run-2", chat.RoleUser, "two"))...)
			if third != second || asked != "three" {
				t.Errorf("the session is %s after %s, asked %q", third, second, asked)
			}
		})
	}
}

// TestAFailureOfAContinuedTurnIsNoRefusal checks that a program that has resumed the session is not
// started again.
func TestAFailureOfAContinuedTurnIsNoRefusal(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, command.OutputClaude, "-p")
	first, _ := k.turn(t, "run-1", "one")
	req := agenttest.Request("two")
	req.RunID, req.History = "run-2", []chat.TranscriptEntry{entry(1, "run-1", chat.RoleUser, "one")}
	if err := os.WriteFile(filepath.Join(k.dir, "fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ask(t, shell(t, keeper, k.cfg), req)
	if failed := failure(t, err, chat.FailProgram); !strings.Contains(failed.Message, "exit code 3") || k.read(t, "fail") != first+"\n" {
		t.Errorf("%q, attempts of %q", failed.Message, k.read(t, "fail"))
	}
}

// TestALaterAttemptContinuesTheConversation that a killed gateway has left. The process of the
// first attempt is ended before.
func TestALaterAttemptContinuesTheConversation(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, command.OutputCodex, "exec", "-")
	if err := os.WriteFile(filepath.Join(k.dir, "wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancelCause(t.Context())
	stored := make(chan chat.AgentSession, 1)
	runner := shell(t, keeper, k.cfg) // made here, because it skips the test under -short
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := runner.Run(ctx, agenttest.Request("one"), func(agent.Event) {}); err == nil {
			t.Error("the first attempt succeeded")
		}
	})
	testrun.Eventually(t, "the session is stored while its process runs", func() bool {
		s, err := k.sessions.AgentSession(t.Context(), chat.MainKey("main"))
		if err != nil || s.ID == "" || s.PID == 0 {
			return false
		}
		stored <- s
		return true
	})
	kill(errors.New("killed"))
	group.Wait()
	before := <-stored
	if err := k.sessions.PutAgentSession(t.Context(), chat.MainKey("main"), before); err != nil { // a gateway that is killed stores no end
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(k.dir, "wait")); err != nil {
		t.Fatal(err)
	}
	again := agenttest.Request("one")
	again.Attempt = 2
	result, err := ask(t, shell(t, keeper, k.cfg), again)
	if asked := k.read(t, "asked-run-1-2"); err != nil || result.Text != before.ID || !strings.HasPrefix(asked, "attempt 2: ") || !strings.HasSuffix(asked, "\n\none") {
		t.Errorf("%v, session %q after %q, asked %q", err, result.Text, before.ID, asked)
	}
	if s, err := k.sessions.AgentSession(t.Context(), chat.MainKey("main")); err != nil || s.PID != 0 || !slices.Equal(s.Runs, []string{"run-1"}) {
		t.Errorf("stored after the end: %+v, %v", s, err)
	}
}

// TestAProgramThatWasLeftEndsFirst covers a gateway that was killed before the program had reported
// a session.
func TestAProgramThatWasLeftEndsFirst(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	k := newKeeping(t, command.OutputClaude, "-p")
	left := exec.CommandContext(t.Context(), "sleep", "600")
	left.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Wait() })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	pid := left.Process.Pid
	if err := k.sessions.PutAgentSession(t.Context(), chat.MainKey("main"), chat.AgentSession{Host: host, PID: pid, PIDStarted: process.Started(pid)}); err != nil {
		t.Fatal(err)
	}
	if _, asked := k.turn(t, "run-1", "one"); asked != "one" || lives(pid) {
		t.Errorf("asked %q, the process before lives: %t", asked, lives(pid))
	}
}

// TestTurnsOfAConversationWaitForEachOther also checks that turns of another conversation do not
// wait, and that a stopped turn no longer waits.
func TestTurnsOfAConversationWaitForEachOther(t *testing.T) {
	t.Parallel()
	k := newKeeping(t, command.OutputClaude, "-p")
	runner := shell(t, `
mkdir "$DIR/$LANEWAY_SESSION" || { echo '{"type":"result","is_error":true,"result":"two at once"}'; exit; }
echo '{"type":"system","subtype":"init","session_id":"s"}'
while [ -e "$DIR/wait" ]; do sleep 0.02; done
rmdir "$DIR/$LANEWAY_SESSION"
`, k.cfg)
	if err := os.WriteFile(filepath.Join(k.dir, "wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	run := func(name, run string) {
		group.Go(func() {
			req := agenttest.Request("hi")
			req.Session.Rest, req.RunID = name, run
			if _, err := runner.Run(t.Context(), req, func(agent.Event) {}); err != nil {
				t.Errorf("%s of %s: %v", run, name, err)
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		run(name, "run-1")
		run(name, "run-2")
	}
	testrun.Eventually(t, "a turn of each conversation runs", func() bool {
		names, err := filepath.Glob(filepath.Join(k.dir, "agent:*"))
		return err == nil && len(names) == 2
	})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	req := agenttest.Request("hi")
	req.Session.Rest = "a"
	if _, err := runner.Run(ctx, req, func(agent.Event) {}); err == nil {
		t.Error("a third turn did not wait")
	}
	if err := os.Remove(filepath.Join(k.dir, "wait")); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

// TestACommandWithAConversationOfItsOwnStaysAsItIs checks that it receives no history and no added
// arguments.
func TestACommandWithAConversationOfItsOwnStaysAsItIs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		output command.Output
		argv   []string
	}{
		{command.OutputClaude, []string{"-p", "--continue"}},
		{command.OutputClaude, []string{"-p", "--session-id=mine"}},
		{command.OutputCodex, []string{"exec", "--ephemeral", "-"}},
	} {
		t.Run(strings.Join(tt.argv, " "), func(t *testing.T) {
			t.Parallel()
			k := newKeeping(t, tt.output, tt.argv...)
			for _, run := range []string{"run-1", "run-2"} {
				_, asked := k.turn(t, run, "hello", entry(1, "run-0", chat.RoleUser, "before"))
				if diff := cmp.Diff([]string{"hello", strings.Join(tt.argv, " ")}, []string{asked, k.read(t, "args-"+run+"-1")}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", run, diff)
				}
			}
			if s, err := k.sessions.AgentSession(t.Context(), chat.MainKey("main")); err != nil || s.ID != "" {
				t.Errorf("stored: %+v, %v", s, err)
			}
		})
	}
}

// files gives files paths below a directory.
type files string

func (f files) Read(path string, _ int64) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), path))
}
func (f files) Path(path string) string { return filepath.Join(string(f), path) }

// TestAKnownProgramLearnsOfFiles checks that the prompt states where the files of the message are,
// and where those of the answer belong.
func TestAKnownProgramLearnsOfFiles(t *testing.T) {
	t.Parallel()
	k, out := newKeeping(t, command.OutputClaude, "-p"), t.TempDir()
	req := agenttest.Request("look")
	req.Files, req.OutputDir = files("/files"), func() (string, error) { return out, nil }
	req.Messages[0].Attachments = []chat.Attachment{{Name: "a\n.pdf", MIMEType: "application/pdf", Path: "2026/a.pdf", Size: 7}, {Name: "gone.png"}}
	result, err := ask(t, shell(t, keeper+`echo x >"$LANEWAY_OUTPUT_DIR/made.txt"`, k.cfg), req)
	want := "Files that the person is to get with this answer: write them to the directory " + out + "\n\n" + `The file "a\n.pdf" of the message is /files/2026/a.pdf` + "\n\nlook\n"
	if asked := k.read(t, "asked-run-1-1"); err != nil || !strings.HasPrefix(asked, want) {
		t.Errorf("%v, asked %q, want %q", err, asked, want)
	}
	if diff := cmp.Diff([]chat.Attachment{{Path: "made.txt"}}, result.Attachments); diff != "" {
		t.Errorf("files of the answer (-want +got):\n%s", diff)
	}
}

// TestATurnOfCodexUsesWhatItAddsToItsSession: codex reports the usage of its whole session. Each
// turn has a new runner.
func TestATurnOfCodexUsesWhatItAddsToItsSession(t *testing.T) {
	t.Parallel()
	const program = `
n=$(($(cat "$DIR/n" 2>/dev/null) + 1)); echo $n >"$DIR/n"
echo '{"type":"thread.started","thread_id":"t"}'
echo '{"type":"turn.completed","usage":{"input_tokens":'$((10 * n * n))',"cached_input_tokens":'$n',"output_tokens":'$((3 * n))'}}'
`
	k := newKeeping(t, command.OutputCodex, "exec", "-")
	var history []chat.TranscriptEntry
	for n, input := range []int{10, 30, 50} {
		req := agenttest.Request("go")
		req.RunID, req.History = fmt.Sprint("run-", n), history
		got, err := ask(t, shell(t, program, k.cfg), req)
		if want := (chat.Usage{InputTokens: input, OutputTokens: 3, CachedTokens: 1, Provider: "openai"}); err != nil || got.Usage != want {
			t.Errorf("turn %d used %+v, want %+v (%v)", n, got.Usage, want, err)
		}
		history = append(history, entry(int64(n+1), req.RunID, chat.RoleUser, "go"))
	}
}
