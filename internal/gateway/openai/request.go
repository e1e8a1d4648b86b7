package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"laneway/internal/agent"
	"laneway/internal/chat"
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

// request has the supported members of a completion request. Unknown ones are ignored, because clients send many.
type request struct {
	Model    string         `json:"model"`
	Messages []inputMessage `json:"messages"`
	User     *string        `json:"user"`
	// ReasoningEffort is how much the model may think.
	ReasoningEffort *string           `json:"reasoning_effort"`
	Stream          bool              `json:"stream"`
	StreamOptions   streamOptions     `json:"stream_options"`
	N               *int              `json:"n"`
	Tools           []json.RawMessage `json:"tools"`
	Temperature     *float64          `json:"temperature"`
	TopP            *float64          `json:"top_p"`
	MaxTokens       *int              `json:"max_tokens"`
	// MaxCompletionTokens is the newer name of MaxTokens.
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stop                json.RawMessage `json:"stop"`
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
			return prompt{}, fmt.Errorf("messages[%d]: %w", i, err)
		}
	}
	if !endsWithUser(req.Messages) {
		return prompt{}, invalid("messages", "the last message must be from the user; only system and developer messages may follow it")
	}
	p := prompt{model: req.Model, stream: req.Stream, usage: req.StreamOptions.IncludeUsage}
	p.system, p.earlier, p.input = split(req.Messages)
	p.files = filesOf(req.Messages)
	var err error
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
		return errors.New("model is required; GET /v1/models lists what there is")
	case len(req.Messages) == 0 || len(req.Messages) > maxMessages:
		return fmt.Errorf("messages must have 1 to %d entries", maxMessages)
	case len(req.Tools) > 0:
		return invalid("tools", "tools are not supported: agents bring their own")
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

// undone returns the members of both forms that would change the meaning of the answer and have no effect here. A request with one of them is refused; the list
// is in docs/openai.md.
func undone() []string {
	return []string{
		"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "modalities", "presence_penalty", "prompt", "seed", "tool_choice", "top_logprobs",
		"web_search_options",
	}
}

// refuseUndone returns an error for the first member of a body that is in [undone] and has a value other than one that asks for nothing.
func refuseUndone(body []byte) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil // the decoder has read it
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

// endsWithUser reports whether the last message is from the user, apart from instructions that follow it.
func endsWithUser(messages []inputMessage) bool {
	for _, m := range slices.Backward(messages) {
		if m.Role != "system" && m.Role != "developer" {
			return m.Role == chat.RoleUser
		}
	}
	return false
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
	// mostTemperature is that of the API; agents with the runner anthropic take mostTemperatureAnthropic.
	mostTemperature          = 2
	mostTemperatureAnthropic = 1
)

// params returns settings for the runner, or the error that names the first one out of its range. A bound of -1 means no bound, as local programs send it.
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

// checkRange refuses a temperature that is within the range of the API and not within that of the agent's provider.
func (h *Handler) checkRange(c *call, id string) error {
	temperature, _ := c.prompt.params["temperature"].(float64) //nolint:errcheck // absent is 0
	if temperature <= mostTemperatureAnthropic ||
		!slices.ContainsFunc(h.agents.Agents(), func(a agent.Info) bool { return a.ID == id && a.Runner == "anthropic" }) {
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

// decode decodes a JSON object and ignores unknown members. The rules for strings and depth are those of frames.
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
			return invalid(kind.Field, "%s must not be a %s", kind.Field, kind.Value)
		}
		return errors.New("the body is not a JSON object")
	}
	return nil
}
