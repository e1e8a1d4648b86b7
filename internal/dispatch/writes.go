package dispatch

import (
	"errors"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

// writeHold is how long this process is not ready after the store refused a message. It is limited, because a process that is not ready
// receives no messages and would never recover otherwise.
const writeHold = 10 * time.Second

// writeRecord records whether the store accepted the last message. A database whose disk is full, or that refuses a table, answers reads
// and connection checks; only the refusal of a message shows it.
type writeRecord struct{ failed atomic.Pointer[failedWrite] }

type failedWrite struct {
	err error
	at  time.Time
}

// note records the result of an Accept. Refusals of the message itself are ignored.
func (w *writeRecord) note(err error) {
	switch {
	case err == nil:
		w.failed.Store(nil)
	case errors.Is(err, chat.ErrStoreUnavailable):
		w.failed.Store(&failedWrite{err: err, at: time.Now()})
	}
}

// fault returns the refusal of the last message; nil when it was stored, or when the refusal is older than writeHold.
func (w *writeRecord) fault() error {
	last := w.failed.Load()
	if last == nil || time.Since(last.at) > writeHold {
		return nil
	}
	return last.err
}
