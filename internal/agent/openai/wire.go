package openai

import (
	"encoding/base64"
	"encoding/json"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

// request is the body of a call.
type request struct {
	Model               string         `json:"model"`
	Messages            []message      `json:"messages"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	TopP                *float64       `json:"top_p,omitempty"`
	MaxTokens           *int           `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int           `json:"max_completion_tokens,omitempty"`
	Stop                []string       `json:"stop,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	User                string         `json:"user,omitempty"`
	Tools               []tool         `json:"tools,omitempty"`
	ToolChoice          string         `json:"tool_choice,omitempty"`
	ResponseFormat      map[string]any `json:"response_format,omitempty"`
}

// message has a string or a list of parts as its content.
type message struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
	// Reasoning are thoughts that an endpoint requires back while a turn continues.
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type part struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// toolCall is a call in an answer, in pieces or whole, and in a conversation.
type toolCall struct {
	Index    int        `json:"index,omitempty"`
	ID       string     `json:"id"`
	Type     string     `json:"type"`
	Function calledFunc `json:"function"`
}

type calledFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chunk is one event of a stream, or the whole answer of an endpoint that does not stream.
type chunk struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        piece  `json:"delta"`
	Message      piece  `json:"message"`
	FinishReason string `json:"finish_reason"`
}

type piece struct {
	Content   string     `json:"content"`
	Refusal   string     `json:"refusal"`
	Reasoning string     `json:"reasoning_content"`
	ToolCalls []toolCall `json:"tool_calls"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// reserve returns how many tokens of the window are left for the answer.
func (r *Runner) reserve(params modelhttp.Params) int {
	if params.MaxTokens != nil {
		return min(*params.MaxTokens, r.cfg.ContextWindow/2)
	}
	return min(answerReserve, r.cfg.ContextWindow/4)
}

// room returns the part of the window that a request may fill.
func (r *Runner) room(req agent.Request, params modelhttp.Params, images toolloop.Images) agent.Room {
	return agent.Room{Window: r.cfg.ContextWindow, Reserve: r.reserve(params) + images.Tokens(), Ratio: r.cfg.Gauge.Ratio(r.model(req), req.Session.String())}
}

// body returns the request and its estimated tokens, which are 0 if it has pictures. The rounds follow the new input, because they answer it.
func (r *Runner) body(req agent.Request, params modelhttp.Params, talk toolloop.Conversation, images toolloop.Images) (out request, estimated int) {
	room := r.room(req, params, images)
	room.Rounds = talk.Room(room.Ratio)
	system, lines := agent.Conversation(req, r.cfg.System, room)
	out = request{
		Model: r.model(req), Stream: true,
		Temperature: params.Temperature, TopP: params.TopP, Stop: params.Stop,
		ReasoningEffort: effort(req.Thinking),
		Tools:           toolsOf(talk), ResponseFormat: params.ResponseFormat,
	}
	if talk.NoCalls && len(out.Tools) > 0 {
		out.ToolChoice = "none"
	}
	if system != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: system})
	}
	for _, line := range lines {
		out.Messages = append(out.Messages, message{Role: line.Role, Content: line.Text})
	}
	if n := len(lines); n > 0 {
		out.Messages[len(out.Messages)-1].Content = content(images.Text(lines[n-1].Text), images)
	}
	for _, round := range talk.Rounds {
		out.Messages = appendRound(out.Messages, req, round)
	}
	if r.newLimit.Load() {
		out.MaxCompletionTokens = params.MaxTokens
	} else {
		out.MaxTokens = params.MaxTokens
	}
	if !r.noUsage.Load() {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if r.cfg.SendUser {
		out.User = req.Session.String()
	}
	if len(images.List) == 0 {
		estimated = agent.EstimateRequest(system, lines) + talk.Tokens()
	}
	return out, estimated
}

// content returns the new input: a string, or text with pictures.
func content(text string, images toolloop.Images) any {
	if len(images.List) == 0 {
		return text
	}
	parts := []part{{Type: "text", Text: text}}
	for _, image := range images.List {
		parts = append(parts, part{Type: "image_url", ImageURL: &imageURL{"data:" + image.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(image.Data)}})
	}
	return parts
}

func toolsOf(talk toolloop.Conversation) []tool {
	var all []tool
	for _, spec := range talk.Tools {
		all = append(all, tool{Type: "function", Function: function{Name: spec.Name, Description: spec.Description, Parameters: spec.Schema}})
	}
	return all
}

// appendRound adds the calls of the model, their results, and the messages that arrived meanwhile.
func appendRound(messages []message, req agent.Request, round agent.Round) []message {
	asked := message{Role: chat.RoleAssistant, Content: round.Text}
	if len(round.Extra) > 0 && json.Unmarshal(round.Extra, &asked.Reasoning) != nil {
		asked.Reasoning = "" // another kind of runner recorded it
	}
	for _, call := range round.Calls {
		asked.ToolCalls = append(asked.ToolCalls, toolCall{
			ID: call.ID, Type: "function", Function: calledFunc{Name: call.Name, Arguments: string(toolloop.Object(call.Args))},
		})
	}
	messages = append(messages, asked)
	for i, call := range round.Calls {
		messages = append(messages, message{Role: "tool", ToolCallID: call.ID, Content: round.Results[i].Text})
	}
	if len(round.Input) > 0 {
		req.Messages = round.Input
		messages = append(messages, message{Role: chat.RoleUser, Content: agent.Prompt(req)})
	}
	return messages
}

// effort returns the levels that the API defines. Other words, such as off, leave the choice to the endpoint: most models
// refuse the field.
func effort(thinking string) string {
	if slices.Contains([]string{"minimal", "low", "medium", "high"}, thinking) {
		return thinking
	}
	return ""
}
