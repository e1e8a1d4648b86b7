package anthropic

import (
	"encoding/json"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// request is the body of a call.
type request struct {
	Model         string    `json:"model"`
	MaxTokens     int       `json:"max_tokens"`
	System        string    `json:"system,omitempty"`
	Messages      []message `json:"messages"`
	Stream        bool      `json:"stream"`
	Temperature   *float64  `json:"temperature,omitempty"`
	TopP          *float64  `json:"top_p,omitempty"`
	StopSequences []string  `json:"stop_sequences,omitempty"`
	Thinking      *thinking `json:"thinking,omitempty"`
	Metadata      *metadata `json:"metadata,omitempty"`
	Tools         []tool    `json:"tools,omitempty"`
	ToolChoice    *choice   `json:"tool_choice,omitempty"`
}

// message has a string or a list of blocks as its content.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type choice struct {
	Type string `json:"type"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type imageBlock struct {
	Type   string      `json:"type"`
	Source imageSource `json:"source"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // base64
}

type useBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type resultBlock struct {
	Type    string `json:"type"`
	UseID   string `json:"tool_use_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

// thoughtBlock is a thought in the form in which the API sends and expects it.
type thoughtBlock struct {
	Type      string  `json:"type"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature string  `json:"signature,omitempty"`
	Data      string  `json:"data,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// event has the fields of all events of a stream; the type determines which are set.
type event struct {
	Type    string          `json:"type"`
	Index   int             `json:"index"`
	Message started         `json:"message"`
	Delta   delta           `json:"delta"`
	Block   block           `json:"content_block"`
	Usage   usage           `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type started struct {
	Model string `json:"model"`
	Usage usage  `json:"usage"`
}

type delta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	PartialJSON string `json:"partial_json"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	StopReason  string `json:"stop_reason"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
}

type usage struct {
	InputTokens              int `json:"input_tokens"`
	OutputTokens             int `json:"output_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
}

// whole is the answer of a server that does not stream.
type whole struct {
	Type       string          `json:"type"`
	Model      string          `json:"model"`
	Content    []block         `json:"content"`
	StopReason string          `json:"stop_reason"`
	Usage      usage           `json:"usage"`
	Error      json.RawMessage `json:"error"`
}

// reserve returns how many tokens of the window are left for the answer.
func (r *Runner) reserve(params modelhttp.Params) int {
	limit := r.cfg.MaxTokens
	if params.MaxTokens != nil {
		limit = *params.MaxTokens
	}
	return min(limit, r.cfg.ContextWindow/2)
}

// room returns the part of the window that a request may fill.
func (r *Runner) room(req agent.Request, params modelhttp.Params, images toolloop.Images) agent.Room {
	return agent.Room{Window: r.cfg.ContextWindow, Reserve: r.reserve(params) + images.Tokens(), Ratio: r.cfg.Gauge.Ratio(r.model(req), req.Session.String())}
}

// body returns the request and its estimated tokens, which are 0 if it has pictures. The rounds follow the new input, because they answer it.
func (r *Runner) body(req agent.Request, params modelhttp.Params, talk toolloop.Conversation, images toolloop.Images) (out request, estimated int) {
	limit := r.cfg.MaxTokens
	if params.MaxTokens != nil {
		limit = *params.MaxTokens
	}
	room := r.room(req, params, images)
	room.Rounds = talk.Room(room.Ratio)
	system, lines := agent.Conversation(req, r.cfg.System, room)
	out = request{
		Model: r.model(req), MaxTokens: limit, System: system, Stream: true,
		Temperature: params.Temperature, TopP: params.TopP, StopSequences: params.Stop,
	}
	for _, line := range lines {
		out.Messages = append(out.Messages, message{Role: line.Role, Content: line.Text})
	}
	if n := len(lines); n > 0 {
		out.Messages[n-1].Content = content(images.Text(lines[n-1].Text), images)
	}
	for _, round := range talk.Rounds {
		out.Messages = appendRound(out.Messages, req, round)
	}
	for _, spec := range talk.Tools {
		out.Tools = append(out.Tools, tool{Name: spec.Name, Description: spec.Description, InputSchema: spec.Schema})
	}
	if talk.NoCalls && len(out.Tools) > 0 {
		out.ToolChoice = &choice{Type: "none"}
	}
	if tokens := budget(req.Thinking); tokens > 0 {
		out.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
		out.MaxTokens += tokens
		out.Temperature, out.TopP = nil, nil
	}
	if r.cfg.SendUser {
		out.Metadata = &metadata{UserID: req.Session.String()}
	}
	if len(images.List) == 0 {
		estimated = agent.EstimateRequest(system, lines) + talk.Tokens()
	}
	return out, estimated
}

// content returns the new input: a string, or pictures followed by text, as the API recommends.
func content(text string, images toolloop.Images) any {
	if len(images.List) == 0 {
		return text
	}
	blocks := make([]any, 0, len(images.List)+1)
	for _, image := range images.List {
		blocks = append(blocks, imageBlock{Type: "image", Source: imageSource{Type: "base64", MediaType: image.MIMEType, Data: image.Data}})
	}
	return append(blocks, textBlock{Type: "text", Text: text})
}

// appendRound adds the calls of the model, then their results with the messages that arrived meanwhile.
func appendRound(messages []message, req agent.Request, round agent.Round) []message {
	var asked, given []any
	var thoughts []json.RawMessage
	if json.Unmarshal(round.Extra, &thoughts) == nil { // another kind of runner may have recorded something else
		for _, thought := range thoughts {
			asked = append(asked, thought)
		}
	}
	if strings.TrimSpace(round.Text) != "" { // the API refuses blank text
		asked = append(asked, textBlock{Type: "text", Text: round.Text})
	}
	for i, call := range round.Calls {
		result := round.Results[i]
		asked = append(asked, useBlock{Type: "tool_use", ID: call.ID, Name: call.Name, Input: toolloop.Object(call.Args)})
		given = append(given, resultBlock{Type: "tool_result", UseID: call.ID, Content: result.Text, IsError: result.IsError})
	}
	if len(round.Input) > 0 {
		req.Messages = round.Input
		given = append(given, textBlock{Type: "text", Text: agent.Prompt(req)})
	}
	return append(messages, message{Role: chat.RoleAssistant, Content: asked}, message{Role: chat.RoleUser, Content: given})
}

// budget returns how many tokens a level of thinking may cost, 0 for an unknown level. The API's minimum is 1024.
func budget(level string) int {
	switch level {
	case "minimal":
		return 1_024
	case "low":
		return 2_048
	case "medium":
		return 8_192
	case "high":
		return 16_384
	default:
		return 0
	}
}
