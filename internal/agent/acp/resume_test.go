package acp_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
	"laneway/internal/testrun"
)

// Three turns run in three gateways. The third one has the prompt of the first one, no prompt is sent twice, and replayed updates are not part of an answer.
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
