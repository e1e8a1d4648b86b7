package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/agent/agenttest"
	"laneway/internal/agent/command"
	"laneway/internal/chat"
)

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
