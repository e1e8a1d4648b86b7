package dispatch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
)

// A process that is not ready receives no messages, so no success can reset the state: it must expire by itself.
func TestARefusedWriteCountsForABoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w writeRecord
		w.note(chat.ErrStoreUnavailable)
		time.Sleep(writeHold)
		if !errors.Is(w.fault(), chat.ErrStoreUnavailable) {
			t.Error("the refusal was forgotten too early")
		}
		time.Sleep(time.Millisecond)
		if err := w.fault(); err != nil {
			t.Errorf("the refusal still counts: %v", err)
		}
		w.note(chat.ErrStoreUnavailable)
		w.note(chat.ErrQueueFull) // not a result of the store
		if w.fault() == nil {
			t.Error("the refusal of a message itself counts as a success of the store")
		}
		w.note(nil)
		if err := w.fault(); err != nil {
			t.Errorf("the refusal counts after a success: %v", err)
		}
	})
}
