package testmodel

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
)

// parse fills in the members of the body.
func parse(c Call) (Call, error) {
	var body struct {
		Model    string        `json:"model"`
		User     string        `json:"user"`
		System   blockText     `json:"system"`
		Stream   bool          `json:"stream"`
		Messages []wireMessage `json:"messages"`
		Metadata struct {
			UserID string `json:"user_id"` //nolint:tagliatelle // a foreign wire
		} `json:"metadata"`
		Tools []struct {
			Name      string     `json:"name"`
			Tools     []wireFunc `json:"tools"`
			Function  wireFunc   `json:"function"`
			Functions []wireFunc `json:"functionDeclarations"`
		} `json:"tools"`
		ToolChoice any `json:"tool_choice"` //nolint:tagliatelle // a foreign wire
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return c, err
	}
	c.Model, c.User, c.System, c.Stream = body.Model, body.User+body.Metadata.UserID, string(body.System), body.Stream
	for _, tool := range body.Tools {
		if len(tool.Tools) > 0 { // a namespace of the Responses API
			for _, function := range tool.Tools {
				c.Tools = append(c.Tools, tool.Name+namespaceEnd+function.Name)
			}
			continue
		}
		if name := cmp.Or(tool.Name, tool.Function.Name); name != "" {
			c.Tools = append(c.Tools, name)
		}
	}
	switch choice := body.ToolChoice.(type) {
	case string:
		c.ToolChoice = choice
	case map[string]any:
		c.ToolChoice, _ = choice["type"].(string) //nolint:errcheck // "" if absent
	}
	for _, tool := range body.Tools { // of Gemini
		for _, function := range tool.Functions {
			c.Tools = append(c.Tools, function.Name)
		}
	}
	for _, wire := range body.Messages {
		message, err := wire.message()
		if err != nil {
			return c, err
		}
		if message.Role == "system" {
			c.System = message.Content
			continue
		}
		if note := clockNote.FindStringSubmatch(message.Content); note != nil && message.Role == "user" {
			c.Clock, message.Content = note[1], strings.Replace(message.Content, note[0], "", 1)
		}
		c.Messages = append(c.Messages, message)
	}
	return c, nil
}

// clockNote is the note about the person's clock, see agent.Request.Clock.
var clockNote = regexp.MustCompile(`(?m)^\[note\] For the person it is (.*)\.\n`)

// namespaceEnd is between a namespace of the Responses API and the name of a tool in it.
const namespaceEnd = "."

type wireFunc struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// wireMessage is a message of either protocol.
type wireMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"` //nolint:tagliatelle // a foreign wire
	ToolCalls  []struct {
		ID       string   `json:"id"`
		Function wireFunc `json:"function"`
	} `json:"tool_calls"` //nolint:tagliatelle // a foreign wire
}

type wireBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	UseID   string          `json:"tool_use_id"` //nolint:tagliatelle // a foreign wire
	Content blockText       `json:"content"`
	IsError bool            `json:"is_error"` //nolint:tagliatelle // a foreign wire
}

// blockText is a string, or the joined text of text blocks.
type blockText string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *blockText) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(t))
	}
	var blocks []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return err
	}
	for _, b := range blocks {
		*t += blockText(b.Text)
	}
	return nil
}

func (w wireMessage) message() (Message, error) {
	m := Message{Role: w.Role}
	for _, call := range w.ToolCalls {
		m.Calls = append(m.Calls, ToolCall{ID: call.ID, Name: call.Function.Name, Args: call.Function.Arguments})
	}
	if len(w.Content) > 0 && w.Content[0] == '"' {
		if err := json.Unmarshal(w.Content, &m.Content); err != nil {
			return m, err
		}
		if w.Role == "tool" {
			m.Results = append(m.Results, ToolResult{ID: w.ToolCallID, Text: m.Content})
		}
		return m, nil
	}
	var blocks []wireBlock
	if err := json.Unmarshal(w.Content, &blocks); err != nil {
		return m, err
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			m.Content += b.Text
		case "tool_use":
			m.Calls = append(m.Calls, ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		case "tool_result":
			m.Results = append(m.Results, ToolResult{ID: b.UseID, Text: string(b.Content), IsError: b.IsError})
		}
	}
	return m, nil
}
