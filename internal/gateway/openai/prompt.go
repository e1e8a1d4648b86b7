package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
)

// form is one of the two forms of the API: [completions] and [responses].
type form interface {
	// name returns its name in metrics, the log and errors.
	name() string
	// formatMember returns the member of a request that has the format of the answer.
	formatMember() string
	// read parses the body of a request. Its errors are sentences for the client.
	read(body []byte) (prompt, error)
	// whole returns the answer to a request that is not streamed.
	whole(a *run, end chat.RunEnd) any
	// voice returns the writer for the events of a streamed answer.
	voice(out *eventStream, a *run) voice
}

// prompt is the content of a request, in either form.
type prompt struct {
	model  string
	stream bool
	usage  bool // a stream of completions reports the usage
	system string
	// earlier is the conversation in the request, input the new messages. keep: earlier is not in a transcript yet, and must be added to
	// it.
	earlier []chat.TranscriptEntry
	input   string
	keep    bool
	files   []inputFile // of all messages of the user
	// conversation names a session, previous is the id of the response to continue; at most one of them is set.
	conversation *string
	previous     string
	thinking     string
	params       map[string]any
	format       map[string]any  // the format of the answer, as in a completion request; nil = text
	raw          responseRequest // the members that an answer in the form of responses repeats
}

// inputMessage is a message of a request.
type inputMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	text    string
	files   []inputFile
}

// contentPart is a part of a message in either form: in completions, the members of a file are one level deeper.
type contentPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ImageURL json.RawMessage `json:"image_url"` // an object with a url, or the url
	File     *filePart       `json:"file"`
	filePart
}

// read parses the content of a message.
func (m *inputMessage) read() error {
	switch m.Role {
	case "system", "developer", chat.RoleUser, chat.RoleAssistant:
	default:
		return errors.New("role must be system, developer, user or assistant")
	}
	content := bytes.TrimSpace(m.Content)
	if len(content) == 0 || string(content) == "null" {
		if m.Role == chat.RoleAssistant { // an answer that was only a tool call
			return nil
		}
		return errors.New("content is required")
	}
	if content[0] == '"' {
		return json.Unmarshal(content, &m.text)
	}
	var parts []contentPart
	if err := json.Unmarshal(content, &parts); err != nil {
		return errors.New("content must be a string or a list of parts")
	}
	return m.readParts(parts)
}

func (m *inputMessage) readParts(parts []contentPart) error {
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		switch {
		case p.Type == "text", p.Type == "input_text", p.Type == "output_text":
			texts = append(texts, p.Text)
		case p.Type == "refusal" && m.Role == chat.RoleAssistant:
			texts = append(texts, p.Refusal)
		case !slices.Contains([]string{"image_url", "input_image", "file", "input_file"}, p.Type):
			return fmt.Errorf("a part of type %s is not supported, only text, images and files", quoted(p.Type))
		case m.Role != chat.RoleUser:
			return errors.New("only messages of the user may have images and files")
		default:
			file, err := p.inputFile()
			if err != nil {
				return err
			}
			m.files = append(m.files, file)
		}
	}
	m.text = strings.Join(texts, "\n")
	return nil
}

func quoted(s string) string { return fmt.Sprintf("%q", fault.CutName(s)) }

// split divides messages into the system prompt, the earlier conversation, and the new input: everything after the last answer.
func split(messages []inputMessage) (system string, earlier []chat.TranscriptEntry, input string) {
	var rules, fresh []string
	last := -1
	for i, m := range slices.Backward(messages) {
		if m.Role == chat.RoleAssistant {
			last = i
			break
		}
	}
	for i, m := range messages {
		switch {
		case m.Role == "system" || m.Role == "developer":
			rules = append(rules, m.text)
		case i > last:
			if m.text != "" {
				fresh = append(fresh, m.text)
			}
		default:
			text := m.text + strings.Repeat("\n[attachment]", len(m.files))
			earlier = append(earlier, chat.TranscriptEntry{Role: m.Role, Text: text, Tokens: agent.EstimateTokens(text)})
		}
	}
	return strings.Join(rules, "\n\n"), earlier, strings.Join(fresh, "\n\n")
}

// filesOf returns the files of all messages, in order. The model receives those of earlier messages, too, because a client repeats them.
func filesOf(messages []inputMessage) []inputFile {
	var all []inputFile
	for _, m := range messages {
		all = append(all, m.files...)
	}
	return all
}
