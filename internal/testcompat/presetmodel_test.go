//go:build compat

package testcompat

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"laneway/internal/testmodel"
)

// The orders: a message that contains one makes the model request one tool call.
const (
	presetOrder       = "run-the-command-now"
	presetDeniedOrder = "run-the-forbidden-command-now"
	presetSlowOrder   = "run-the-slow-command-now" // the command does not end
	presetReadOrder   = "read-the-picture-now"
	presetSendOrder   = "send-the-file-now"
)

const presetAnswer = "The word is apple."

var (
	// outputOf is the directory for files that the prompt names.
	outputOf = regexp.MustCompile(`write them to the directory (/[^"\\\s]+)`)
	// pictureOf is the path of the picture that the prompt of a command agent names.
	pictureOf = regexp.MustCompile(`dot\.png\\" of the message is (/[^"\\\s]+)`)
)

// presetModel answers each message with the same sentence. It requests the tool call of each order once.
type presetModel struct {
	mu   sync.Mutex
	done map[string]bool // the tool that was called, by order
	// source is a file that the commands of presetOrder and presetDeniedOrder copy, forbidden the copy made by the second one. They copy instead of redirecting an echo,
	// because OpenClaw refuses a redirection, which it cannot bind to a program, without a question.
	source, forbidden string
	// escalates makes the model request commands outside of Codex's sandbox, for which Codex asks the person.
	escalates bool
}

func startPresetModel(t *testing.T) (*testmodel.Server, *presetModel) {
	t.Helper()
	dir := t.TempDir()
	model, orders := testmodel.Start(t), &presetModel{done: map[string]bool{}, source: dir + "/source.txt", forbidden: dir + "/forbidden.txt"}
	if err := os.WriteFile(orders.source, []byte("made"), 0o600); err != nil {
		t.Fatal(err)
	}
	model.Answer(orders.answer)
	return model, orders
}

func (m *presetModel) answer(c testmodel.Call) testmodel.Reply {
	if c.Protocol == testmodel.Gemini && !c.Stream { // the agent uses this request to choose a model
		return testmodel.Reply{Pieces: []string{`{"reasoning":"none","model_choice":"flash"}`}, Whole: true, InputTokens: 3, OutputTokens: 4}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, order := range []string{presetOrder, presetDeniedOrder, presetSlowOrder, presetReadOrder, presetSendOrder} {
		if !bytes.Contains(c.Body, []byte(order)) {
			continue
		}
		name, args := m.call(order, c)
		call := order + "-" + name
		if name == "" || m.done[call] {
			continue
		}
		raw, err := json.Marshal(args)
		if err != nil {
			panic(err)
		}
		m.done[call] = true
		return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "call_" + order, Name: name, Args: string(raw)}}, InputTokens: 3, OutputTokens: 4}
	}
	return testmodel.Reply{Pieces: []string{"The word ", "is apple."}, InputTokens: 3, OutputTokens: 4}
}

// call returns the tool call of an order, and "" when the request offers no tool for it.
func (m *presetModel) call(order string, c testmodel.Call) (name string, args map[string]any) {
	last := func(of *regexp.Regexp) string {
		found := of.FindAllSubmatch(c.Body, -1)
		if len(found) == 0 {
			return ""
		}
		return string(found[len(found)-1][1])
	}
	switch order {
	case presetOrder:
		return m.shellCall(c.Tools, "cp "+m.source+" "+last(outputOf)+"/made.txt")
	case presetDeniedOrder:
		return m.shellCall(c.Tools, "cp "+m.source+" "+m.forbidden)
	case presetSlowOrder:
		return m.shellCall(c.Tools, presetSlow)
	case presetReadOrder:
		if slices.Contains(c.Tools, "Read") {
			return "Read", map[string]any{"file_path": last(pictureOf)}
		}
	case presetSendOrder:
		if i := slices.IndexFunc(c.Tools, func(tool string) bool { return strings.HasSuffix(tool, "send_file") }); i >= 0 {
			return c.Tools[i], map[string]any{"name": "sent.txt", "text": "sent"}
		}
		// Qwen Code offers the tools of MCP servers only after a search for them.
		if slices.Contains(c.Tools, "tool_search") {
			return "tool_search", map[string]any{"query": "send_file"}
		}
	}
	return "", nil
}

// shellCall returns the call that runs a command with the agent's own tool.
func (m *presetModel) shellCall(tools []string, command string) (name string, args map[string]any) {
	for _, name := range []string{"Bash", "bash", "run_shell_command", "exec", "exec_command"} {
		switch {
		case !slices.Contains(tools, name):
		case name != "exec_command":
			return name, map[string]any{"command": command, "description": "Make a file"}
		case m.escalates:
			return name, map[string]any{"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Make a file?"}
		default:
			return name, map[string]any{"cmd": command}
		}
	}
	return "", nil
}
