package anthropic

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/model"
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
	OutputConfig  *output   `json:"output_config,omitempty"`
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

type resultBlock struct {
	Type    string `json:"type"`
	UseID   string `json:"tool_use_id"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
}

type output struct {
	Effort string `json:"effort"`
}

type metadata struct {
	UserID string `json:"user_id"`
}

// body returns the JSON of a request.
func body(d *model.Draft) any {
	out := request{Model: d.Model, MaxTokens: *d.Params.MaxTokens, System: d.System, Stream: true}
	if d.Params.Temperature != nil && d.Can(model.Temperature) {
		out.Temperature = d.Params.Temperature
	}
	if d.Params.TopP != nil && d.Can(model.TopP) {
		out.TopP = d.Params.TopP
	}
	if len(d.Params.Stop) > 0 && d.Can(model.Stop) {
		out.StopSequences = d.Params.Stop
	}
	for i, line := range d.Lines {
		said := any(line.Text)
		if i == len(d.Lines)-1 {
			said = content(line.Text, d.Images)
		}
		out.Messages = append(out.Messages, message{Role: line.Role, Content: said})
	}
	for _, round := range d.Talk.Rounds {
		out.Messages = appendRound(out.Messages, d, round)
	}
	for _, spec := range d.Talk.Tools {
		out.Tools = append(out.Tools, tool{Name: spec.Name, Description: spec.Description, InputSchema: spec.Schema})
	}
	if d.Talk.NoCalls && len(out.Tools) > 0 && d.Can(model.ToolChoice) {
		out.ToolChoice = &choice{Type: "none"}
	}
	think(d, &out)
	if d.User != "" {
		out.Metadata = &metadata{UserID: d.User}
	}
	return out
}

// think asks for thoughts in the form that the model takes: with a budget, or adaptive with an effort. Temperature and top_p are left out then, because
// the API refuses the combination.
func think(d *model.Draft, out *request) {
	tokens := budget(d.Thinking)
	switch {
	case tokens == 0:
		return
	case d.Can(model.ThinkingBudget):
		out.Thinking = &thinking{Type: "enabled", BudgetTokens: tokens}
		out.MaxTokens += tokens
	case d.Can(model.ThinkingAdaptive):
		out.Thinking = &thinking{Type: "adaptive"}
		if d.Can(model.OutputConfig) {
			out.OutputConfig = &output{Effort: strings.Replace(d.Thinking, "minimal", "low", 1)}
		}
	default:
		return
	}
	out.Temperature, out.TopP = nil, nil
}

// content returns the new input: a string, or pictures followed by text, as the API recommends.
func content(text string, images []agent.Image) any {
	if len(images) == 0 {
		return text
	}
	blocks := make([]any, 0, len(images)+1)
	for _, image := range images {
		blocks = append(blocks, imageBlock{Type: "image", Source: imageSource{Type: "base64", MediaType: image.MIMEType, Data: image.Data}})
	}
	return append(blocks, textBlock{Type: "text", Text: text})
}

// appendRound adds the blocks of the model, then the results of its calls with the messages that arrived meanwhile.
func appendRound(messages []message, d *model.Draft, round agent.Round) []message {
	members := d.Members(round, func(raw json.RawMessage) model.Object {
		var thoughts []model.Object
		if json.Unmarshal(raw, &thoughts) != nil {
			return nil // another kind of runner recorded it
		}
		out := model.Object{}
		for i, thought := range thoughts {
			out[place(i)] = thought
		}
		return out
	})
	var asked, given []any
	said, called := false, 0
	call := func(members model.Object) {
		if called < len(round.Calls) {
			c := round.Calls[called]
			block := model.Object{}
			maps.Copy(block, members)
			block["type"], block["id"], block["name"], block["input"] = "tool_use", c.ID, c.Name, toolloop.Object(c.Args)
			asked = append(asked, block)
			called++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members.Message)) {
		switch block := members.Message.Object(name); block.String("type") {
		case "":
		case "tool_use":
			call(members.Of(called))
		case "text":
			said = true
			if strings.TrimSpace(block.String("text")) != "" { // the API refuses blank text
				asked = append(asked, block)
			}
		default:
			asked = append(asked, block)
		}
	}
	if !said && strings.TrimSpace(round.Text) != "" {
		asked = append(asked, textBlock{Type: "text", Text: round.Text})
	}
	for called < len(round.Calls) {
		call(members.Of(called))
	}
	for i, call := range round.Calls {
		result := round.Results[i]
		given = append(given, resultBlock{Type: "tool_result", UseID: call.ID, Content: result.Text, IsError: result.IsError})
	}
	if input := d.Input(round); input != "" {
		given = append(given, textBlock{Type: "text", Text: input})
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
