package telegram_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/testtelegram"
)

// letIn approves the pairing of a person without a message.
func (h *home) letIn(person int64) {
	h.t.Helper()
	made, err := h.st.CreatePairing(h.t.Context(), channel.Peer{Channel: "telegram:123456789", UserID: person, ChatID: person}, "")
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.st.ApprovePairing(h.t.Context(), channel.PairingRef{ID: made.ID}, chat.ChangedBy{Who: "operator"}); err != nil {
		h.t.Fatal(err)
	}
}

// people adds n people who may talk and returns their numbers.
func (h *home) people(n int) []int64 {
	h.t.Helper()
	var all []int64
	for i := range n {
		id := int64(1000 + i)
		h.srv.AddPrivate(id, fmt.Sprintf("Person %d", i))
		h.letIn(id)
		all = append(all, id)
	}
	return all
}

// answers sends one question of each person, ten a second, and returns how long each waited for the answer, sorted.
func (h *home) answers(people []int64, question string) []time.Duration {
	h.t.Helper()
	asked := map[int64]time.Time{}
	for _, p := range people {
		asked[p] = time.Now()
		h.srv.Say(p, p, question)
		after(100 * time.Millisecond)
	}
	after(3 * time.Minute)
	var waits []time.Duration
	for _, p := range people {
		for _, m := range h.srv.Messages(p) {
			if strings.Contains(m.Text, question) {
				waits = append(waits, m.SentAt.Sub(asked[p]))
			}
		}
	}
	if len(waits) != len(people) {
		h.t.Fatalf("%d of %d people were answered", len(waits), len(people))
	}
	slices.Sort(waits)
	return waits
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// TestOnePersonsFloodIsTheirOwn: one person writes a thousand messages a minute; a hundred other people wait at most twice as long as without the
// flood.
func TestOnePersonsFloodIsTheirOwn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		people := h.people(100)
		h.letIn(bob)
		h.begin()
		calm := h.answers(people, "how are you")
		flood := make(chan struct{})
		go func() {
			defer close(flood)
			for i := range 1000 {
				h.srv.Say(bob, bob, fmt.Sprintf("flood %d", i))
				time.Sleep(60 * time.Millisecond)
			}
		}()
		busy := h.answers(people, "and now")
		<-flood
		t.Logf("others' p99: %s without, %s with the flood", p99(calm), p99(busy))
		if p99(busy) > 2*p99(calm) {
			t.Errorf("others wait %s (p99) beside the flood and %s without it", p99(busy), p99(calm))
		}
		read := strings.Join(h.srv.Texts(bob), " ")
		if !strings.Contains(read, "faster than I may read") {
			t.Error("the person who floods is not told")
		}
		h.end()
	})
}

// TestACooldownOfOneChatDelaysNoOther: one chat has a cooldown of ten minutes; every other chat is answered without delay.
func TestACooldownOfOneChatDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		people := h.people(50)
		h.letIn(bob)
		h.begin()
		calm := h.answers(people, "how are you")
		h.srv.Break("sendMessage", testtelegram.Flood(600))
		began := time.Now()
		for i := range 5 {
			h.srv.Say(bob, bob, fmt.Sprintf("bob %d", i))
			after(5 * time.Second)
		}
		busy := h.answers(people, "and now")
		t.Logf("others' p99: %s without, %s beside the chat with a cooldown", p99(calm), p99(busy))
		if p99(busy) > p99(calm)*3/2 {
			t.Errorf("others wait %s (p99) beside a chat with a cooldown and %s without it", p99(busy), p99(calm))
		}
		if n := len(h.srv.Texts(bob)); n != 0 {
			t.Errorf("bob reads %d messages within his cooldown", n)
		}
		after(10*time.Minute - time.Since(began) + time.Minute)
		got := h.srv.Texts(bob)
		for i := range 5 {
			if len(got) != 5 || !strings.Contains(got[i], fmt.Sprintf("bob %d", i)) {
				t.Fatalf("bob reads %q", got)
			}
		}
		h.end()
	})
}

// TestAWaitingMessageIsSeen: a message that waits for another turn receives a reaction after a moment; a message that is answered at once receives
// none.
func TestAWaitingMessageIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.letIn(anna)
		h.begin()
		h.srv.Say(anna, anna, "hello")
		after(10 * time.Second)
		if n := len(h.srv.Calls("setMessageReaction")); n != 0 {
			t.Errorf("%d signs under a message that was answered at once", n)
		}
		h.srv.Say(anna, anna, "think 1m done")
		after(5 * time.Second)
		h.srv.Say(anna, anna, "and this?")
		after(5 * time.Second)
		if n := len(h.srv.Calls("setMessageReaction")); n != 1 {
			t.Errorf("%d signs under a message that waits", n)
		}
		after(2 * time.Minute)
		h.wantLast("the answer", anna, "and this?")
		h.end()
	})
}

// TestACooldownOfTheBotUsesUpNoAttempts: Telegram asks the whole bot to wait; messages are retried after the cooldown, and not before.
func TestACooldownOfTheBotUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		people := h.people(20)
		h.begin()
		for i, p := range people {
			h.srv.Say(p, p, fmt.Sprintf("think %ds hello", 30+10*i))
		}
		after(2 * time.Second)
		h.srv.Break("getUpdates", testtelegram.Flood(300))
		h.srv.Say(anna, anna, "wakes the poll")
		after(6 * time.Minute)
		for _, p := range people {
			h.wantLast("after the cooldown", p, "hello")
		}
		if n := strings.Count(h.log.String(), "a message was not delivered"); n > 2 {
			t.Errorf("%d attempts were used up in the cooldown", n)
		}
		h.end()
	})
}

// TestGroupStopOwn: if people may stop only their own turns, a /stop of another person finds no turn.
func TestGroupStopOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHome(t)
		h.groupStop = "own"
		h.begin()
		say := func(who int64, text string) {
			h.srv.Say(group, who, "@lane_bot "+text, testtelegram.Mentioning(9))
			after(10 * time.Second) // a group accepts one message in three seconds, and each edit of the preview counts as one
		}
		say(anna, "/stop")
		h.wantLast("with nothing there", group, "nothing to stop")
		h.srv.Say(group, anna, "think 5m anna's", testtelegram.With("reply_to_message", map[string]any{
			"message_id": 1, "date": 1, "chat": map[string]any{"id": group, "type": "supergroup"}, "from": map[string]any{"id": 123456789, "is_bot": true, "first_name": "Lane"},
		}))
		after(3 * time.Second)
		say(bob, "/stop")
		h.wantLast("another person", group, "nothing to stop")
		say(bob, "/stopall")
		h.wantLast("another person, all", group, "nothing to stop")
		say(anna, "/stop")
		h.wantLast("her own", group, "Stopped the running turn")
		after(6 * time.Minute)
		if strings.Contains(strings.Join(h.srv.Texts(group), " "), "anna's") {
			t.Error("a stopped turn was answered")
		}
		h.end()
	})
}
