package acp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"laneway/internal/agent"
	"laneway/internal/agent/acp"
	"laneway/internal/chat"
)

// replay is an agent that repeats the output of another one: after each message of the client, the lines up to the response or up to its own next request.
func replay(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 8<<20)
	var pending json.RawMessage // the request without a response
	for in.Scan() {
		asked := map[string]json.RawMessage{}
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			return err
		}
		if asked["id"] == nil { // a notification
			continue
		}
		if asked["method"] != nil {
			pending = asked["id"]
		}
		for waits := false; !waits; {
			line := map[string]json.RawMessage{"jsonrpc": json.RawMessage(`"2.0"`), "id": pending, "result": json.RawMessage(`{}`)}
			if len(lines) > 0 {
				line = map[string]json.RawMessage{}
				if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
					return err
				}
				lines = lines[1:]
			}
			if line["id"] != nil && line["method"] == nil {
				line["id"] = pending
			}
			out, err := json.Marshal(line)
			if err != nil {
				return err
			}
			fmt.Println(string(out))
			waits = line["id"] != nil
		}
	}
	return in.Err()
}

// allows is a person who allows everything.
type allows struct{ asked []string }

func (a *allows) Ask(_ context.Context, q agent.Question) (int, error) {
	a.asked = append(a.asked, q.Text)
	for i, option := range q.Options {
		if option.Allow {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no option of %q allows", q.Text)
}

// TestRecordedConversations replays the output of the presets' npm packages, recorded in November 2026 by TestPresetsAnswer of internal/testcompat with a scripted model
// that requests one command. It checks three turns with their usage, and the permission request of agents that make one.
func TestRecordedConversations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  acp.Config
		asks int        // permission requests for the command
		used chat.Usage // usage of a turn with one request
		last bool       // reports only the last request of a turn
	}{
		"claude":   {asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"codex":    {asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"gemini":   {cfg: acp.Config{Auth: "gemini-api-key"}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"opencode": {asks: 2, used: chat.Usage{InputTokens: 3, OutputTokens: 4}, last: true},
		"qwen":     {cfg: acp.Config{Auth: "openai"}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"copilot":  {cfg: acp.Config{UsageOfSession: true}, asks: 1, used: chat.Usage{InputTokens: 3, OutputTokens: 4}},
		"openclaw": {cfg: acp.Config{NoServers: true}, asks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(filepath.Join("testdata", "recorded", name+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			runner := open(t, script{Replay: file}, tt.cfg)
			person := &allows{}
			var history []chat.TranscriptEntry
			for n, text := range []string{"remember the word apple", "run-the-command-now", "which word was it?"} {
				req := request("a", fmt.Sprint("run-", n), text, history...)
				req.Asker = person
				var steps []string
				deltas := 0
				got, err := runner.Run(t.Context(), req, func(e agent.Event) {
					switch {
					case e.Tool != nil:
						steps = append(steps, e.Tool.Phase)
					case e.Kind == agent.EventDelta:
						deltas++
					}
				})
				if err != nil || !strings.HasSuffix(got.Text, "The word is apple.") || deltas < 2 {
					t.Fatalf("turn %d: %q in %d pieces, %v", n, got.Text, deltas, err)
				}
				want := tt.used
				if n == 1 && !tt.last { // the command, and its result
					want.InputTokens, want.OutputTokens = 2*want.InputTokens, 2*want.OutputTokens
				}
				if got.Usage.InputTokens != want.InputTokens || got.Usage.OutputTokens != want.OutputTokens {
					t.Errorf("turn %d used %+v, want %+v", n, got.Usage, want)
				}
				if called := len(steps) > 1 && steps[0] == "start" && steps[len(steps)-1] == "result"; called != (n == 1) {
					t.Errorf("turn %d: steps %q", n, steps)
				}
				history = append(history, entry(int64(2*n+1), req.RunID, chat.RoleUser, text), entry(int64(2*n+2), req.RunID, chat.RoleAssistant, got.Text))
			}
			if len(person.asked) != tt.asks || slices.ContainsFunc(person.asked, func(text string) bool { return !strings.Contains(text, "made.txt") }) {
				t.Errorf("asked %q, want %d questions with the file", person.asked, tt.asks)
			}
		})
	}
}
