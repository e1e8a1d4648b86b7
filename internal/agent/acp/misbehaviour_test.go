package acp_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/agent/agenttest"
	"laneway/internal/chat"
)

// TestAnAgentThatMisbehaves misbehaves as real agents do, twice in one session, and checks what the person reads and what is logged. Above debug level, the log must not
// contain standard error; a key must appear nowhere.
func TestAnAgentThatMisbehaves(t *testing.T) {
	t.Parallel()
	const key = "key-12345"
	says := agenttest.Script{Pieces: []string{"fine"}}
	refusal := func(data any) *sdk.RequestError {
		return &sdk.RequestError{Code: -32603, Message: "Internal error", Data: data}
	}
	for name, tt := range map[string]struct {
		script   script
		text     string // the answer
		usage    chat.Usage
		failed   []string // parts of the error; nil without an error
		reason   chat.FailReason
		warnings []string // parts of the only warning
	}{
		"refuses MCP servers with an internal error": {
			script: script{Alone: true, Script: says}, text: "fine", usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
			warnings: []string{"trying without them", "no servers per session"},
		},
		"prints lines that are not messages, and updates of an unknown kind, of another session and of no session": {
			script: script{Noise: true, Script: says}, text: "fine", usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
		},
		"joins the text after a call to the text before it": {
			script: script{Calls: true, Script: agenttest.Script{Pieces: []string{"Before."}}}, text: "Before.\n\nBehind.", usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
		},
		"ends for a reason that the protocol does not know": {
			script: script{Reason: "of_the_future", Script: says}, text: "fine", usage: chat.Usage{InputTokens: 3, OutputTokens: 4},
		},
		"reports tokens that no model can use": {
			script: script{Used: &sdk.Usage{InputTokens: -7, OutputTokens: 1 << 60}, Script: says}, text: "fine", usage: chat.Usage{OutputTokens: chat.MaxTokens},
		},
		"says nothing": {usage: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"has the reason of an error in its details": {
			script: script{Refuses: refusal(map[string]any{"details": "quota of " + key + " is used up"})}, reason: chat.FailProgram,
			failed: []string{"Internal error: quota of ", " is used up", "the disk is on fire"},
		},
		"has the reason of an error as its data": {
			script: script{Refuses: refusal("the model is away")}, reason: chat.FailProgram, failed: []string{"Internal error: the model is away", "the disk is on fire"},
		},
		"has no reason of an error": {
			script: script{Refuses: refusal([]any{1})}, reason: chat.FailProgram, failed: []string{"reported a failure: Internal error", "the disk is on fire"},
		},
		"ends in the middle of a turn": {
			script: script{Crash: true, Script: says}, text: "fine", reason: chat.FailProgram, failed: []string{"exit code 3", "it went wrong"},
		},
		"writes a message without an end": {
			script: script{LongLine: true, Script: says}, text: "fine", reason: chat.FailBadResponse, failed: []string{"does not keep to the protocol"},
		},
		"asks without reading answers": {
			script: script{Flood: true, Script: says}, text: "fine", reason: chat.FailBadResponse, failed: []string{"does not keep to the protocol"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			runner := openLogged(t, tt.script, acp.Config{Env: map[string]string{"KEY": key}, Bridge: []string{"bridge"}}, slog.New(slog.NewTextHandler(&log, nil)))
			for _, id := range []string{"run-1", "run-2"} {
				req := request("a", id, "one", entry(1, "run-1", chat.RoleUser, "one"))
				req.OpenTools = func(context.Context) (agent.ToolAccess, func()) {
					return agent.ToolAccess{URL: "http://127.0.0.1:1", Token: "token"}, func() {}
				}
				got, err := run(t, runner, req)
				if got.Text != tt.text || agent.ReasonOf(err) != tt.reason {
					t.Errorf("%s: got %q and %v", id, got.Text, err)
				}
				if got.Usage.InputTokens != tt.usage.InputTokens || got.Usage.OutputTokens != tt.usage.OutputTokens {
					t.Errorf("%s: used %+v, want %+v", id, got.Usage, tt.usage)
				}
				for _, part := range tt.failed {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: got %v, want %q in it", id, err, part)
					}
				}
				if err != nil && strings.Contains(err.Error(), key) {
					t.Errorf("%s: a key is in %v", id, err)
				}
			}
			runner.Close()
			for _, part := range tt.warnings {
				if strings.Count(log.String(), part) != 1 {
					t.Errorf("want %q once in the log:\n%s", part, &log)
				}
			}
			for _, part := range []string{"the disk is on fire", "it went wrong", key} {
				if strings.Contains(log.String(), part) {
					t.Errorf("%q is in the log:\n%s", part, &log)
				}
			}
		})
	}
}
