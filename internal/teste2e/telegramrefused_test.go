package teste2e

import (
	"strconv"
	"sync/atomic"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// A full queue refuses several messages of a person. They receive one notice per burst, with the number, and another one when more are
// refused later.
func TestRefusalsOfAFullQueueAreReportedWithTheirNumber(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\n    queue: {mode: queue, cap: 1, drop: new, debounce_ms: 0}\n", testtelegram.Config{Drafts: true})
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
		c.Telegram.Say(anna, anna, "two")
		testrun.Eventually(t, "two waits", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state = 'waiting'") == 1 })
		for i := range 4 {
			c.Telegram.Say(anna, anna, strconv.Itoa(i))
		}
		const rest = " 1 message waits here already; send "
		c.Says(anna, "4 messages were not taken:"+rest+"them again after the next answer, or stop the running turn.")
		c.Telegram.Say(anna, anna, "later")
		c.Says(anna, "This was not taken:"+rest+"it again after the next answer, or stop the running turn.")
		close(gate)
		c.Await("the one that waited is answered", func() bool { return c.Count(anna, "You said: two") == 1 })
		c.rest()
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"); n != 2 {
			t.Errorf("%d are answered, want 2", n)
		}
		c.Close()
	})
}
