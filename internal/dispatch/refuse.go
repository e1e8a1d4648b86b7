package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// notTheirs is the refusal of a session that belongs to somebody else; it reads as if there were none.
func notTheirs(key chat.SessionKey) error {
	return chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
}

// queueFull is the refusal of a message that finds as many waiting as may wait.
func queueFull(limit int) error {
	e := *chat.ErrQueueFull
	e.Message = fullQueue(limit) + "; send it again after the next answer, or stop the running turn"
	return e.With("cap", limit)
}

func fullQueue(limit int) string {
	if limit == 1 {
		return "1 message waits here already"
	}
	return fmt.Sprintf("%d messages wait here already", limit)
}

// tellRefused tells a person of a channel that a full queue refused a message: once per burst, with the number. A refusal after that is told again.
func (d *Dispatcher) tellRefused(ctx context.Context, m chat.Message, limit int) {
	to := m.Content.Options.ReplyTo
	if to.IsZero() {
		return
	}
	why := fullQueue(limit)
	n := store.Outgoing{
		ID: newID(), Session: m.Session, Principal: m.Principal, Target: to, Kind: store.KindNotice, Count: 1, Delay: burst,
		Text:      "This was not taken: " + why + "; send it again after the next answer, or stop the running turn.",
		TextMany:  "%d messages were not taken: " + why + "; send them again after the next answer, or stop the running turn.",
		Coalesce:  "refused:" + m.Session.String(),
		ExpiresAt: time.Now().Add(noticeLife),
	}
	if err := d.store.Enqueue(ctx, []store.Outgoing{n}); err != nil {
		d.log.WarnContext(ctx, "the refusal of a message is not told", "session", m.Session.String(), "err", err)
	}
	d.outbox.Wake()
}

// mayUse refuses a session that is not the principal's, see [chat.SessionKey.UsableBy].
func (d *Dispatcher) mayUse(ctx context.Context, key chat.SessionKey, principal string) error {
	s, err := d.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !key.UsableBy(principal, s.Principal, !absent):
		return notTheirs(key)
	}
	return nil
}

// mayChange refuses to change a session as a whole to a caller who may not, see [chat.Caller.MayChange].
func (d *Dispatcher) mayChange(ctx context.Context, key chat.SessionKey, by chat.Caller) error {
	s, err := d.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !by.MayChange(key, s.Principal, !absent):
		return chat.MissingScope(chat.ScopeAdmin)
	}
	return nil
}

// notMade refuses, without asking the store, to make a session whose key is made of the identity of somebody else.
func notMade(key chat.SessionKey, by chat.Caller) error {
	if by.Own && key.RightOf(by.Principal) == chat.RightNone {
		return notTheirs(key)
	}
	return nil
}

// rightful gives a session to whom its key is made for, when somebody else had made it before: an operator, who sees it all the same, or
// somebody who was waiting for it, and hears nothing from here on.
func (d *Dispatcher) rightful(ctx context.Context, m chat.Message, acc *store.Accepted) {
	was := acc.Principal
	if was == m.Principal || m.Session.RightOf(m.Principal) != chat.RightMine || m.Session.RightOf(was) == chat.RightMine {
		return
	}
	acc.Principal = m.Principal // whatever the store says: the events of this message are not for the other one
	err := d.store.GiveSession(ctx, m.Session, was, m.Principal)
	if err != nil {
		d.log.ErrorContext(ctx, "a session stays with somebody who is not the one that its key names, until the next message",
			"session", m.Session.String(), "owner", was, "rightful", m.Principal, "err", err)
		return
	}
	d.log.WarnContext(ctx, "a session was made by somebody else than its key names, and now belongs to the one who is named",
		"session", m.Session.String(), "made_by", was, "owner", m.Principal)
}
