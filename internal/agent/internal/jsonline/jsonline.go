// Package jsonline is the JSON that runners exchange with agents outside of the gateway: programs
// and servers. The request is one [Document]. The answer is a sequence of lines, each a JSON object
// ([Parse]):
//
//	{"delta": "new text"}
//	{"usage": {"inputTokens": 12, "outputTokens": 34, "model": "m"}}
//	{"error": "One sentence for the person.", "reason": "rate_limit"}
//	{"final": "the whole text"}
//	{"attach": {"path": "chart.png", "name": "Sales.png", "mimeType": "image/png"}}
//	{"done": true}
//
// final adds what the deltas do not contain yet. final and done mark an answer as complete, for
// transports that do not show this themselves. One object may have several of the members; unknown
// members are ignored. [Answer] applies lines to an answer. The runner decides what to do with any
// other line.
//
// Nothing here reads, waits or starts a goroutine.
package jsonline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Document is a request of the gateway to an agent.
type Document struct {
	Session        string                 `json:"session"`
	Agent          string                 `json:"agent"`
	RunID          string                 `json:"runId"`
	Attempt        int                    `json:"attempt"`
	IdempotencyKey string                 `json:"idempotencyKey"`
	DeadlineMs     int64                  `json:"deadlineMs,omitempty"`
	SystemPrompt   string                 `json:"systemPrompt,omitempty"`
	Model          string                 `json:"model,omitempty"`
	Thinking       string                 `json:"thinking,omitempty"`
	Params         map[string]any         `json:"params,omitempty"`
	History        []chat.TranscriptEntry `json:"history"`
	Messages       []chat.Content         `json:"messages"`
	// Prompt is the text of all messages, see [agent.Prompt].
	Prompt string `json:"prompt"`
}

// Request returns the document of a request as JSON.
func Request(req agent.Request) ([]byte, error) {
	doc := Document{
		Session: req.Session.String(), Agent: req.Session.Agent, RunID: req.RunID, Attempt: req.Attempt,
		IdempotencyKey: req.IdempotencyKey, SystemPrompt: req.SystemPrompt, Model: req.Model, Thinking: req.Thinking,
		Params: req.Params, History: req.History, Messages: req.Messages, Prompt: agent.Prompt(req),
	}
	if !req.Deadline.IsZero() {
		doc.DeadlineMs = req.Deadline.UnixMilli()
	}
	if doc.History == nil {
		doc.History = []chat.TranscriptEntry{}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, agent.NewError(chat.FailBadRequest, "The request cannot be passed to this agent.", err)
	}
	return raw, nil
}

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

// Parse decodes raw and reports whether it is a JSON object with at least one known member. It is
// not one if a member has the wrong type: then a runner can show the line instead of losing it.
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

// reported returns a failure with the agent's own sentence. An unknown reason becomes
// [chat.FailProgram].
func reported(sentence string, reason chat.FailReason) *agent.Error {
	if !slices.Contains(agent.Reasons(), reason) {
		reason = chat.FailProgram
	}
	sentence = strings.TrimSpace(chat.Cut(chat.CleanText(sentence), maxSentence))
	sentence = cmp.Or(sentence, "The program behind this agent reported a failure without a reason.")
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

// maxNamed bounds how many files are remembered; the gateway takes fewer.
const maxNamed = 1000

// Answer is an answer that arrives as lines. It belongs to the goroutine of Run. Make it with
// NewAnswer.
type Answer struct {
	// Text is the text so far. A runner may append to it what is not a line of the protocol.
	Text *agent.Answer
	// Usage is that of the last line with usage.
	Usage chat.Usage
	// Failed is the failure that the agent reported; nil if none.
	Failed *agent.Error
	// Named are the files that the agent names to be sent.
	Named []chat.Attachment
	// Complete is true when a line has marked the answer as complete.
	Complete bool

	emit func(agent.Event)
	log  *slog.Logger
}

// NewAnswer makes an empty answer of at most limit bytes, see [agent.NewAnswer].
func NewAnswer(limit int, emit func(agent.Event), log *slog.Logger) *Answer {
	return &Answer{Text: agent.NewAnswer(limit, emit), emit: emit, log: log}
}

// Take applies a line. It returns the error of [agent.Answer.Append]; a failure that the line
// reports is in Failed.
func (a *Answer) Take(line Line) error {
	if line.Usage != nil {
		a.Usage = *line.Usage
		a.emit(agent.Event{Kind: agent.EventUsage, Usage: a.Usage})
	}
	if line.Failed != nil {
		a.Failed = line.Failed
	}
	if line.Attach != nil && len(a.Named) < maxNamed {
		a.Named = append(a.Named, *line.Attach)
	}
	a.Complete = a.Complete || line.Done || line.Final != nil
	if err := a.Text.Append(line.Delta); err != nil {
		return err
	}
	if line.Final == nil {
		return nil
	}
	return a.finish(chat.CleanText(*line.Final))
}

// finish adds the part of the final text that the deltas do not contain. Deltas cannot be taken
// back, so a final text that contradicts them is only logged.
func (a *Answer) finish(final string) error {
	rest, ok := strings.CutPrefix(final, a.Text.Text())
	if !ok {
		a.log.Warn("final text of the agent is not the sum of its deltas", "bytes", len(final))
		return nil
	}
	return a.Text.Append(rest)
}
