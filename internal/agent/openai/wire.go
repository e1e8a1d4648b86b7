package openai

import (
	"encoding/json"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
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
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chunk is one event of a stream, and also the whole answer of an endpoint that does not stream.
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
	Content string `json:"content"`
	Refusal string `json:"refusal"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

func (r *Runner) body(req agent.Request, params modelhttp.Params) request {
	reserve := answerReserve
	if params.MaxTokens != nil {
		reserve = *params.MaxTokens
	}
	system, lines := agent.Conversation(req, r.cfg.System, r.cfg.ContextWindow, min(reserve, r.cfg.ContextWindow/2))
	out := request{
		Model: r.model(req), Stream: true,
		Temperature: params.Temperature, TopP: params.TopP, Stop: params.Stop,
		ReasoningEffort: effort(req.Thinking),
	}
	if system != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: system})
	}
	for _, line := range lines {
		out.Messages = append(out.Messages, message{Role: line.Role, Content: line.Text})
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
	return out
}

// effort passes on the levels that the API knows. Other words, such as off, leave the choice to the endpoint: most models
// refuse the field altogether.
func effort(thinking string) string {
	if slices.Contains([]string{"minimal", "low", "medium", "high"}, thinking) {
		return thinking
	}
	return ""
}
