package fault

import (
	"cmp"

	"laneway/internal/chat"
)

// OfRun returns the error of a run that ended without an answer; nil = it has an answer, its own or that of the run into which its message
// was merged. admin: the caller is an administrator, who also sees the message of the agent's service.
func OfRun(end chat.RunEnd, admin bool) error {
	if end.Outcome == chat.OutcomeAnswered || end.Outcome == chat.OutcomeMerged {
		return nil
	}
	code, status := endCode(end)
	message := cmp.Or(end.Message, endSentence(end))
	if admin {
		message = WithDetail(message, end.Detail)
	}
	e := chat.Errorf(code, "%s", message).With("runId", chat.ShownRunID(end.RunID))
	if status != "" {
		e = e.With("status", status)
	}
	return e
}

// WithDetail returns a sentence with the message of the agent's service, for administrators. An empty detail adds nothing.
func WithDetail(message, detail string) string {
	if detail == "" {
		return message
	}
	return message + " Details: " + detail
}

func endCode(end chat.RunEnd) (code chat.Code, status string) {
	switch end.Outcome { //nolint:exhaustive // outcomes with an answer do not come here
	case chat.OutcomeDropped:
		return chat.CodeQueueDropped, ""
	case chat.OutcomeStale:
		return chat.CodeStale, ""
	case chat.OutcomeInterrupted, chat.OutcomeDead:
		return chat.CodeRunFailed, "interrupted"
	case chat.OutcomeStopped, chat.OutcomeSuperseded:
		if end.Reason == "cleared" {
			return chat.CodeCleared, ""
		}
		return chat.CodeRunFailed, "cancelled"
	}
	switch chat.FailReason(end.Reason) { //nolint:exhaustive // all others are failures of the agent
	case chat.FailBudget:
		return chat.CodeRateLimited, "budget"
	case chat.FailUnknownAgent:
		return chat.CodeUnknownAgent, "error"
	}
	if TurnTimedOut(end.Reason) {
		return chat.CodeRunFailed, "timeout"
	}
	return chat.CodeRunFailed, "error"
}

func endSentence(end chat.RunEnd) string {
	if end.Reason == "" {
		return "the run ended without an answer: " + string(end.Outcome)
	}
	return "the run ended without an answer: " + end.Reason
}

// TurnTimedOut reports whether a turn failed because it exceeded one of its time limits.
func TurnTimedOut(reason string) bool {
	switch chat.FailReason(reason) {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence:
		return true
	default:
		return false
	}
}
