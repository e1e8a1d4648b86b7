package main

import (
	"strings"
)

// The members of the wire that commands read. They are those of the protocol; further ones are ignored.

type wireContent struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type wireMessage struct {
	Role       string        `json:"role"`
	Content    []wireContent `json:"content"`
	Timestamp  int64         `json:"timestamp"`
	RunID      string        `json:"runId,omitempty"`
	StopReason string        `json:"stopReason,omitempty"`
	Command    bool          `json:"command,omitempty"`
}

// text is the whole text of the message.
func (m *wireMessage) text() string {
	if m == nil {
		return ""
	}
	var b strings.Builder
	for _, part := range m.Content {
		b.WriteString(part.Text)
	}
	return b.String()
}

// chatEvent is the payload of a `chat` event.
type chatEvent struct {
	RunID        string       `json:"runId"`
	SessionKey   string       `json:"sessionKey"`
	State        string       `json:"state"`
	DeltaText    string       `json:"deltaText"`
	Replace      bool         `json:"replace"`
	Message      *wireMessage `json:"message"`
	StopReason   string       `json:"stopReason"`
	ErrorMessage string       `json:"errorMessage"`
	ErrorKind    string       `json:"errorKind"`
	Yielded      bool         `json:"yielded"`
}

// ends reports whether the event is the last of its run.
func (e chatEvent) ends() bool {
	return e.State == stateFinal || e.State == stateAborted || e.State == stateError
}

// States of a chat event.
const (
	stateDelta   = "delta"
	stateFinal   = "final"
	stateAborted = "aborted"
	stateError   = "error"
)

type sendParams struct {
	SessionKey     string `json:"sessionKey"`
	Message        string `json:"message"`
	IdempotencyKey string `json:"idempotencyKey"`
	AgentID        string `json:"agentId,omitempty"`
	TimeoutMs      *int64 `json:"timeoutMs,omitempty"`
}

type sendResult struct {
	RunID  string `json:"runId"`
	Status string `json:"status"`
}

type abortParams struct {
	SessionKey string `json:"sessionKey"`
	RunID      string `json:"runId,omitempty"`
	All        bool   `json:"all,omitempty"`
}

type abortResult struct {
	Aborted bool     `json:"aborted"`
	RunIDs  []string `json:"runIds"`
}

type historyParams struct {
	SessionKey string `json:"sessionKey"`
	Limit      int    `json:"limit,omitempty"`
	MaxChars   int    `json:"maxChars,omitempty"`
}

type historyResult struct {
	SessionKey    string        `json:"sessionKey"`
	SessionID     string        `json:"sessionId"`
	Messages      []wireMessage `json:"messages"`
	HasMore       bool          `json:"hasMore"`
	TotalMessages int           `json:"totalMessages"`
}

type sessionRow struct {
	Key                string   `json:"key"`
	SessionID          string   `json:"sessionId"`
	Kind               string   `json:"kind"`
	AgentID            string   `json:"agentId"`
	IsMain             bool     `json:"isMain"`
	CreatedAt          int64    `json:"createdAt"`
	UpdatedAt          int64    `json:"updatedAt"`
	LastInteractionAt  int64    `json:"lastInteractionAt"`
	Status             string   `json:"status,omitempty"`
	LastRunID          string   `json:"lastRunId,omitempty"`
	LastRunError       string   `json:"lastRunError,omitempty"`
	LastMessagePreview string   `json:"lastMessagePreview,omitempty"`
	TotalTokens        int      `json:"totalTokens,omitempty"`
	HasActiveRun       bool     `json:"hasActiveRun"`
	ActiveRunIDs       []string `json:"activeRunIds"`
	EffectiveQueueMode string   `json:"effectiveQueueMode"`
	QueueDepth         int      `json:"queueDepth"`
	Lane               string   `json:"lane"`
}
