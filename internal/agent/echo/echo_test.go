package echo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/echo"
	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//nolint:paralleltest // the suite checks for leftover goroutines
func TestContract(t *testing.T) {
	agenttest.Run(t, agenttest.Subject{
		Open: func(t *testing.T, script agenttest.Script) agent.Runner {
			t.Helper()
			return open(t, echo.Config{Chunk: 3, Script: script.Hang || script.Fail != "", MaxAnswer: script.MaxAnswer})
		},
		Message: func(script agenttest.Script) string {
			lines := []string{}
			if len(script.Pieces) > 0 {
				lines = append(lines, script.Text())
			}
			if script.Hang {
				lines = append(lines, "hang")
			}
			if script.Fail != "" {
				lines = append(lines, "fail "+string(script.Fail))
			}
			return strings.Join(lines, "\n")
		},
		Reasons: []chat.FailReason{chat.FailUnknown, chat.FailRateLimit, chat.FailOverloaded},
		Usage:   true,
	})
}

func open(t *testing.T, cfg echo.Config) *echo.Runner {
	t.Helper()
	runner, err := echo.New(cfg)
	if err != nil {
		t.Fatalf("New(%+v): %v", cfg, err)
	}
	return runner
}

// said runs a turn and returns the deltas.
func said(ctx context.Context, runner *echo.Runner, req agent.Request) ([]string, agent.Result, error) {
	var deltas []string
	result, err := runner.Run(ctx, req, func(event agent.Event) {
		if event.Kind == agent.EventDelta {
			deltas = append(deltas, event.Text)
		}
	})
	return deltas, result, err
}

func TestChunksAreCountedInCharacters(t *testing.T) {
	t.Parallel()
	deltas, _, err := said(t.Context(), open(t, echo.Config{Chunk: 2}), agenttest.Request("añ🙂bc"))
	if diff := cmp.Diff([]string{"añ", "🙂b", "c"}, deltas); diff != "" || err != nil {
		t.Errorf("error %v, chunks (-want +got):\n%s", err, diff)
	}
}

func TestMessagesAreJoinedByNewlines(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("one")
	req.Messages = append(req.Messages, chat.Content{Text: "two"})
	_, result, err := said(t.Context(), open(t, echo.Config{}), req)
	if err != nil || result.Text != "one\ntwo" {
		t.Errorf("got %q and %v, want %q", result.Text, err, "one\ntwo")
	}
}

func TestDelaysAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		runner := open(t, echo.Config{Delay: time.Minute, Chunk: 1, ChunkDelay: time.Second})
		if _, _, err := said(t.Context(), runner, agenttest.Request("abcd")); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(start), time.Minute+3*time.Second; took != want {
			t.Errorf("took %s, want %s", took, want)
		}
	})
}

func TestFailWithFailsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	_, result, err := said(t.Context(), open(t, echo.Config{FailWith: chat.FailOverloaded}), agenttest.Request("hi"))
	var failed *agent.Error
	if !errors.As(err, &failed) || failed.Reason != chat.FailOverloaded || !failed.Retryable || result.Text != "hi" {
		t.Errorf("got %q and %v, want hi and a retryable %s", result.Text, err, chat.FailOverloaded)
	}
}

func TestInputInMidTurnIsTaken(t *testing.T) {
	t.Parallel()
	req := agenttest.Request("one")
	queue := [][]chat.Content{{{Text: "two"}, {Text: "three"}}, {{Text: "four"}}}
	req.TakeInput = func() []chat.Content {
		if len(queue) == 0 {
			return nil
		}
		next := queue[0]
		queue = queue[1:]
		return next
	}
	_, result, err := said(t.Context(), open(t, echo.Config{}), req)
	if want := "one\ntwo\nthree\nfour"; err != nil || result.Text != want {
		t.Errorf("got %q and %v, want %q", result.Text, err, want)
	}
}

func TestInstructionsAreTextUnlessSwitchedOn(t *testing.T) {
	t.Parallel()
	const text = "sleep 9h\npanic\nfail timeout\nhang\nsay 3"
	_, result, err := said(t.Context(), open(t, echo.Config{}), agenttest.Request(text))
	if err != nil || result.Text != text {
		t.Errorf("got %q and %v, want the text itself", result.Text, err)
	}
}

func TestInstructions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text, want string
		reason     chat.FailReason
		took       time.Duration
	}{
		"SleepWaits":                  {"a\nsleep 2s\nb", "a\nb", "", 2 * time.Second},
		"SayTalks":                    {"say 4", "xxxx", "", 0},
		"FailFails":                   {"a\nfail\nb", "a", chat.FailUnknown, 0},
		"FailTakesAReason":            {"fail rate_limit", "", chat.FailRateLimit, 0},
		"SentencesAreNoInstructions":  {"fail me not\nfail never\nsleep well\nsay hello\npanic now", "fail me not\nfail never\nsleep well\nsay hello\npanic now", "", 0},
		"ImpossibleFiguresAreText":    {"sleep -1s\nsleep 99999h\nsay -1\nsay 999999999", "sleep -1s\nsleep 99999h\nsay -1\nsay 999999999", "", 0},
		"BlanksAroundAreNoDifference": {"  sleep 1s  ", "", "", time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, result, err := said(t.Context(), open(t, echo.Config{Script: true}), agenttest.Request(tt.text))
				if reason := agent.ReasonOf(err); reason != tt.reason || result.Text != tt.want {
					t.Errorf("got %q and %q (%v), want %q and %q", result.Text, reason, err, tt.want, tt.reason)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

func TestPanicPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_, _, err := said(t.Context(), open(t, echo.Config{Script: true}), agenttest.Request("panic"))
	t.Errorf("the turn ended with %v", err)
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := echo.New(echo.Config{Delay: -1, ChunkDelay: 48 * time.Hour, Chunk: -1, FailWith: "bad luck"})
	for _, field := range []string{"fail_with", "delay", "chunk_delay", "chunk and"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %q", err, field)
		}
	}
}

func ExampleRunner() {
	runner, err := echo.New(echo.Config{Chunk: 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := runner.Run(context.Background(), agenttest.Request("hello there"), func(event agent.Event) {
		fmt.Printf("%s %q\n", event.Kind, event.Text)
	})
	fmt.Printf("%q %v\n", result.Text, err)
	// Output:
	// delta "hello "
	// delta "there"
	// usage ""
	// "hello there" <nil>
}
