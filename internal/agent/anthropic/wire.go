package anthropic

import (
	"encoding/json"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
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
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// event is every event of a stream; which fields are filled depends on its type.
type event struct {
	Type    string          `json:"type"`
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
	Type       string `json:"type"`
	Text       string `json:"text"`
	StopReason string `json:"stop_reason"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
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

func (r *Runner) body(req agent.Request, params modelhttp.Params) request {
	limit := r.cfg.MaxTokens
	if params.MaxTokens != nil {
		limit = *params.MaxTokens
	}
	system, lines := agent.Conversation(req, r.cfg.System, r.cfg.ContextWindow, min(limit, r.cfg.ContextWindow/2))
	out := request{
		Model: r.model(req), MaxTokens: limit, System: system, Stream: true,
		Temperature: params.Temperature, TopP: params.TopP, StopSequences: params.Stop,
	}
	for _, line := range lines {
		out.Messages = append(out.Messages, message{Role: line.Role, Content: line.Text})
	}
	if tokens := budget(req.Thinking); tokens > 0 {
		out.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
		out.MaxTokens += tokens
		out.Temperature, out.TopP = nil, nil
	}
	if r.cfg.SendUser {
		out.Metadata = &metadata{UserID: req.Session.String()}
	}
	return out
}

// budget is how many tokens a level of thinking may cost; unknown levels think as the API likes. The API's minimum is 1024.
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
