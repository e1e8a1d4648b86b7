package teste2e

import (
	"sync/atomic"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// TestAChatWaitsForItsLaneLikeOtherClients: two people in Telegram and a program on a socket share a lane of one slot. Each is answered, one after the
// other; one whose socket or poll is over meanwhile is answered, too; and the channel's own queue takes no more than its own cap.
func TestAChatWaitsForItsLaneLikeOtherClients(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\n    queue: {mode: queue, cap: 2, drop: new, debounce_ms: 0}\n", testtelegram.Config{Drafts: true})
		c.env = append(c.env, "LANEWAY_LANE_MAIN=1")
		var calls atomic.Int64
		gate := make(chan struct{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if calls.Add(1) == 1 {
				<-gate
			}
			return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
		})
		c.Start()
		o := OpenOracle(t, c.Gateway, database)
		c.Telegram.Say(anna, anna, "one")
		testrun.Eventually(t, "the first turn runs", func() bool { return calls.Load() == 1 })
		for i, text := range []string{"two", "three"} {
			c.Telegram.Say(anna, anna, text)
			testrun.Eventually(t, text+" waits", func() bool {
				return o.Count("SELECT count(*) FROM inbox WHERE state = 'waiting'") == i+1
			})
		}
		c.Telegram.Say(anna, anna, "four")
		c.Says(anna, "This was not taken: 2 messages wait here already; send it again after the next answer, or stop the running turn.")
		c.Telegram.Say(bob, bob, "hello from Bob")
		socket := mustDial(t, c.Gateway, nil)
		for _, id := range []string{"w1", "w2", "w3", "w4"} { // more than the channel's cap: other doors have their own
			say(t, socket, "agent:main:web", id, "web "+id)
		}
		socket.Close()
		testrun.Eventually(t, "Bob waits", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state = 'waiting'") == 7 })
		if n := calls.Load(); n != 1 {
			t.Errorf("%d turns began in a lane of one slot", n)
		}
		close(gate)
		c.Await("both are answered", func() bool {
			return c.Count(anna, "You said: three") == 1 && c.Count(bob, "You said: hello from Bob") == 1
		})
		c.rest()
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"); n != 8 {
			t.Errorf("%d are answered, want 8", n)
		}
		if n := o.Count("SELECT count(*) FROM runs a JOIN runs b ON a.id < b.id AND a.started_at < b.ended_at AND b.started_at < a.ended_at"); n != 0 {
			t.Errorf("%d pairs of turns overlapped in a lane of one slot", n)
		}
		c.Close()
	})
}
