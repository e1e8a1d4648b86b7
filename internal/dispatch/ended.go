package dispatch

import (
	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/store"
)

// sentence returns what a person reads about a message without an answer.
func sentence(outcome chat.Outcome, reason string) string {
	switch outcome {
	case chat.OutcomeDropped:
		return "queue full: the message was dropped because too many were waiting; send it again if it still matters"
	case chat.OutcomeInterrupted:
		return "interrupted: the gateway restarted while this was being answered; send it again"
	case chat.OutcomeDead:
		return "interrupted: answering this ended the gateway three times; it will not be tried again"
	case chat.OutcomeStopped:
		return "stopped"
	case chat.OutcomeSuperseded:
		return "superseded by a newer message"
	case chat.OutcomeStale:
		return "the message is older than the last /stopall"
	case chat.OutcomeFailed:
		return "this could not be answered (" + reason + "); try again"
	default:
		return ""
	}
}

// endKind returns the event of an outcome.
func endKind(outcome chat.Outcome) chat.EventKind {
	switch outcome {
	case chat.OutcomeAnswered, chat.OutcomeMerged:
		return chat.EventFinal
	case chat.OutcomeFailed, chat.OutcomeDead, chat.OutcomeInterrupted, chat.OutcomeDropped:
		return chat.EventFailed
	default:
		return chat.EventAborted
	}
}

// endOfWaiting returns the event, and the end for waiting callers, of a message that never became a turn.
func endOfWaiting(r store.Waiting, outcome chat.Outcome, reason string) (chat.Event, chat.RunEnd) {
	text := sentence(outcome, reason)
	e := chat.Event{
		Kind: endKind(outcome), Session: r.Session, Principal: r.Principal, RunID: r.MessageID, Seq: events.FirstOfTurn, Lane: r.Lane, Reason: abortReason(reason),
	}
	if e.Kind == chat.EventFailed {
		e.Reason, e.Message = reason, text
	}
	return e, chat.RunEnd{RunID: r.MessageID, Session: r.Session, Outcome: outcome, Reason: reason, Message: text}
}

// abortReason returns the reason of an end for subscribers: a closed set, in which every cancellation of a job's run is a stop.
func abortReason(reason string) string {
	switch reason {
	case reasonStopAll, reasonReset, store.ReasonSuperseded, "stale", "cleared", "draining":
		return reason
	default:
		return reasonStop
	}
}
