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

// passing is a call that nothing happens to; it stands between the faults of a queue.
func passing(n int) []testtelegram.Fault {
	return hanging(n, testtelegram.Fault{Delay: time.Millisecond})
}

// wantOrder holds that every sender got the answers to its messages once each, in the order of the messages.
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

// A fifth of all sends is refused with a time to wait. Nothing is lost or comes twice, every chat keeps its order, and the server sees no call
// inside of such a time (Close looks).
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

// Nothing of Telegram answers for a while, in the middle of the day. Other doors and cron do not notice; the first message is answered within
// fifteen seconds of the end.
func TestTelegramGoesAwayAndComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.Say(anna, anna, "before")
		c.Says(anna, "before")
		ctx := withTimeout(t, 2*time.Minute)
		if out, errs, code := c.CLI(ctx, "", "cron", "add", "--every", "1s", "--name", "tick", "--message", "tick"); code != 0 {
			t.Fatalf("cron add: %q %q", out, errs)
		}
		c.Telegram.BreakAlways(testtelegram.Fault{Reset: true})
		c.Telegram.Say(anna, anna, "during, one")
		testrun.Eventually(t, "status shows that the bot is not connected", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return strings.Contains(out, "degraded")
		})
		oracle := OpenOracle(t, c.Gateway, database)
		fired := oracle.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'")
		if out, errs, code := c.CLI(ctx, "", "send", "hello"); !strings.Contains(out, "hello") || code != 0 {
			t.Errorf("send: %q %q", out, errs)
		}
		testrun.Eventually(t, "cron goes on", func() bool {
			return oracle.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") >= fired+3
		})
		if code, body := c.Get("/readyz"); code != 200 {
			t.Errorf("/readyz: %d %s", code, body)
		}
		c.Telegram.Say(anna, anna, "during, two")
		c.Telegram.Mend()
		healed := time.Now()
		c.Says(anna, "during, two")
		took := time.Since(healed)
		if took > 15*time.Second {
			t.Errorf("answered %s after Telegram was back", took)
		}
		c.rest()
		for _, text := range []string{"before", "during, one", "during, two"} {
			if n := c.Count(anna, text); n != 1 {
				t.Errorf("%q was answered %d times", text, n)
			}
		}
		t.Logf("answered %s after Telegram was back", took.Round(time.Millisecond))
		c.Close()
	})
}

// Another process polls with the same token for a while. The state shows it, the bot stops polling and starts again when it can.
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

// What comes is no JSON, the page of a proxy, half an answer, fifty megabytes of nothing, an update of an unknown kind, one whose
// number jumps: the message behind it is answered, once.
func TestOddAnswersOfTelegramDelayAndLoseNothing(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		before := c.rss()
		c.Telegram.Break("getUpdates",
			testtelegram.Fault{Garbage: true}, testtelegram.Fault{HTML: 502}, testtelegram.Fault{Cut: true}, testtelegram.Fault{Huge: 50 << 20})
		c.Telegram.OtherPoller() // the call that waits ends, the next ones meet the faults
		first := c.Telegram.Push(map[string]any{"a_kind_of_tomorrow": map[string]any{"id": 1}})
		c.Telegram.PushRaw(first+1, fmt.Sprintf(`{"update_id":%d,"message":{"message_id":"five","chat":7}}`, first+1))
		jumped := c.Telegram.Message(anna, anna, "is it over?")
		jumped["update_id"] = first + 1_000_000
		c.Telegram.Push(jumped)
		began := time.Now()
		c.wantOnce("is it over?")
		if left := c.Telegram.Faults("getUpdates"); left != 0 {
			t.Errorf("%d odd answers were not met", left)
		}
		testrun.Eventually(t, "every update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
		grown := (c.rss() - before) >> 20
		if len(raceFlag()) == 0 && grown > 32 { // the race detector takes its share
			t.Errorf("memory grew by %d MB", grown)
		}
		t.Logf("answered after %s, memory +%d MB", time.Since(began).Round(time.Millisecond), grown)
		c.Close()
	})
}

// Telegram cannot read the format, finds the text too long, or has moved the group: the answer arrives all the same, once.
func TestRefusedSendsFindAnotherWay(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		const group, moved = int64(-1009), int64(-1010)
		c := openChatroom(t, database, fmt.Sprintf("    allow: [7]\n    groups: [%d]\n    members: any\n    activation: always\n", group), testtelegram.Config{Drafts: true})
		c.Model.Answer(storyteller)
		c.Telegram.AddGroup(group, "Family")
		c.Telegram.Break("sendMessage", testtelegram.Refuse(400, "Bad Request: can't parse entities: Unsupported start tag"))
		c.Start()
		c.Telegram.Say(anna, anna, "one *bold* word")
		c.Says(anna, "one")
		c.rest()
		c.Telegram.Break("sendMessage", testtelegram.Refuse(400, "Bad Request: message is too long"))
		long := strings.TrimSpace(strings.Repeat("two words ", 200))
		c.Telegram.Say(anna, anna, long)
		c.Await("the long answer in parts", func() bool {
			return strings.Count(strings.Join(c.Telegram.Texts(anna), " "), "two words") >= 200
		})
		c.rest()
		if n := strings.Count(strings.Join(c.Telegram.Texts(anna), " "), "two words"); n != 200 {
			t.Errorf("the long answer has %d of 200 pieces", n)
		}
		c.Telegram.Migrate(group, moved)
		c.Telegram.Say(group, anna, "three")
		c.Says(moved, "three")
		c.rest()
		oracle := OpenOracle(t, c.Gateway, database)
		if bad := oracle.Rows("SELECT id, state FROM outbox WHERE state <> 'delivered'"); len(bad) > 0 {
			t.Errorf("not delivered: %q", bad)
		}
		c.Close()
	})
}

// One person writes without end. They are told once that it is too much; the others' answers come as if nothing were.
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
