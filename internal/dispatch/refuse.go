package dispatch

import (
	"context"
	"errors"
	"fmt"

	"laneway/internal/chat"
)

// notTheirs is the refusal of a session that belongs to somebody else; it reads as if there were none.
func notTheirs(key chat.SessionKey) error {
	return chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
}

// queueFull is the refusal of a message that finds as many waiting as may wait.
func queueFull(limit int) error {
	e := *chat.ErrQueueFull
	wait := "messages wait"
	if limit == 1 {
		wait = "message waits"
	}
	e.Message = fmt.Sprintf("%d %s here already; send it again after the next answer, or stop the running turn", limit, wait)
	return e.With("cap", limit)
}

// mayUse refuses a session that belongs to somebody else; one that nobody made yet is free.
func (d *Dispatcher) mayUse(ctx context.Context, key chat.SessionKey, principal string) error {
	s, err := d.store.Session(ctx, key, "")
	switch {
	case errors.Is(err, chat.ErrSessionNotFound):
		return nil
	case err != nil:
		return err
	case s.Principal != principal:
		return notTheirs(key)
	}
	return nil
}
