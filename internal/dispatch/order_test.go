package dispatch_test

import (
	"fmt"
	"strconv"
	"testing"

	"laneway/internal/chat"
)

// Two processes take in what one person types; the one that owns the session learns of the other's messages later. None may pass its
// predecessor by sharing the turn of a message before that.
func TestABatchDoesNotPassWhatAnotherProcessTookIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore()
		owner, other := open(t, st, lanes(1)), open(t, st, lanes(1))
		owner.send("elsewhere", "sleep 10s") // nothing of the session starts before all of it is known
		owner.send("main", "1")
		last := ""
		for i, h := range []*house{other, owner, other} {
			change := []func(*chat.Message){func(m *chat.Message) { m.ID = fmt.Sprint("c", i) }}
			if h == other {
				change = append(change, typed)
			}
			last = h.send("main", strconv.Itoa(i+2), change...)
		}
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), []string{"1", "2", "3", "4"})
		other.close()
		owner.close()
	})
}
