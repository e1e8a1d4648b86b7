package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// access decides which sessions a caller may use and change.
type access struct {
	*parts

	named map[chat.SessionKey]namedSession // by the configuration; written before this process accepts messages
}

// namedSession is a session that the configuration names: for which principal, and since when.
type namedSession struct {
	principal string
	at        time.Time
}

// name creates the sessions that the configuration names, so that no other principal makes them before their first message.
func (a *access) name(ctx context.Context, names map[chat.SessionKey]string) error {
	a.named = make(map[chat.SessionKey]namedSession, len(names))
	for key, principal := range names {
		at, err := a.store.NameSession(ctx, key, principal)
		if err != nil {
			return fmt.Errorf("creating the session %s of %s: %w", key, principal, err)
		}
		a.named[key] = namedSession{principal, at}
	}
	return nil
}

// notTheirs returns the error for a session of another principal. It is the same as for a session that does not exist.
func notTheirs(key chat.SessionKey) error {
	return chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
}

// notMade refuses, without a query, to create a session whose key contains the identity of another principal.
func notMade(key chat.SessionKey, by chat.Caller) error {
	if by.Own && key.RightOf(by.Principal) == chat.RightNone {
		return notTheirs(key)
	}
	return nil
}

// mayUse returns an error for a session that the principal may not use, see [chat.SessionKey.UsableBy].
func (a *access) mayUse(ctx context.Context, key chat.SessionKey, principal string) error {
	s, err := a.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !key.UsableBy(principal, s.Principal, !absent):
		return notTheirs(key)
	}
	return nil
}

// mayChange returns an error for a caller who may not change the whole session, see [chat.Caller.MayChange].
func (a *access) mayChange(ctx context.Context, key chat.SessionKey, by chat.Caller) error {
	s, err := a.store.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	switch {
	case err != nil && !absent:
		return err
	case !by.MayChange(key, s.Principal, !absent):
		return chat.MissingScope(chat.ScopeAdmin)
	}
	return nil
}

// accept makes a message durable, see [store.Inbox], and corrects the owner of its session.
func (a *access) accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if named := a.named[p.Message.Session]; named.principal == p.Message.Principal {
		p.NamedAt = named.at
	}
	acc, err := a.store.Accept(ctx, p)
	if errors.Is(err, chat.ErrSessionNotFound) {
		if !p.NamedAt.IsZero() {
			a.log.ErrorContext(ctx, "session_taken: another principal has made a session since the configuration named it; nothing was written there",
				"session", p.Message.Session.String(), "principal", p.Message.Principal)
		}
		return acc, notTheirs(p.Message.Session)
	}
	if err == nil && !acc.Duplicate {
		a.correctOwner(ctx, p.Message, &acc)
	}
	return acc, err
}

// correctOwner transfers a session to the principal in its key when another one created it earlier. That was an operator, who still sees
// it, or a principal that used the name first, which receives no further events of it.
func (a *access) correctOwner(ctx context.Context, m chat.Message, acc *store.Accepted) {
	was := acc.Principal
	if was == m.Principal || m.Session.RightOf(m.Principal) != chat.RightMine || m.Session.RightOf(was) == chat.RightMine {
		return
	}
	acc.Principal = m.Principal // even when the write fails: the other principal must not receive the events of this message
	err := a.store.GiveSession(ctx, m.Session, was, m.Principal)
	if err != nil {
		a.log.ErrorContext(ctx, "a session is owned by another principal than the one in its key, until the next message",
			"session", m.Session.String(), "owner", was, "named", m.Principal, "err", err)
		return
	}
	a.log.WarnContext(ctx, "a session was made by another principal than the one in its key, which owns it now",
		"session", m.Session.String(), "made_by", was, "owner", m.Principal)
}
