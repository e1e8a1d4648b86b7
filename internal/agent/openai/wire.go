package openai

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/model"
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

// message is a map, because members return as they came.
type message = model.Object

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

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// body returns the JSON of a request.
func body(d *model.Draft) any {
	out := request{
		Model: d.Model, Stream: true, ReasoningEffort: effort(d), Tools: toolsOf(d.Talk), User: d.User,
	}
	if p := d.Params; p.Temperature != nil && d.Can(model.Temperature) {
		out.Temperature = p.Temperature
	}
	if d.Params.TopP != nil && d.Can(model.TopP) {
		out.TopP = d.Params.TopP
	}
	if len(d.Params.Stop) > 0 && d.Can(model.Stop) {
		out.Stop = d.Params.Stop
	}
	if d.Params.ResponseFormat != nil && d.Can(model.ResponseFormat) {
		out.ResponseFormat = d.Params.ResponseFormat
	}
	if d.Talk.NoCalls && len(out.Tools) > 0 && d.Can(model.ToolChoice) {
		out.ToolChoice = "none"
	}
	switch {
	case d.Params.MaxTokens == nil:
	case d.Can(model.MaxTokens):
		out.MaxTokens = d.Params.MaxTokens
	case d.Can(model.MaxCompletionTokens):
		out.MaxCompletionTokens = d.Params.MaxTokens
	}
	if d.Can(model.StreamOptions) {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	out.Messages = messages(d)
	return out
}

// messages returns the conversation. A model without a system role reads the system prompt at the beginning of the first message.
func messages(d *model.Draft) []message {
	var all []message
	before := ""
	switch {
	case d.System == "":
	case d.Can(model.SystemRole):
		all = append(all, message{"role": "system", "content": d.System})
	default:
		before = d.System + "\n\n"
	}
	for i, line := range d.Lines {
		var said any = before + line.Text
		if i == len(d.Lines)-1 {
			said = content(before+line.Text, d.Images)
		}
		all = append(all, message{"role": line.Role, "content": said})
		before = ""
	}
	for _, round := range d.Talk.Rounds {
		all = appendRound(all, d, round)
	}
	return all
}

// content returns the new input: a string, or text with pictures.
func content(text string, images []agent.Image) any {
	if len(images) == 0 {
		return text
	}
	parts := []part{{Type: "text", Text: text}}
	for _, image := range images {
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

// appendRound adds the calls of the model with the members that came with them, their results, and the messages that arrived meanwhile.
func appendRound(messages []message, d *model.Draft, round agent.Round) []message {
	members := d.Members(round, func(raw json.RawMessage) model.Object {
		var thoughts string
		if json.Unmarshal(raw, &thoughts) != nil || thoughts == "" {
			return nil // another kind of runner recorded it
		}
		return model.Object{"reasoning_content": thoughts}
	})
	asked := message{"role": chat.RoleAssistant, "content": round.Text}
	maps.Copy(asked, members.Message)
	var calls []model.Object
	for i, call := range round.Calls {
		made := model.Object{}
		maps.Copy(made, members.Of(i))
		function := model.Object{"name": call.Name, "arguments": string(toolloop.Object(call.Args))}
		maps.Copy(function, made.Object("function"))
		made["id"], made["type"], made["function"] = call.ID, "function", function
		calls = append(calls, made)
	}
	if len(calls) > 0 {
		asked["tool_calls"] = calls
	}
	messages = append(messages, asked)
	for i, call := range round.Calls {
		messages = append(messages, message{"role": "tool", "tool_call_id": call.ID, "content": round.Results[i].Text})
	}
	if input := d.Input(round); input != "" {
		messages = append(messages, message{"role": chat.RoleUser, "content": input})
	}
	return messages
}

// efforts are the levels that the API defines, from the least. Other words, such as off, leave the choice to the endpoint.
var efforts = []string{"minimal", "low", "medium", "high"} //nolint:gochecknoglobals // a constant

// effort returns the level that is asked for, or the next one that the model has not refused; "" if it refuses all of them.
func effort(d *model.Draft) string {
	if at := slices.Index(efforts, d.Thinking); at >= 0 && d.Can(model.Effort) {
		for _, level := range efforts[at:] {
			if d.Can(model.Effort + " " + level) {
				return level
			}
		}
	}
	return ""
}
