package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
)

// A task ends while messages wait in a group of a channel with its own rules: one turn at a time, and waiting messages are collected.
func TestAnAnnouncementChangesNoRuleOfItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), func(c *dispatch.Config) {
			c.Queue = func(_, channel, _ string) dispatch.QueueRules {
				if channel == "box" {
					return dispatch.QueueRules{Settings: scheduler.Settings{MaxConcurrent: 1, Mode: scheduler.ModeCollect}}
				}
				return dispatch.QueueRules{Settings: scheduler.Settings{MaxConcurrent: 3}}
			}
		})
		defer h.close()
		const session = "agent:main:box:group:5"
		h.end(h.send(session, calling(spawns("sleep 5s", false)), replyTo("5")))
		h.send(session, "sleep 20s", replyTo("5"))
		time.Sleep(time.Second)
		h.send(session, "one", replyTo("5"))
		last := h.send(session, "two", replyTo("5"))
		want(t, "outcome", h.end(last).Outcome, chat.OutcomeAnswered)
		time.Sleep(10 * time.Second)
		texts := b.textsOf(session)
		want(t, "turns", len(texts), 4)
		want(t, "what was collected", texts[2], "one\ntwo")
		want(t, "the announcement", strings.HasPrefix(texts[3], "The task "), true)
		want(t, "turns at once", b.most[session], 1)
	})
}

// A task ends while a turn of its session runs.
func TestAnAnnouncementWaitsInAnyMode(t *testing.T) {
	for _, mode := range scheduler.QueueModes() {
		t.Run(string(mode), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := &branching{}
				h := open(t, newStore(t), team(b), queue(dispatch.QueueRules{Settings: scheduler.Settings{Mode: mode}}))
				defer h.close()
				const session = "agent:main:own"
				h.end(h.send(session, calling(spawns("sleep 5s", false))))
				want(t, "the turn that runs meanwhile", h.end(h.send(session, "sleep 20s")).Outcome, chat.OutcomeAnswered)
				time.Sleep(10 * time.Second)
				texts := b.textsOf(session)
				if len(texts) != 3 || !slices.ContainsFunc(texts[2:], func(text string) bool { return strings.HasPrefix(text, "The task ") }) {
					t.Errorf("turns: %q", texts)
				}
			})
		})
	}
}

// A call that waits for a task ends before the task, while another turn has the slot of its turn.
func TestATurnWhoseCallEndsEarlyGoesOnWithASlot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := &branching{}
		h := open(t, newStore(t), team(b), lanes(1))
		defer h.close()
		call := delegated("sleep 5m")
		call.Within = 10 * time.Second
		begin := time.Now()
		id := h.send("agent:main:own", calling(call))
		time.Sleep(time.Second)
		other := h.send("agent:main:other", "sleep 1m")
		want(t, "the turn", h.end(id).Outcome, chat.OutcomeAnswered)
		if took := time.Since(begin); took < time.Minute {
			t.Errorf("the turn continued after %v, while the only slot of its lane was used", took)
		}
		want(t, "the other turn", h.end(other).Outcome, chat.OutcomeAnswered)
		h.wantSlots()
	})
}
