package teste2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// passing returns n calls without a fault, to be put between the faults of a queue.
func passing(n int) []testtelegram.Fault {
	return hanging(n, testtelegram.Fault{Delay: time.Millisecond})
}

// wantOrder checks that every sender received the answers to its messages once each, in the order of the messages.
func (c *Chatroom) wantOrder(people, messages int) {
	c.t.Helper()
	for i := range people {
		var got []string
		for _, text := range c.Telegram.Texts(personOf(i)) {
			if rest, ok := strings.CutPrefix(text, "You said: "); ok {
				got = append(got, strings.Split(rest, "\n")...)
			}
		}
		want := make([]string, messages)
		for m := range want {
			want[m] = fmt.Sprintf("message %d of %d.", m, i)
		}
		if !slices.Equal(got, want) {
			c.t.Errorf("person %d reads %q, want %q", i, got, want)
		}
	}
}

// A fifth of all sends is refused with a time to wait. Nothing is lost or duplicated, every chat keeps its order, and the server receives
// no call during such a time (Close checks).
func TestAFifthOfTheSendsIsFlooded(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "    queue: {debounce_ms: 0}\n")
		const people, messages = 10, 4
		for i := range 40 {
			c.Telegram.Break("sendMessage", append(passing(4), testtelegram.Flood(1+i%3))...)
		}
		c.Start()
		began := time.Now()
		for m := range messages {
			for i := range people {
				c.Telegram.Say(personOf(i), personOf(i), fmt.Sprintf("message %d of %d.", m, i))
			}
		}
		c.Await("every person is answered", func() bool {
			for i := range people {
				if c.Count(personOf(i), fmt.Sprintf("message %d of %d.", messages-1, i)) == 0 {
					return false
				}
			}
			return true
		})
		c.rest()
		c.wantOrder(people, messages)
		floods := 0
		for _, call := range c.Telegram.Calls("sendMessage") {
			if call.Code == 429 {
				floods++
			}
		}
		if floods < 3 {
			t.Errorf("only %d sends were flooded", floods)
		}
		t.Logf("%d messages answered through %d floods in %s", people*messages, floods, time.Since(began).Round(time.Millisecond))
		c.Close()
	})
}

// Another process polls with the same token for a while. The state shows that; the bot stops polling and starts again when it can.
func TestASecondPollerIsOutlived(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.Break("getUpdates", hanging(1, testtelegram.Refuse(409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"))...)
		c.Telegram.OtherPoller()
		ctx := withTimeout(t, 2*time.Minute)
		testrun.Eventually(t, "status says that another program polls", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return strings.Contains(out, "conflict")
		})
		c.Telegram.Say(anna, anna, "who has you?")
		began := time.Now()
		c.wantOnce("who has you?")
		t.Logf("answered after %s", time.Since(began).Round(time.Millisecond))
		if left := c.Telegram.Faults("getUpdates"); left != 0 {
			t.Errorf("%d conflicts were not met", left)
		}
		testrun.Eventually(t, "status says that all is well", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return !strings.Contains(out, "conflict")
		})
		c.Close()
	})
}

// One person writes continuously. They receive one notice that it is too much; the answers of others are not affected.
func TestAFloodOfOnePersonIsTheirOwn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "")
		c.Start()
		c.Await("a poll that waits", c.Telegram.Polling)
		const flood, others = 200, 20
		for i := range flood {
			c.Telegram.Say(anna, anna, fmt.Sprintf("and %d", i))
		}
		began := time.Now()
		for i := range others {
			c.Telegram.Say(personOf(i), personOf(i), questionOf(i))
		}
		c.Await("the others are answered", func() bool {
			for i := range others {
				if c.Count(personOf(i), questionOf(i)) == 0 {
					return false
				}
			}
			return true
		})
		took := time.Since(began)
		testrun.Eventually(t, "every update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
		oracle := OpenOracle(t, c.Gateway, database)
		if n := oracle.Count("SELECT count(*) FROM inbox WHERE principal LIKE 'telegram:%:7'"); n != 20 {
			t.Errorf("%d messages of the flood were taken; 20 a minute are allowed", n)
		}
		c.Await("the one who writes too much is told", func() bool { return c.Count(anna, "You write faster") > 0 })
		c.rest()
		if n := c.Count(anna, "You write faster"); n != 1 {
			t.Errorf("told %d times", n)
		}
		t.Logf("%d others were answered %s after a flood of %d", others, took.Round(time.Millisecond), flood)
		c.Close()
	})
}
