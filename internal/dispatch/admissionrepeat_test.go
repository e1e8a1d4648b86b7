package dispatch_test

import (
	"errors"
	"testing"

	"laneway/internal/chat"
)

// TestARepeatedMessageIsAnsweredAtTheBoundOfItsSender repeats an accepted message, and offers one whose key stands for another, while as many messages of
// the sender wait as may wait: the repetition ends at the message that is there, the other is refused as a reused key, and a new one by the bound.
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
