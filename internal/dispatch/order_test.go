package dispatch_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// Two processes take in what one person types; the one that owns the session learns of the other's messages later. None may pass its
// predecessor by sharing the turn of a message before that.
func TestABatchDoesNotPassWhatAnotherProcessTookIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(1)), open(t, st, lanes(1))
		owner.send("elsewhere", "sleep 10s") // nothing of the session starts before all of it is known
		owner.send("main", "1")
		last := ""
		for i, h := range []*harness{other, owner, other} {
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

// The owner has parked its own message behind one that another process took in and then stopped; what that process took in later must not
// pass it when the hints are read, although nothing of the session runs then.
func TestHintsDoNotPassWhatIsParked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st), open(t, st)
		owner.send("main", "sleep 1ms")
		named := func(id string) func(*chat.Message) { return func(m *chat.Message) { m.ID = id } }
		other.send("main", "2", named("other2"))
		owner.send("main", "3")
		if _, err := other.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopRun, MessageID: "other2", By: "tester"}); err != nil {
			t.Fatal(err)
		}
		last := other.send("main", "4", named("other4"))
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), []string{"sleep 1ms", "3", "4"})
		other.close()
		owner.close()
	})
}

// The lease is lost while a turn that ignores its context runs, and the same process takes the session over and runs the message again beside it. The
// grace of the old turn ends then, which must not touch the new one.
func TestAStuckTurnOfALostLeaseLeavesItsSuccessorAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st, off := cord(newStore(t))
		h := open(t, st, func(c *dispatch.Config) {
			c.Lease, c.Heartbeat, c.Sweep = 5*time.Second, time.Second, 200*time.Millisecond
		})
		id := h.send("box:group:1", "deaf 8s")
		time.Sleep(1500 * time.Millisecond)
		off.Store(true)
		time.Sleep(4 * time.Second)
		off.Store(false)
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeAnswered)
		want(t, "calls", len(h.runner.texts()), 2)
		h.close()
	})
}
