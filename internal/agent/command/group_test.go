package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/command"
	"laneway/internal/chat"
)

// gone waits until no process of the file runs. A killed process takes a moment to end.
func gone(t *testing.T, file string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for living := alive(t, file); len(living) > 0; living = alive(t, file) {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("processes %v still live", living)
		}
	}
	if raw, err := os.ReadFile(file); err != nil || len(raw) == 0 {
		t.Fatalf("no process was started: %v", err)
	}
}

// stopped runs a program that writes "ready", stops it then, and returns the result and how long
// the stop took.
func stopped(t *testing.T, runner *command.Runner) (agent.Result, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	var at time.Time
	result, err := runner.Run(ctx, agenttest.Request("hi"), func(agent.Event) {
		at = time.Now()
		cancel(stop)
	})
	if !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
	return result, time.Since(at)
}

func TestStopping(t *testing.T) {
	t.Parallel()
	const late = 5 * time.Second // far above what a busy machine needs, far below the 1000 s of the programs
	tests := map[string]struct {
		script  string
		atLeast time.Duration
	}{
		"AProgramThatListensEndsAtOnce": {script: "echo $$ >>$PIDS; echo ready; sleep 1000 & echo $! >>$PIDS; wait"},
		"AProgramThatDoesNotListenIsKilled": {
			script: "trap '' TERM; echo $$ >>$PIDS; echo ready; while :; do sleep 1000; done", atLeast: 200 * time.Millisecond,
		},
		"AGrandchildGetsItsTimeAfterItsShell": {
			script: "sh -c 'trap \"echo cleaned >>$PIDS.done; exit\" TERM; echo $$ >>$PIDS; echo ready; while :; do sleep 0.01; done' & echo $! >>$PIDS; wait",
		},
		"AGrandchildThatDoesNotListenIsKilled": {
			script: "sh -c 'trap \"\" TERM; echo $$ >>$PIDS; echo ready; while :; do sleep 1000; done' & echo $! >>$PIDS; wait", atLeast: 200 * time.Millisecond,
		},
		"AStoppedProgramIsKilled": {
			script:  "echo $$ >>$PIDS; (until grep -q '^State:.T' /proc/$$/status; do sleep 0.01; done; echo ready) & kill -STOP $$",
			atLeast: 200 * time.Millisecond,
		},
		"ATalkingProgramIsStopped": {script: "echo $$ >>$PIDS; while :; do echo ready; done"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			runner := shell(t, tt.script, command.Config{Env: map[string]string{"PIDS": pids}, Grace: 300 * time.Millisecond})
			result, took := stopped(t, runner)
			if !strings.HasPrefix(result.Text, "ready") {
				t.Errorf("text: got %q, want what was said before", result.Text)
			}
			if took < tt.atLeast || took > late {
				t.Errorf("stopping took %s, want %s to %s", took, tt.atLeast, late)
			}
			gone(t, pids)
		})
	}
}

func TestAGrandchildCanCleanUpAfterItsShellHasEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `sh -c 'trap "echo cleaned >$DIR/done; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`
	stopped(t, shell(t, script, command.Config{Env: map[string]string{"DIR": dir}}))
	if raw, err := os.ReadFile(filepath.Join(dir, "done")); err != nil || string(raw) != "cleaned\n" {
		t.Errorf("got %q and %v, want the note of the clean-up", raw, err)
	}
}

func TestWhatAProgramLeavesBehindIsKilled(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	runner := shell(t, "sleep 1000 & echo $! >>$PIDS; echo answer", command.Config{Env: map[string]string{"PIDS": pids}})
	start := time.Now()
	result, err := ask(t, runner, agenttest.Request("hi"))
	if err != nil || result.Text != "answer\n" || time.Since(start) > 10*time.Second {
		t.Errorf("got %q and %v after %s, want the answer at once", result.Text, err, time.Since(start))
	}
	gone(t, pids)
}

// TestAnEscapedProcessDoesNotHoldTheTurn starts a process in another process session that keeps the
// pipes open.
func TestAnEscapedProcessDoesNotHoldTheTurn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `setsid sh -c 'echo $$ >$DIR/pid; while [ ! -e $DIR/end ]; do sleep 0.01; done' &
while [ ! -s $DIR/pid ]; do sleep 0.01; done; echo answer`
	runner := shell(t, script, command.Config{Env: map[string]string{"DIR": dir}})
	start := time.Now()
	result, err := ask(t, runner, agenttest.Request("hi"))
	if err != nil || result.Text != "answer\n" || time.Since(start) > 10*time.Second {
		t.Errorf("got %q and %v after %s, want the answer soon", result.Text, err, time.Since(start))
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone(t, filepath.Join(dir, "pid"))
}

func TestEndlessOutputIsCutAndItsProgramEnds(t *testing.T) {
	t.Parallel()
	for _, output := range []command.Output{command.OutputText, command.OutputAuto, command.OutputJSON} {
		pids := filepath.Join(t.TempDir(), "pids")
		cfg := command.Config{Env: map[string]string{"PIDS": pids}, MaxAnswer: 100_000, Output: output}
		result, err := ask(t, shell(t, "trap '' PIPE; echo $$ >>$PIDS; yes", cfg), agenttest.Request("hi"))
		failure(t, err, chat.FailOutputLimit)
		if len(result.Text) != 100_000 {
			t.Errorf("%s: got %d bytes, want 100000", output, len(result.Text))
		}
		gone(t, pids)
	}
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		out    string
		mode   command.Output
		want   string
		reason chat.FailReason
	}{
		"Deltas":                        {"{\"delta\":\"a\"}\n{\"delta\":\"b\\n\"}\n", "", "ab\n", ""},
		"FinalAlone":                    {`{"final":"whole"}`, "", "whole", ""},
		"FinalAddsWhatIsMissing":        {"{\"delta\":\"who\"}\n{\"final\":\"whole\"}\n", "", "whole", ""},
		"FinalRepeatsNothing":           {"{\"delta\":\"whole\"}\n{\"final\":\"whole\"}\n", "", "whole", ""},
		"DeltasCannotBeTakenBack":       {"{\"delta\":\"a\"}\n{\"final\":\"b\"}\n", "", "a", ""},
		"BlankLinesMeanNothing":         {"\n\n{\"delta\":\"a\"}\n\n{\"delta\":\"b\"}\n", "", "ab", ""},
		"AnErrorFails":                  {`{"error":"no luck"}`, "", "", chat.FailProgram},
		"AnErrorMayNameItsReason":       {`{"error":"slow down","reason":"rate_limit"}`, "", "", chat.FailRateLimit},
		"UnknownReasonsAreTheProgram":   {`{"error":"x","reason":"moon"}`, "", "", chat.FailProgram},
		"AnErrorKeepsTheText":           {"{\"delta\":\"a\"}\n{\"error\":\"x\"}\n", "", "a", chat.FailProgram},
		"LaterTextIsText":               {"{\"delta\":\"a\"}\nplain\n", "", "aplain\n", ""},
		"OtherJSONIsText":               {"{\"a\":1}\n", "", "{\"a\":1}\n", ""},
		"OtherMembersArePassedOver":     {"{\"delta\":\"a\",\"x\":1}\n{\"y\":2,\"delta\":\"b\"}\n", "", "ab", ""},
		"WrongTypesAreText":             {"{\"delta\":1}\n", "", "{\"delta\":1}\n", ""},
		"TextIsText":                    {"\n  hello\n{\"delta\":\"a\"}\n", "", "\n  hello\n{\"delta\":\"a\"}\n", ""},
		"AnUnfinishedObjectIsText":      {"{\"delta\":", "", "{\"delta\":", ""},
		"AnOpenBraceIsText":             {"{ not json\nmore", "", "{ not json\nmore", ""},
		"BlanksAloneAreText":            {"\n \n", "", "\n \n", ""},
		"TextModeTakesNoNotice":         {"{\"delta\":\"a\"}\n", command.OutputText, "{\"delta\":\"a\"}\n", ""},
		"JSONModeAllowsTextFirst":       {"hello\n{\"delta\":\"a\"}\n", command.OutputJSON, "hello\na", ""},
		"NULAndBrokenCharactersAreGone": {"{\"delta\":\"a\\u0000b\\ud800\"}\n", "", "ab\uFFFD", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(file, []byte(tt.out), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, how := range []string{"cat", "dd status=none bs=1 <"} {
				runner := shell(t, fmt.Sprintf("%s '%s'", how, file), command.Config{Output: tt.mode})
				result, err := ask(t, runner, agenttest.Request("hi"))
				if reason := agent.ReasonOf(err); result.Text != tt.want || reason != tt.reason {
					t.Errorf("%s: got %q and %q (%v), want %q and %q", how, result.Text, reason, err, tt.want, tt.reason)
				}
			}
		})
	}
}

func TestAProgramsOwnSentenceIsShown(t *testing.T) {
	t.Parallel()
	runner := shell(t, `echo '{"error":"Ask again tomorrow."}'; echo secret detail >&2; exit 1`, command.Config{})
	_, err := ask(t, runner, agenttest.Request("hi"))
	if failed := failure(t, err, chat.FailProgram); failed.Message != "Ask again tomorrow." {
		t.Errorf("sentence: got %q", failed.Message)
	}
}

// TestStreamsOfKnownPrograms plays lines in the form that Claude Code and Codex print.
func TestStreamsOfKnownPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		output command.Output
		lines  string
		text   string
		steps  []string
		usage  chat.Usage
		fails  string
	}{
		"Claude": {
			command.OutputClaude, `{"type":"system","subtype":"init","session_id":"s"}
{"type":"assistant","message":{"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"a.txt"}]}}
a line of a library
{"type":"assistant","message":{"content":[{"type":"text","text":"There is a.txt."}]}}
{"type":"result","subtype":"success","is_error":false,"result":"There is a.txt.","usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":5}}
`, "I look.\n\nThere is a.txt.",
			[]string{`start t1 Bash {"command":"ls"}`, `result t1 Bash "a.txt"`},
			chat.Usage{InputTokens: 8, OutputTokens: 4, CachedTokens: 5, Provider: "anthropic"},
			"",
		},
		"ClaudeInPieces": {
			command.OutputClaude, `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"He"}}}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"llo"}}}
{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"}]}}
{"type":"result","is_error":false,"result":"Hello"}`, "Hello", nil, chat.Usage{}, "",
		},
		"ClaudeFails": {
			command.OutputClaude, `{"type":"result","is_error":true,"result":"Invalid API key"}` + "\n", "", nil, chat.Usage{}, "Invalid API key",
		},
		"Codex": {
			command.OutputCodex, `{"type":"thread.started","thread_id":"t"}
{"type":"item.started","item":{"id":"i1","type":"command_execution","command":"ls","status":"in_progress"}}
{"type":"item.completed","item":{"id":"i1","type":"command_execution","command":"ls","aggregated_output":"a.txt","status":"completed"}}
{"type":"item.started","item":{"id":"i2","type":"command_execution","command":"sleep 9","status":"in_progress"}}
{"type":"item.completed","item":{"id":"i3","type":"agent_message","text":"Done."}}
{"type":"turn.completed","usage":{"input_tokens":7,"cached_input_tokens":2,"output_tokens":1}}
`, "Done.", []string{
				`start i1 command_execution "ls"`, `result i1 command_execution "a.txt"`, `start i2 command_execution "sleep 9"`,
				`result i2 command_execution "it was not finished" failed`,
			}, chat.Usage{InputTokens: 7, OutputTokens: 1, CachedTokens: 2, Provider: "openai"}, "",
		},
		"CodexFails": {command.OutputCodex, `{"type":"turn.failed","error":{"message":"quota"}}` + "\n", "", nil, chat.Usage{}, "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "lines")
			if err := os.WriteFile(file, []byte(tt.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			var steps []string
			result, err := open(t, command.Config{Argv: []string{"cat", file, "-"}, Output: tt.output}, nil).Run(t.Context(), agenttest.Request("\n"), func(e agent.Event) {
				if e.Kind == agent.EventTool {
					steps = append(steps, strings.TrimSpace(strings.Join([]string{e.Tool.Phase, e.Tool.CallID, e.Tool.Name, e.Tool.Args + e.Tool.Result, map[bool]string{true: "failed"}[e.Tool.IsError]}, " ")))
				}
			})
			if (err == nil) != (tt.fails == "") || (err != nil && !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("got %v, want %q", err, tt.fails)
			}
			if diff := cmp.Diff(tt.steps, steps); result.Text != tt.text || result.Usage != tt.usage || diff != "" {
				t.Errorf("got %q and %+v; steps (-want +got):\n%s", result.Text, result.Usage, diff)
			}
		})
	}
}
