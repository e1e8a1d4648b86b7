package dispatch

import (
	"fmt"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

// burst is how long drops are collected before the person receives one notice.
const burst = 2 * time.Second

// noticeLife is how long a notice may wait before it expires.
const noticeLife = 24 * time.Hour

// newNotice returns an outgoing row about a message of a session, without its text.
func newNotice(key chat.SessionKey, principal string, to chat.Target) *store.Outgoing {
	return &store.Outgoing{ID: newID(), Session: key, Principal: principal, Target: to, Kind: store.KindNotice, Count: 1}
}

// notice returns the outbox row that informs a person of a channel how their message ended; nil when an event suffices.
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
	n := newNotice(r.Session, r.Principal, to)
	n.Text = text
	if outcome == chat.OutcomeDropped {
		coalesceDrops(n, 0)
	}
	return n
}

// dropNotice returns the notice for the case that accepting m removes another message from the queue.
func dropNotice(m chat.Message, limit int) *store.Outgoing {
	to := droppedTo(m.Session, m.Channel, m.Content.Options.ReplyTo)
	if to.IsZero() {
		return nil
	}
	n := newNotice(m.Session, m.Principal, to)
	coalesceDrops(n, limit)
	return n
}

// droppedTo returns the address of the notice of a drop: the address of the answer, or the transcript for web users, who read the history.
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

// refusal returns the error for a message that a full queue refused, and the notice for a person of a channel: one per burst, with the
// number of messages. A later refusal has a new notice. Without a notice, the sender reads the error.
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
	n := newNotice(m.Session, m.Principal, to)
	n.Text = "This was not taken: " + why + "; send it again after the next answer, or stop the running turn."
	n.TextMany = "%d messages were not taken: " + why + "; send them again after the next answer, or stop the running turn."
	n.Coalesce, n.Delay, n.ExpiresAt = "refused:"+m.Session.String(), burst, time.Now().Add(noticeLife)
	return []store.Outgoing{*n}, err
}
