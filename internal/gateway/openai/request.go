package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/strictjson"
)

const (
	channel     = "api"
	maxMessages = 500
	maxUser     = 128 // maximum length of a session name in characters

	headerSession = "X-Laneway-Session-Key"
	headerDetach  = "X-Laneway-Detach"
	headerRun     = "X-Laneway-Run-Id"
	headerKey     = "Idempotency-Key"
)

// request has the supported members of a completion request. Unknown ones are ignored, because
// clients send many.
type request struct {
	Model    string         `json:"model"`
	Messages []inputMessage `json:"messages"`
	User     *string        `json:"user"`
	// ReasoningEffort is how much the model may think.
	ReasoningEffort *string         `json:"reasoning_effort"`
	Stream          bool            `json:"stream"`
	StreamOptions   streamOptions   `json:"stream_options"`
	N               *int            `json:"n"`
	Tools           []clientTool    `json:"tools"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	// ParallelToolCalls is false when an answer may have one call at most.
	ParallelToolCalls *bool    `json:"parallel_tool_calls"`
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	MaxTokens         *int     `json:"max_tokens"`
	// MaxCompletionTokens is the newer name of MaxTokens.
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stop                json.RawMessage `json:"stop"`
	Store               *bool           `json:"store"`
	ResponseFormat      *responseFormat `json:"response_format"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// read returns the prompt of a completion request.
func (completions) read(body []byte) (prompt, error) {
	var req request
	if err := decode(body, &req); err != nil {
		return prompt{}, err
	}
	if err := refuseUndone(body); err != nil {
		return prompt{}, err
	}
	if err := req.check(); err != nil {
		return prompt{}, err
	}
	for i := range req.Messages {
		if err := req.Messages[i].read(); err != nil {
			return prompt{}, invalid("messages", "messages[%d]: %s", i, err)
		}
	}
	p := prompt{model: req.Model, stream: req.Stream, usage: req.StreamOptions.IncludeUsage, messages: req.Messages, member: "messages", passing: req.Store != nil && !*req.Store}
	var err error
	if p.client, err = toolsOf(req.Tools, req.ToolChoice, req.ParallelToolCalls); err != nil {
		return prompt{}, err
	}
	if p.thinking, err = effort("reasoning_effort", req.ReasoningEffort); err != nil {
		return prompt{}, err
	}
	if p.params, err = req.params(); err == nil {
		p.format, err = req.ResponseFormat.param()
	}
	return p, err
}

func (req *request) check() error {
	switch {
	case req.Model == "":
		return invalid("model", "model is required; GET /v1/models lists what there is")
	case len(req.Messages) == 0 || len(req.Messages) > maxMessages:
		return invalid("messages", "messages must have 1 to %d entries", maxMessages)
	case req.N != nil && *req.N != 1:
		return invalid("n", "n is %d; it must be 1", *req.N)
	default:
		return nil
	}
}

// checkName returns an error for a name that cannot be the last part of a session key.
func checkName(member, name string) error {
	if n := utf8.RuneCountInString(name); n < 1 || n > maxUser || strings.Contains(name, ":") || strings.ContainsFunc(name, chat.Unprintable) {
		return fmt.Errorf("%s must have 1 to %d printable characters and no ':'", member, maxUser)
	}
	return nil
}

// invalid returns the error for a member that cannot be used, which it names in param.
func invalid(member, format string, args ...any) error {
	return chat.Errorf(chat.CodeInvalid, format, args...).With("param", member)
}

// undone returns the members of both forms that would change the meaning of the answer and have no
// effect here. A request with one of them is refused; the list is in docs/openai-reference.md.
func undone() []string {
	return []string{
		"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "presence_penalty", "prompt", "seed", "tool_choice", "top_logprobs",
		"web_search_options",
	}
}

// refuseUndone returns an error for the first member of a body that is in [undone] and has a value
// other than one that asks for nothing.
func refuseUndone(body []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil //nolint:nilerr // the decoder has read it
	}
	for _, name := range undone() {
		raw, given := members[name]
		value := strings.Join(strings.Fields(string(raw)), "")
		asksNothing := slices.Contains([]string{"null", "false", "0", "0.0", "[]", "{}", `"none"`, `"auto"`, `["text"]`}, value)
		if given && (!asksNothing || name == "seed" && value != "null") {
			return invalid(name, "%s is not supported; leave it out", name)
		}
	}
	return nil
}

// effort returns how much the model may think, "" if the request does not say it.
func effort(member string, value *string) (string, error) {
	if value == nil {
		return "", nil
	}
	if levels := []string{"none", "minimal", "low", "medium", "high"}; !slices.Contains(levels, *value) {
		return "", invalid(member, "%s is %s; it must be one of %s", member, quoted(*value), strings.Join(levels, ", "))
	}
	return *value, nil
}

// params returns the settings for the runner.
func (req *request) params() (map[string]any, error) {
	stop, err := stopTexts(req.Stop)
	if err != nil {
		return nil, err
	}
	out, err := params(req.Temperature, req.TopP, bound{"max_tokens", req.MaxTokens}, bound{"max_completion_tokens", req.MaxCompletionTokens})
	if err == nil && len(stop) > 0 {
		out["stop"] = stop
	}
	if err == nil && req.User != nil && *req.User != "" {
		if utf8.RuneCountInString(*req.User) > maxUser {
			return nil, invalid("user", "user has more than %d characters", maxUser)
		}
		out["user"] = *req.User
	}
	return out, err
}

// bound is a member with the largest number of tokens of an answer.
type bound struct {
	member string
	tokens *int
}

const (
	mostTokens = 10_000_000 // of an answer
	mostStops  = 16
	// mostTemperature is that of the API; agents with the runner anthropic take
	// mostTemperatureAnthropic.
	mostTemperature          = 2
	mostTemperatureAnthropic = 1
)

// params returns settings for the runner, or the error that names the first one out of its range. A
// bound of -1 means no bound, as local programs send it.
func params(temperature, topP *float64, bounds ...bound) (map[string]any, error) {
	out := map[string]any{}
	for _, n := range []struct {
		member string
		value  *float64
		most   float64
	}{{"temperature", temperature, mostTemperature}, {"top_p", topP, 1}} {
		switch {
		case n.value == nil:
		case *n.value < 0 || *n.value > n.most:
			return nil, invalid(n.member, "%s is %v; it must be a number from 0 to %v", n.member, *n.value, n.most)
		default:
			out[n.member] = *n.value
		}
	}
	for _, b := range bounds {
		switch {
		case b.tokens == nil || *b.tokens == -1:
		case *b.tokens < 1 || *b.tokens > mostTokens:
			return nil, invalid(b.member, "%s is %d; it must be from 1 to %d, or -1 for no bound", b.member, *b.tokens, mostTokens)
		default:
			out["max_tokens"] = *b.tokens
		}
	}
	return out, nil
}

// checkRange refuses a temperature that is within the range of the API and not within that of the
// agent's provider.
func (h *Handler) checkRange(c *call, id string) error {
	temperature, _ := c.prompt.params["temperature"].(float64) // absent is 0
	if temperature <= mostTemperatureAnthropic ||
		!slices.ContainsFunc(h.runs.Agents(), func(a agent.Info) bool { return a.ID == id && a.Runner == "anthropic" }) {
		return nil
	}
	return invalid("temperature", "temperature is %v; for the agent %s it must be a number from 0 to %d", temperature, quoted(id), mostTemperatureAnthropic)
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
		return nil, invalid("stop", "stop must be a string or a list of strings")
	}
	if len(many) > mostStops {
		return nil, invalid("stop", "stop has %d strings; the limit is %d", len(many), mostStops)
	}
	return many, nil
}

// decode decodes a JSON object and ignores unknown members. The rules for strings and depth are
// those of frames.
func decode(body []byte, into any) error {
	if !utf8.Valid(body) { // the decoder would replace it by U+FFFD
		return errors.New("the body is not UTF-8")
	}
	if err := strictjson.Inspect(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			return invalid(kind.Field, "%s must be %s, not %s", kind.Field, named(kind.Type), kind.Value)
		}
		return errors.New("the body is not a JSON object")
	}
	return nil
}

// named is the JSON type of a member in words.
func named(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

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
	// messages are those of the request, which its member has; [prompt.arrange] makes of them the
	// following. instructions precede those of the messages.
	messages             []inputMessage
	member, instructions string
	system               string
	// client are the tools of the client and its calls after the last message of the user; nil = it
	// has neither.
	client *chat.ClientTools
	// earlier is the conversation in the request, input the new messages. keep: earlier is not in a
	// transcript yet, and must be added to it.
	earlier []chat.TranscriptEntry
	input   string
	keep    bool
	files   []inputFile // of all messages of the user
	// conversation names a session, previous is the id of the response to continue; at most one of
	// them is set.
	conversation *string
	previous     string
	passing      bool // the session is deleted after the end of the request
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
	// ToolCalls are calls of the client's tools in a message of the assistant, and ToolCallID names
	// the call of which a message with the role tool is the result.
	ToolCalls  []inputCall `json:"tool_calls"`
	ToolCallID string      `json:"tool_call_id"`
	calls      []chat.ToolCall
	// reference is the id of an item that the message is, instead of a content.
	reference string
	outside   bool // the text comes from outside
}

// contentPart is a part of a message in either form: in completions, the members of a file are one
// level deeper.
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
	case roleTool:
		if m.ToolCallID == "" {
			return errors.New("a message with the role tool needs a tool_call_id")
		}
	default:
		return errors.New("role must be system, developer, user, assistant or tool")
	}
	for _, call := range m.ToolCalls {
		m.calls = append(m.calls, chat.ToolCall{ID: call.ID, Name: call.Function.Name, Args: call.Function.Arguments, Extra: string(call.Extra)})
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

// split divides messages into the system prompt, the earlier conversation, and the new input:
// everything after the last answer.
func split(messages []inputMessage) (system string, earlier []chat.TranscriptEntry, input string) {
	var rules, fresh []string
	last := -1
	for i, m := range slices.Backward(messages) {
		if m.Role == chat.RoleAssistant || m.Role == roleTool {
			last = i
			break
		}
	}
	called := map[string]chat.ToolCall{}
	for i, m := range messages {
		switch {
		case m.Role == "system" || m.Role == "developer":
			rules = append(rules, m.text)
		case i > last:
			if m.text != "" {
				fresh = append(fresh, m.text)
			}
		case m.Role == roleTool:
			call := called[m.ToolCallID]
			text := fmt.Sprintf("The tool %s was called with %s and returned: %s", call.Name, call.Args, m.text)
			earlier = append(earlier, chat.TranscriptEntry{Role: chat.RoleSystem, Text: text, Tokens: agent.EstimateTokens(text), StopReason: chat.StopForeign, Outside: true})
		default:
			for _, call := range m.calls {
				called[call.ID] = call
			}
			text := m.text + strings.Repeat("\n[attachment]", len(m.files))
			earlier = append(earlier, chat.TranscriptEntry{Role: m.Role, Text: text, Tokens: agent.EstimateTokens(text), Outside: m.outside})
		}
	}
	return strings.Join(rules, "\n\n"), earlier, strings.Join(fresh, "\n\n")
}

// filesOf returns the files of all messages, in order. The model receives those of earlier
// messages, too, because a client repeats them.
func filesOf(messages []inputMessage) []inputFile {
	var all []inputFile
	for _, m := range messages {
		all = append(all, m.files...)
	}
	return all
}

// The types of a response format.
const (
	formatText   = "text"
	formatObject = "json_object"
	formatSchema = "json_schema"
)

// paramFormat is the name of the format among the parameters of a turn, see package modelhttp.
const paramFormat = "response_format"

// responseFormat is the format that a client requests for the answer.
type responseFormat struct {
	Type       string          `json:"type"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// param returns the format for the runner; nil = text.
func (f *responseFormat) param() (map[string]any, error) {
	if f == nil || f.Type == formatText {
		return nil, nil // text is no format
	}
	out := map[string]any{"type": f.Type}
	switch f.Type {
	case formatObject:
	case formatSchema:
		var schema map[string]any
		if json.Unmarshal(f.JSONSchema, &schema) != nil || schema == nil {
			return nil, fmt.Errorf("%s of the type %s must have an object %s", paramFormat, formatSchema, formatSchema)
		}
		out[formatSchema] = schema
	default:
		return nil, fmt.Errorf("%s.type %s is not supported; there are %s, %s and %s", paramFormat, quoted(f.Type), formatText, formatObject, formatSchema)
	}
	return out, nil
}

// textFormat is the same in a request for a response, where the schema is one level higher.
type textFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// format returns the format as in a completion request.
func (f *textFormat) format() (*responseFormat, error) {
	if f == nil {
		return nil, nil // text is no format
	}
	inner := *f
	inner.Type = ""
	raw, err := json.Marshal(struct {
		textFormat

		Type string `json:"type,omitempty"`
	}{textFormat: inner})
	if err != nil {
		return nil, fmt.Errorf("text.format: %w", err)
	}
	return &responseFormat{Type: f.Type, JSONSchema: raw}, nil
}

// checkFormat refuses a format that the agent does not support because its runner does not pass it
// to a model.
func (h *Handler) checkFormat(c *call, id string) error {
	if c.prompt.format == nil || slices.ContainsFunc(h.runs.Agents(), func(a agent.Info) bool { return a.ID == id && a.Runner == "openai" }) {
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, "the agent %s cannot be held to a response format, only agents with the runner openai can; ask for the form in the message", quoted(id)).
		With("param", c.form.formatMember())
}
