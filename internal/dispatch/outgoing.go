package dispatch

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/events"
	"laneway/internal/store"
)

// burst is how long drops are collected before the person gets one notice.
const burst = 2 * time.Second

// noticeLife is how long a notice is worth sending.
const noticeLife = 24 * time.Hour

// sentence is what a person reads about a message that got no answer.
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

// notice is the outbox row by which a person of a channel learns how their message ended; nil where an event is enough.
func notice(r store.Waiting, outcome chat.Outcome, reason, text string) *store.Outgoing {
	to := r.Content.Options.ReplyTo
	if outcome == chat.OutcomeDropped {
		to = droppedTo(r.Session, r.Channel, to)
	}
	if to.IsZero() {
		return nil
	}
	switch outcome {
	case chat.OutcomeDropped, chat.OutcomeFailed, chat.OutcomeInterrupted, chat.OutcomeDead:
	default:
		return nil
	}
	if text == "" {
		text = sentence(outcome, reason)
	}
	n := &store.Outgoing{ID: newID(), Session: r.Session, Principal: r.Principal, Target: to, Kind: store.KindNotice, Text: text, Count: 1}
	if outcome == chat.OutcomeDropped {
		coalesceDrops(n, 0)
	}
	return n
}

// dropNotice is sent when accepting m makes another message lose its place.
func dropNotice(m chat.Message, limit int) *store.Outgoing {
	to := droppedTo(m.Session, m.Channel, m.Content.Options.ReplyTo)
	if to.IsZero() {
		return nil
	}
	n := &store.Outgoing{ID: newID(), Session: m.Session, Principal: m.Principal, Target: to, Kind: store.KindNotice, Count: 1}
	coalesceDrops(n, limit)
	return n
}

// droppedTo is where the notice of a drop goes: where the answer would have gone, and for people at the web, who read the history, in the transcript.
func droppedTo(key chat.SessionKey, from string, to chat.Target) chat.Target {
	if to.IsZero() && from == channel.Web {
		return channel.WebTarget(key)
	}
	return to
}

func coalesceDrops(n *store.Outgoing, limit int) {
	why := "because too many were waiting"
	if limit > 0 {
		why = fmt.Sprintf("because more than %d were waiting", limit)
	}
	n.Text = "1 message was dropped " + why + "."
	n.TextMany = "%d messages were dropped " + why + "."
	n.Coalesce = "dropped:" + n.Session.String()
	n.Delay = burst
}

// refusal is the error of a message that a full queue refused, and the notice of it for a person of a channel: once per burst, with the number. A later
// refusal has a notice of its own. No notice = the sender reads the error.
func refusal(m chat.Message, limit int) (notices []store.Outgoing, err error) {
	why := fmt.Sprintf("%d messages wait here already", limit)
	if limit == 1 {
		why = "1 message waits here already"
	}
	full := *chat.ErrQueueFull
	full.Message = why + "; send it again after the next answer, or stop the running turn"
	err = full.With("cap", limit)
	to := m.Content.Options.ReplyTo
	if to.IsZero() {
		return nil, err
	}
	return []store.Outgoing{{
		ID: newID(), Session: m.Session, Principal: m.Principal, Target: to, Kind: store.KindNotice, Count: 1, Delay: burst,
		Text:      "This was not taken: " + why + "; send it again after the next answer, or stop the running turn.",
		TextMany:  "%d messages were not taken: " + why + "; send them again after the next answer, or stop the running turn.",
		Coalesce:  "refused:" + m.Session.String(),
		ExpiresAt: time.Now().Add(noticeLife),
	}}, err
}

// commandAnswer is the row of a command's answer. A choice is for the person who gave the command.
func commandAnswer(m chat.Message, answer command.Answer) store.Outgoing {
	o := store.Outgoing{
		ID: newID(), RunID: m.ID, Session: m.Session, Principal: m.Principal, Target: m.Content.Options.ReplyTo, Kind: store.KindCommand, Text: answer.Text, Count: 1,
	}
	if answer.Choice != nil {
		choice := *answer.Choice
		choice.For, o.Choice = m.Content.Sender.ID, &choice
	}
	return o
}

// endOfWaiting is the event, and the end for callers that wait, of a message that never became a turn.
func endOfWaiting(r store.Waiting, outcome chat.Outcome, reason string) (chat.Event, chat.RunEnd) {
	text := sentence(outcome, reason)
	e := chat.Event{
		Kind: chat.EventAborted, Session: r.Session, Principal: r.Principal, RunID: r.MessageID, Seq: events.FirstOfTurn, Lane: r.Lane, Reason: abortReason(reason),
	}
	if outcome == chat.OutcomeDropped || outcome == chat.OutcomeFailed {
		e.Kind, e.Reason, e.Message = chat.EventFailed, reason, text
	}
	return e, chat.RunEnd{RunID: r.MessageID, Session: r.Session, Outcome: outcome, Reason: reason, Message: text}
}

// abortReason is the reason of an end as watchers know it: a closed set, in which whatever cancelled a job's run is a stop.
func abortReason(reason string) string {
	switch reason {
	case reasonStopAll, reasonReset, store.ReasonSuperseded, "stale", "cleared", "draining":
		return reason
	default:
		return reasonStop
	}
}

// newID is a UUIDv7: sortable by time, unique without asking the store.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
