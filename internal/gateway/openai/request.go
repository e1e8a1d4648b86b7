package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

const (
	methodName  = "chat.completions" // in metrics, the log and refusals
	channel     = "api"
	maxMessages = 500
	maxUser     = 128 // characters

	headerSession = "X-Laneway-Session-Key"
	headerDetach  = "X-Laneway-Detach"
	headerRun     = "X-Laneway-Run-Id"
	headerKey     = "Idempotency-Key"
)

// request has the members of a completion request that matter. Unknown ones are ignored, as clients send many.
type request struct {
	Model         string            `json:"model"`
	Messages      []inputMessage    `json:"messages"`
	User          *string           `json:"user"`
	Stream        bool              `json:"stream"`
	StreamOptions streamOptions     `json:"stream_options"`
	N             *int              `json:"n"`
	Tools         []json.RawMessage `json:"tools"`
	Temperature   *float64          `json:"temperature"`
	TopP          *float64          `json:"top_p"`
	MaxTokens     *int              `json:"max_tokens"`
	// MaxCompletionTokens is the newer name of MaxTokens.
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stop                json.RawMessage `json:"stop"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type inputMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	text    string
}

type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func readRequest(body []byte) (request, error) {
	var req request
	if err := decode(body, &req); err != nil {
		return req, err
	}
	if err := req.check(); err != nil {
		return req, err
	}
	for i := range req.Messages {
		if err := req.Messages[i].read(); err != nil {
			return req, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if last := req.Messages[len(req.Messages)-1]; last.Role != chat.RoleUser {
		return req, errors.New("the last message must be from the user")
	}
	return req, nil
}

func (req *request) check() error {
	switch {
	case req.Model == "":
		return errors.New("model is required; GET /v1/models lists what there is")
	case len(req.Messages) == 0 || len(req.Messages) > maxMessages:
		return fmt.Errorf("messages must have 1 to %d entries", maxMessages)
	case len(req.Tools) > 0:
		return errors.New("tools are not supported: agents bring their own")
	case req.N != nil && *req.N != 1:
		return errors.New("n must be 1")
	case req.User != nil:
		return checkUser(*req.User)
	default:
		return nil
	}
}

func checkUser(user string) error {
	if n := utf8.RuneCountInString(user); n < 1 || n > maxUser || strings.Contains(user, ":") || strings.ContainsFunc(user, chat.Unprintable) {
		return fmt.Errorf("user must have 1 to %d printable characters and no ':'", maxUser)
	}
	return nil
}

func (m *inputMessage) read() error {
	switch m.Role {
	case "system", "developer", chat.RoleUser, chat.RoleAssistant:
	default:
		return errors.New("role must be system, developer, user or assistant")
	}
	content := bytes.TrimSpace(m.Content)
	if len(content) == 0 || string(content) == "null" {
		if m.Role == chat.RoleAssistant { // an answer that was a tool call only
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
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("a part of type %s is not supported, only text", quoted(p.Type))
		}
		texts = append(texts, p.Text)
	}
	m.text = strings.Join(texts, "\n")
	return nil
}

func quoted(s string) string { return fmt.Sprintf("%q", fault.CutName(s)) }

// split divides the messages into the system prompt, the earlier conversation, and the new input: everything after the last answer.
func (req *request) split() (system string, earlier []chat.TranscriptEntry, input string) {
	var rules, fresh []string
	last := -1
	for i, m := range req.Messages {
		if m.Role == chat.RoleAssistant {
			last = i
		}
	}
	for i, m := range req.Messages {
		switch {
		case m.Role == "system" || m.Role == "developer":
			rules = append(rules, m.text)
		case i > last:
			fresh = append(fresh, m.text)
		default:
			earlier = append(earlier, chat.TranscriptEntry{Role: m.Role, Text: m.text, Tokens: agent.EstimateTokens(m.text)})
		}
	}
	return strings.Join(rules, "\n\n"), earlier, strings.Join(fresh, "\n\n")
}

// params are the settings for the runner.
func (req *request) params() (map[string]any, error) {
	out := map[string]any{}
	if req.Temperature != nil {
		out["temperature"] = *req.Temperature
	}
	if req.TopP != nil {
		out["top_p"] = *req.TopP
	}
	for _, n := range []*int{req.MaxTokens, req.MaxCompletionTokens} {
		if n != nil {
			out["max_tokens"] = *n
		}
	}
	stop, err := stopTexts(req.Stop)
	if err != nil {
		return nil, err
	}
	if len(stop) > 0 {
		out["stop"] = stop
	}
	if len(out) == 0 {
		return nil, nil //nolint:nilnil // no settings are no error
	}
	return out, nil
}

func stopTexts(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err != nil {
		return nil, errors.New("stop must be a text or a list of texts")
	}
	return many, nil
}

// decode reads a JSON object whose unknown members do not matter. The rules for strings and depth are those of the frames.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) { // the decoder would put U+FFFD in its place
		return errors.New("the body is not UTF-8")
	}
	if err := strictjson.Inspect(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return errors.New(kind.Field + " must not be a " + kind.Value)
		}
		return errors.New("the body is not a JSON object")
	}
	return nil
}
