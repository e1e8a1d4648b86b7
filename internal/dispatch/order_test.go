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

// Two processes receive what one person types. The owner of the session learns of the other's messages later. No message may overtake its
// predecessor by joining the turn of an earlier message.
func TestABatchDoesNotPassWhatAnotherProcessTookIn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(1)), open(t, st, lanes(1))
		owner.send("elsewhere", "sleep 10s") // no turn of the session starts before all its messages are known
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

// The owner has parked its message after one that another process received and then stopped. Later messages of that process must not
// overtake it when the hints are read, although no turn of the session is running.
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

// The lease is lost while a turn that ignores its context is running, and the same process takes over the session and repeats the message
// concurrently. When the grace period of the old turn ends, the new one must not be affected.
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

// roomy is a queue that holds many messages.
func roomy() option { return queue(dispatch.QueueRules{Cap: 10_000}) }

// More messages than one read returns wait in one session of the owner, and another replica accepted all of them. A message of another
// session must not wait for them.
func TestWaitingForeignMessagesHideNoOtherSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(2), roomy()), open(t, st, lanes(2), roomy())
		owner.send("main", "sleep 1h")
		owner.send("second", "sleep 3s")
		for range 250 {
			other.send("main", "later", func(m *chat.Message) { m.ID = "main" + m.ID })
		}
		sent := time.Now()
		id := other.send("second", "hello", func(m *chat.Message) { m.ID = "hello" })
		want(t, "outcome", owner.end(id).Outcome, chat.OutcomeAnswered)
		if waited := time.Since(sent); waited > 6*time.Second {
			t.Errorf("the message of the other session ended after %s", waited)
		}
		other.send("main", "/stopall")
		other.close()
		owner.close()
	})
}

// Two replicas accept messages of one session without any fault, more than one read returns.
func TestForeignMessagesKeepTheirPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		owner, other := open(t, st, lanes(1), roomy()), open(t, st, lanes(1), roomy())
		owner.send("main", "sleep 5s")
		expect, last := []string{"sleep 5s"}, ""
		for i := range 600 {
			h := other
			if i%3 == 0 {
				h = owner
			}
			if i%50 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			last = h.send("main", strconv.Itoa(i), func(m *chat.Message) { m.ID = fmt.Sprint("n", i) })
			expect = append(expect, strconv.Itoa(i))
		}
		want(t, "outcome of the last", owner.end(last).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", owner.runner.textsOf("agent:main:main"), expect)
		other.close()
		owner.close()
	})
}
