package gateway

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
)

// usable reports whether a principal may use a session: one that sees its own only needs a right to it, see [chat.SessionKey.UsableBy].
func usable(ctx context.Context, backend Backend, cred auth.Credential, key chat.SessionKey) (bool, error) {
	if !cred.Own() {
		return true, nil
	}
	st, err := backend.Session(ctx, key, "")
	absent := errors.Is(err, chat.ErrSessionNotFound)
	if err != nil && !absent {
		return false, err
	}
	return key.UsableBy(cred.Name, st.Principal, !absent), nil
}

// mayUse refuses a session that the principal may not use.
func mayUse(ctx context.Context, backend Backend, cred auth.Credential, key chat.SessionKey) error {
	ok, err := usable(ctx, backend, cred, key)
	if err == nil && !ok {
		err = chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return err
}

// mayUse refuses a session that is not the caller's to a call that would write into it.
func (c *call) mayUse(ctx context.Context, key chat.SessionKey) error {
	return mayUse(ctx, c.srv.backend, c.who.cred, key)
}

// lookAt prepares a call that only looks at a session, or ends what is in it: one that is not the caller's is answered as one that is not there, by
// [call.reader] and by whoever asks for hidden.
func (c *call) lookAt(ctx context.Context, key chat.SessionKey) error {
	ok, err := usable(ctx, c.srv.backend, c.who.cred, key)
	c.hidden = !ok
	return err
}

// reader is where a call reads its session.
func (c *call) reader() Backend {
	if c.hidden {
		return nowhere{c.srv.backend}
	}
	return c.srv.backend
}

// nowhere is a backend in which no session is.
type nowhere struct{ Backend }

func (nowhere) InFlight(chat.SessionKey) (chat.InFlight, bool) { return chat.InFlight{}, false }

func (nowhere) Session(context.Context, chat.SessionKey, string) (chat.SessionStatus, error) {
	return chat.SessionStatus{}, chat.ErrSessionNotFound
}

func (nowhere) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{}, nil
}

func (nowhere) PendingInputs(context.Context, chat.SessionKey, int64, int) ([]store.Waiting, int, error) {
	return nil, 0, nil
}
