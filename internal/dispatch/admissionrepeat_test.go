package dispatch_test

import (
	"errors"
	"testing"

	"laneway/internal/chat"
)

// While the sender has the maximum number of waiting messages, the test repeats an accepted message and sends one that reuses a key. The
// repetition returns the existing message, the reused key is refused as such, and a new message is refused by the limit.
func TestARepeatedMessageIsAnsweredAtTheBoundOfItsSender(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		messages := make([]chat.Message, 3)
		for i := range messages {
			messages[i] = h.msg("agent:main:lab-"+string(rune('a'+i)), "sleep 1h")
			messages[i].Dedupe, messages[i].ParamsHash = "lab/"+messages[i].ID, "hash"
			if _, err := h.d.ReceiveFrom(t.Context(), messages[i], lab()); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range messages {
			again, err := h.d.ReceiveFrom(t.Context(), m, lab())
			if err != nil {
				t.Errorf("a repetition is refused: %v", err)
			}
			want(t, "duplicate", again.Duplicate, true)
			want(t, "run", again.RunID, m.ID)
			m.ParamsHash = "another"
			if _, err := h.d.ReceiveFrom(t.Context(), m, lab()); !errors.Is(err, chat.ErrKeyReused) {
				t.Errorf("another message under the key: %v, want %v", err, chat.ErrKeyReused)
			}
		}
		_, err := h.sendAs(lab(), 1, "hello")
		var refused *chat.Error
		if !errors.As(err, &refused) || refused.Code != chat.CodeRateLimited {
			t.Errorf("a new message at the bound: %v, want %s", err, chat.CodeRateLimited)
		}
	}, lanes(8), bounds(1, 2, 0))
}
