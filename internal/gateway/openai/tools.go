package openai

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// roleTool is the role of the results of calls.
const roleTool = "tool"

// mostTools is the largest number of tools of a request, as in the API.
const mostTools = 128

// clientTool is a tool of a client in either form: in completions, its members are one level
// deeper.
type clientTool struct {
	Type     string        `json:"type"`
	Function *toolFunction `json:"function"`
	toolFunction
}

type toolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// inputCall is a call of a client's tool in a message of the assistant.
type inputCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	Extra extraContent `json:"extra_content"`
}

// extraContent is what the client must send back with a call, as Gemini's clients know it: a JSON
// object; "" = nothing.
type extraContent string

// MarshalJSON implements json.Marshaler.
func (e extraContent) MarshalJSON() ([]byte, error) { return []byte(e), nil }

// UnmarshalJSON implements json.Unmarshaler. Another value than an object is ignored.
func (e *extraContent) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '{' {
		*e = extraContent(raw)
	}
	return nil
}

// madeCall is the same in an answer. Index is that of a stream.
type madeCall struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function madeFunc `json:"function"`

	Extra extraContent `json:"extra_content,omitempty"`
}

type madeFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// madeCalls returns the calls of an answer in the form of completions.
func madeCalls(calls []chat.ToolCall, streamed bool) []madeCall {
	var out []madeCall
	for i, call := range calls {
		made := madeCall{ID: call.ID, Type: "function", Function: madeFunc{call.Name, call.Args}, Extra: extraContent(call.Extra)}
		if streamed {
			made.Index = &i
		}
		out = append(out, made)
	}
	return out
}

// toolName matches the names that the endpoints of all models take.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// toolsOf returns the tools of a request; nil = it has none.
func toolsOf(tools []clientTool, choice json.RawMessage, parallel *bool) (*chat.ClientTools, error) {
	if len(tools) == 0 {
		return nil, nil // no tools are no error
	}
	if len(tools) > mostTools {
		return nil, invalid("tools", "tools has %d tools; the limit is %d", len(tools), mostTools)
	}
	out := &chat.ClientTools{NoCalls: strings.TrimSpace(string(choice)) == `"none"`, OneCall: parallel != nil && !*parallel}
	for i, t := range tools {
		f := t.toolFunction
		if t.Function != nil {
			f = *t.Function
		}
		switch {
		case t.Type != "function":
			return nil, invalid("tools", "tools[%d] has the type %s; only function is supported", i, quoted(t.Type))
		case !toolName.MatchString(f.Name):
			return nil, invalid("tools", "tools[%d] has the name %s; it must have 1 to 64 letters, digits, _ and -", i, quoted(f.Name))
		case len(f.Parameters) == 0 || string(f.Parameters) == "null":
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		case f.Parameters[0] != '{':
			return nil, invalid("tools", "tools[%d].parameters must be an object", i)
		}
		out.Tools = append(out.Tools, chat.ClientTool{Name: f.Name, Description: f.Description, Schema: f.Parameters})
	}
	return out, nil
}

// arrange divides the messages of a request: the instructions, the earlier conversation, the new
// input, and the client's calls that answer that input.
func (p *prompt) arrange() error {
	user, ends := -1, ""
	for i, m := range p.messages {
		if m.Role != "system" && m.Role != "developer" {
			ends = m.Role
		}
		if m.Role == chat.RoleUser {
			user = i
		}
	}
	if user < 0 || ends == chat.RoleAssistant {
		return invalid(p.member, "the last message must be from the user, or the result of a tool; only system and developer messages may follow it")
	}
	head, tail := p.messages, []inputMessage(nil)
	if ends == roleTool {
		head, tail = p.messages[:user+1], p.messages[user+1:]
	}
	rounds, rules, err := p.rounds(tail)
	if err != nil {
		return err
	}
	if len(rounds) > 0 {
		if p.client == nil {
			p.client = &chat.ClientTools{}
		}
		p.client.Rounds = rounds
	}
	p.system, p.earlier, p.input = split(append(slices.Clip(head), rules...))
	if p.instructions != "" {
		p.system = p.instructions + separated(p.system)
	}
	p.files = filesOf(p.messages)
	return nil
}

// rounds returns the calls that follow the last message of the user, with their results, and the
// instructions among them.
func (p *prompt) rounds(tail []inputMessage) (rounds []chat.Round, rules []inputMessage, err error) {
	said := ""
	places := map[string]func(*chat.ToolResult){}
	for _, m := range tail {
		switch {
		case m.Role == roleTool:
			put := places[m.ToolCallID]
			if put == nil {
				return nil, nil, invalid(p.member, "the result of the tool call %s follows no such call", quoted(m.ToolCallID))
			}
			put(&chat.ToolResult{Text: m.text, Foreign: true})
		case m.Role != chat.RoleAssistant:
			rules = append(rules, m)
		case len(m.calls) == 0:
			said += m.text
		default:
			round := chat.Round{Number: len(rounds) + 1, Text: said + m.text, Calls: m.calls, Results: make([]*chat.ToolResult, len(m.calls))}
			said, places = "", map[string]func(*chat.ToolResult){}
			for i, call := range m.calls {
				places[call.ID] = func(r *chat.ToolResult) { round.Results[i] = r }
			}
			rounds = append(rounds, round)
		}
	}
	for _, round := range rounds {
		if i := slices.Index(round.Results, nil); i >= 0 {
			return nil, nil, invalid(p.member, "the tool call %s has no result; send one for each call", quoted(round.Calls[i].ID))
		}
	}
	return rounds, rules, nil
}

// checkTools refuses tools of a client with a conversation, whose later turns would have the tools
// of the agent, and for an agent without a model that could call them.
func (h *Handler) checkTools(c *call, id string) error {
	if c.prompt.client == nil {
		return nil
	}
	member := "tools"
	if len(c.prompt.client.Tools) == 0 {
		member = c.prompt.member
	}
	if c.header.Get(headerSession) != "" || c.prompt.conversation != nil || c.prompt.previous != "" {
		return invalid(member, "tools of a client work only in requests without a conversation: leave %s, conversation and previous_response_id out, and send all messages", headerSession)
	}
	if !slices.ContainsFunc(h.runs.Agents(), func(a agent.Info) bool { return a.ID == id && (a.Runner == "openai" || a.Runner == "anthropic") }) {
		return invalid(member, "the agent %s takes no tools of clients, only agents with the runner openai or anthropic do", quoted(id))
	}
	return nil
}

// callItems returns the calls of an answer as items of a response.
func (r response) callItems(calls []chat.ToolCall) []outputItem {
	var items []outputItem
	for i, call := range calls {
		items = append(items, outputItem{
			Type: "function_call", ID: fmt.Sprintf("%s%s_%d", callPrefix, r.ID[len(responsePrefix):], i), Status: stateCompleted, CallID: call.ID, Name: call.Name, Arguments: &call.Args,
			Extra: extraContent(call.Extra),
		})
	}
	return items
}
