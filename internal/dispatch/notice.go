package dispatch

import (
	"fmt"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// burst is how long drops are collected before the person is told once.
const burst = 2 * time.Second

// noticeLife is how long a notice is worth sending.
const noticeLife = 24 * time.Hour

// sentence is what a person is told about a message that got no answer.
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

// notice is the outbox row that tells a person of a channel how their message ended; nil where a watcher's event is enough.
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

// dropNotice is told when accepting m makes another message lose its place.
func dropNotice(m chat.Message, limit int) *store.Outgoing {
	to := droppedTo(m.Session, m.Channel, m.Content.Options.ReplyTo)
	if to.IsZero() {
		return nil
	}
	n := &store.Outgoing{ID: newID(), Session: m.Session, Principal: m.Principal, Target: to, Kind: store.KindNotice, Count: 1}
	coalesceDrops(n, limit)
	return n
}

// droppedTo is where a drop is told: where the answer would have gone, and for people at the web, who read the history, in the transcript.
func droppedTo(key chat.SessionKey, from string, to chat.Target) chat.Target {
	if to.IsZero() && from == channel.Web {
		return webTarget(key)
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
