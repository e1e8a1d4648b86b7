package dispatch

import (
	"errors"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

// writeHold is how long this process counts as not ready after the store refused a message. It is a bound, so that a process which gets no messages
// because it is not ready is tried again.
const writeHold = 10 * time.Second

// writeRecord remembers whether the store took the last message. A database whose disk is full, or that refuses a table, answers reads and the check of the
// connection; only the refusal of a message shows it.
type writeRecord struct{ failed atomic.Pointer[failedWrite] }

type failedWrite struct {
	err error
	at  time.Time
}

// note records the result of an Accept. Refusals of the message itself say nothing about the store.
func (w *writeRecord) note(err error) {
	switch {
	case err == nil:
		w.failed.Store(nil)
	case errors.Is(err, chat.ErrStoreUnavailable):
		w.failed.Store(&failedWrite{err: err, at: time.Now()})
	}
}

// fault is the refusal of the last message; nil when it was stored, or when the refusal is older than writeHold.
func (w *writeRecord) fault() error {
	last := w.failed.Load()
	if last == nil || time.Since(last.at) > writeHold {
		return nil
	}
	return last.err
}
