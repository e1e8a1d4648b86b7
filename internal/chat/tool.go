package chat

import "encoding/json"

// ToolCall is one call of one tool, as requested by a model.
type ToolCall struct {
	// ID is the id that the model gave the call; it is unique within the round.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Args are the arguments as the model wrote them. They should be a JSON object, but may be invalid.
	Args string `json:"args"`
}

// ToolResult is what a call of a tool returned to the model.
type ToolResult struct {
	Text string `json:"text"`
	// IsError: the call failed, and Text is the reason in one sentence.
	IsError bool `json:"isError,omitempty"`
	// Foreign: Text can contain words that do not come from the person for whom the call was made.
	Foreign bool `json:"foreign,omitempty"`
}

// Round is an answer of a model that requests tool calls, with the results of the calls.
type Round struct {
	// Number counts the rounds of a run from 1.
	Number int
	// Text is what the model wrote before its calls; it may be empty.
	Text  string
	Calls []ToolCall
	// Results has one element for each of Calls; nil = no result is recorded.
	Results []*ToolResult
	Usage   Usage
	// Extra is what the provider requires back with the round (signed thoughts), in the format of the runner; nil when it requires nothing.
	Extra json.RawMessage
}
