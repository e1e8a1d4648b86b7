package jsonline

import (
	"encoding/json"

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
