package jsonline

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// maxSentence bounds an agent's part of an error message, in bytes.
const maxSentence = 500

// Line is one line of an answer.
type Line struct {
	// Delta is new text; Final is the whole text, nil if the line has none.
	Delta string
	Final *string
	// Failed is a failure that the agent reported; nil if none.
	Failed *agent.Error
	Usage  *chat.Usage
	// Attach is a file in the directory of the turn.
	Attach *chat.Attachment
	// Done is true when the answer is complete.
	Done bool
}

// Parse decodes raw and reports whether it is a JSON object with at least one known member. It is not one if a member has the
// wrong type: then a runner can show the line instead of losing it.
func Parse(raw []byte) (Line, bool) {
	var members struct {
		Delta  *string         `json:"delta"`
		Final  *string         `json:"final"`
		Error  *string         `json:"error"`
		Reason chat.FailReason `json:"reason"`
		Usage  map[string]any  `json:"usage"`
		Done   *bool           `json:"done"`
		Attach *struct {
			Path     string `json:"path"`
			Name     string `json:"name"`
			MIMEType string `json:"mimeType"`
		} `json:"attach"`
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &members) != nil {
		return Line{}, false
	}
	out := Line{Final: members.Final, Done: members.Done != nil && *members.Done}
	if members.Delta != nil {
		out.Delta = *members.Delta
	}
	if members.Error != nil {
		out.Failed = reported(*members.Error, members.Reason)
	}
	if members.Usage != nil {
		out.Usage = usageOf(members.Usage)
	}
	if a := members.Attach; a != nil {
		out.Attach = &chat.Attachment{Path: a.Path, Name: a.Name, MIMEType: a.MIMEType}
	}
	known := members.Delta != nil || members.Final != nil || members.Error != nil || members.Usage != nil || members.Attach != nil || members.Done != nil
	return out, known
}

// reported returns a failure with the agent's own sentence. An unknown reason becomes [chat.FailProgram].
func reported(sentence string, reason chat.FailReason) *agent.Error {
	if !slices.Contains(agent.Reasons(), reason) {
		reason = chat.FailProgram
	}
	sentence = strings.TrimSpace(chat.Cut(chat.CleanText(sentence), maxSentence))
	if sentence == "" {
		sentence = "The program behind this agent reported a failure without a reason."
	}
	return agent.NewError(reason, sentence, nil)
}

// usageOf accepts both spellings of the names.
func usageOf(members map[string]any) *chat.Usage {
	return &chat.Usage{
		InputTokens:  tokens(members, "inputTokens", "input_tokens"),
		OutputTokens: tokens(members, "outputTokens", "output_tokens"),
		Model:        word(members, "model"),
		Provider:     word(members, "provider"),
	}
}

func tokens(members map[string]any, names ...string) int {
	for _, name := range names {
		if n, ok := members[name].(float64); ok && n > 0 {
			return int(min(n, chat.MaxTokens))
		}
	}
	return 0
}

func word(members map[string]any, name string) string {
	text, ok := members[name].(string)
	if !ok {
		return ""
	}
	return chat.Cut(chat.CleanText(text), 200)
}
