package conversation

import (
	"context"
	"errors"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
)

// SessionReader reads one session, if the principal visible may see it ("" = every principal); chat.ErrSessionNotFound.
type SessionReader interface {
	Session(ctx context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error)
}

// usable reports whether a principal may use a session: one that sees only its own data needs a right to it, see
// [chat.SessionKey.UsableBy].
func usable(ctx context.Context, backend SessionReader, cred auth.Credential, key chat.SessionKey) (bool, error) {
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

// MayUse returns an error for a session that the principal may not use.
func MayUse(ctx context.Context, backend SessionReader, cred auth.Credential, key chat.SessionKey) error {
	ok, err := usable(ctx, backend, cred, key)
	if err == nil && !ok {
		err = chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return err
}

// mayUse returns an error for a session that the caller may not use, for a call that would write into it.
func (h handlers) mayUse(ctx context.Context, c *rpc.Call, key chat.SessionKey) error {
	return MayUse(ctx, h.backend, c.Cred, key)
}

// view is a session as one caller sees it. A session that the caller may not use is empty, like one that does not exist.
type view struct {
	Backend

	key    chat.SessionKey
	hidden bool
}

// lookAt prepares a call that only reads a session, or ends work in it.
func (h handlers) lookAt(ctx context.Context, c *rpc.Call, key chat.SessionKey) (view, error) {
	ok, err := usable(ctx, h.backend, c.Cred, key)
	if !ok {
		return view{nowhere{h.backend}, key, true}, err
	}
	return view{h.backend, key, false}, err
}

// nowhere is a backend without sessions.
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
