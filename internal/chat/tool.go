package chat

import "encoding/json"

// ToolCall is what a model asked for: one call of one tool.
type ToolCall struct {
	// ID is the name that the model gave the call; it is unique within the round.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Args are the arguments as the model wrote them: a JSON object, or what the model took for one.
	Args string `json:"args"`
}

// ToolResult is what a call of a tool returned to the model.
type ToolResult struct {
	Text string `json:"text"`
	// IsError: the call did not do what it was for, and Text is the reason in one sentence.
	IsError bool `json:"isError,omitempty"`
	// Foreign: Text can have words that are not those of the person for whom the call was made.
	Foreign bool `json:"foreign,omitempty"`
}

// Round is an answer of a model that asks for calls of tools, with what the calls returned.
type Round struct {
	// Number counts the rounds of a run from 1.
	Number int
	// Text is what the model wrote before its calls; it may be empty.
	Text  string
	Calls []ToolCall
	// Results has one element for each of Calls; nil = none is recorded.
	Results []*ToolResult
	Usage   Usage
	// Extra is what the provider wants to get back with the round (signed thoughts), in the form of the runner; nil = nothing.
	Extra json.RawMessage
}
