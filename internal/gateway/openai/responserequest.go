package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"laneway/internal/chat"
)

// responses implements the form of POST /v1/responses.
type responses struct{}

func (responses) name() string { return "responses" }

func (responses) formatMember() string { return "text.format" }

// responseRequest has the supported members of a request for a response. Unknown ones are ignored, because clients send many.
type responseRequest struct {
	Model              string            `json:"model"`
	Input              json.RawMessage   `json:"input"`
	Instructions       *string           `json:"instructions"`
	Stream             bool              `json:"stream"`
	PreviousResponseID *string           `json:"previous_response_id"`
	Conversation       json.RawMessage   `json:"conversation"`
	Background         bool              `json:"background"`
	Tools              []json.RawMessage `json:"tools"`
	Temperature        *float64          `json:"temperature"`
	TopP               *float64          `json:"top_p"`
	MaxOutputTokens    *int              `json:"max_output_tokens"`
	Text               responseText      `json:"text"`
	Reasoning          responseReasoning `json:"reasoning"`
}

type responseText struct {
	Format *textFormat `json:"format"`
}

// format returns the format of the answer, with its default.
func (t responseText) format() textFormat {
	if t.Format == nil {
		return textFormat{Type: formatText}
	}
	return *t.Format
}

type responseReasoning struct {
	Effort *string `json:"effort"`
}

// inputItem is an item of the input: a message, or one that is ignored or refused.
type inputItem struct {
	Type string `json:"type"`
	inputMessage
}

func (responses) read(body []byte) (prompt, error) {
	var req responseRequest
	if err := decode(body, &req); err != nil {
		return prompt{}, err
	}
	if err := refuseUndone(body); err != nil {
		return prompt{}, err
	}
	if err := req.check(); err != nil {
		return prompt{}, err
	}
	messages, err := req.messages()
	if err != nil {
		return prompt{}, err
	}
	settings, err := req.params()
	if err != nil {
		return prompt{}, err
	}
	p := prompt{model: req.Model, stream: req.Stream, keep: true, params: settings, raw: req}
	format, err := req.Text.Format.format()
	if err != nil {
		return prompt{}, err
	}
	if p.format, err = format.param(); err != nil {
		return prompt{}, err
	}
	p.system, p.earlier, p.input = split(messages)
	p.files = filesOf(messages)
	if req.Instructions != nil && *req.Instructions != "" {
		p.system = *req.Instructions + separated(p.system)
	}
	if req.PreviousResponseID != nil {
		p.previous = *req.PreviousResponseID
	}
	if p.thinking, err = effort("reasoning.effort", req.Reasoning.Effort); err != nil {
		return prompt{}, err
	}
	if p.conversation, err = req.conversation(); err == nil && p.conversation != nil && p.previous != "" {
		err = errors.New("previous_response_id and conversation cannot be used together")
	}
	return p, err
}

func separated(text string) string {
	if text == "" {
		return ""
	}
	return "\n\n" + text
}

func (req *responseRequest) check() error {
	switch {
	case req.Model == "":
		return errors.New("model is required; GET /v1/models lists what there is")
	case len(req.Tools) > 0:
		return invalid("tools", "tools are not supported: agents bring their own")
	case req.Background:
		return invalid("background", "background is not supported; send the header X-Laneway-Detach: 1 and close the connection instead")
	default:
		return nil
	}
}

// messages returns the messages of the input.
func (req *responseRequest) messages() ([]inputMessage, error) {
	raw := bytes.TrimSpace(req.Input)
	if len(raw) > 0 && raw[0] == '"' {
		only := inputMessage{Role: chat.RoleUser, Content: raw}
		err := only.read()
		return []inputMessage{only}, err
	}
	var items []inputItem
	if len(raw) == 0 || json.Unmarshal(raw, &items) != nil {
		return nil, errors.New("input must be a string or a list of messages")
	}
	if len(items) == 0 || len(items) > maxMessages {
		return nil, fmt.Errorf("input must have 1 to %d items", maxMessages)
	}
	messages := make([]inputMessage, 0, len(items))
	for i, item := range items {
		if item.Type == "reasoning" { // reasoning that a client repeats from an earlier answer
			continue
		}
		if item.Type != "" && item.Type != "message" {
			return nil, fmt.Errorf("input[%d]: an item of type %s is not supported, only message", i, quoted(item.Type))
		}
		if err := item.read(); err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
		messages = append(messages, item.inputMessage)
	}
	if !endsWithUser(messages) {
		return nil, invalid("input", "the last message of input must be from the user; only system and developer messages may follow it")
	}
	return messages, nil
}

// conversation returns the name of the conversation that the client has chosen, given as a string or as an object with an id; nil = no
// name.
func (req *responseRequest) conversation() (*string, error) {
	raw := bytes.TrimSpace(req.Conversation)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil //nolint:nilnil // no conversation is no error
	}
	var name string
	if json.Unmarshal(raw, &name) != nil {
		var object struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &object) != nil {
			return nil, errors.New("conversation must be a string or an object with an id")
		}
		name = object.ID
	}
	return &name, checkName("conversation", name)
}

func (req *responseRequest) params() (map[string]any, error) {
	return params(req.Temperature, req.TopP, bound{"max_output_tokens", req.MaxOutputTokens})
}
