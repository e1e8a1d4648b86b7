package openai

import (
	"errors"
	"net/http"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/fault"
)

// completions implements the form of POST /v1/chat/completions.
type completions struct{}

func (completions) name() string { return "chat.completions" }

func (completions) formatMember() string { return paramFormat }

func (completions) whole(a *run, end chat.RunEnd) any {
	return completion{
		ID: completionID(a), Object: "chat.completion", Created: a.created, Model: a.prompt.model,
		Choices: []choice{{Message: answerMessage{Role: chat.RoleAssistant, Content: end.Text}, FinishReason: finishReason(end)}},
		Usage:   usageOf(end.Usage),
	}
}

func completionID(a *run) string { return "chatcmpl-" + chat.ShownRunID(a.receipt.RunID) }

// completion is the answer to a request that is not streamed.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
}

type choice struct {
	Index        int           `json:"index"`
	Message      answerMessage `json:"message"`
	Logprobs     *string       `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type answerMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func usageOf(u chat.Usage) usage {
	return usage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
}

func finishReason(end chat.RunEnd) string {
	if end.StopReason == agent.StopLength {
		return agent.StopLength
	}
	return agent.StopNormal
}

// fault returns the error of a run that ended without an answer, or nil.
func (a *run) fault(end chat.RunEnd) error {
	err := fault.OfRun(end, a.cred.Administers(a.cred.Scopes))
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return err
	}
	w, _ := fault.From(e)
	switch status := e.Details["status"]; {
	case status == "timeout":
		w.WithStatus(http.StatusGatewayTimeout).Details["code"] = codeRunTimeout
	case status == "cancelled", e.Code == chat.CodeStale, e.Code == chat.CodeCleared:
		w.WithStatus(http.StatusConflict).Details["code"] = codeRunCancelled
	}
	w.Retryable = false // the turn was paid for; only the caller can decide to run it again
	return w
}
