package openai

import (
	"encoding/json"
	"fmt"
	"slices"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

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
		return nil, nil //nolint:nilnil // text is no format
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
		return nil, nil //nolint:nilnil // text is no format
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

// checkFormat refuses a format that the agent does not support because its runner does not pass it to a model.
func (h *Handler) checkFormat(c *call, id string) error {
	if c.prompt.format == nil || slices.ContainsFunc(h.agents.Agents(), func(a agent.Info) bool { return a.ID == id && a.Runner == "openai" }) {
		return nil
	}
	return chat.Errorf(chat.CodeInvalid, "the agent %s cannot be held to a response format, only agents with the runner openai can; ask for the form in the message", quoted(id)).
		With("param", c.form.formatMember())
}
