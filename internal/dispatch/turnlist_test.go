package dispatch_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// waitsOf returns what the open turns wait for, by the text of their message; "" = only for their agent.
func (h *harness) waitsOf(f store.TurnFilter) map[string]chat.Waiting {
	h.t.Helper()
	list, waits, err := h.d.Turns(h.t.Context(), f)
	if err != nil {
		h.t.Fatal(err)
	}
	by := map[string]chat.Waiting{}
	for _, t := range list {
		by[t.Text] = waits[t.ID]
	}
	return by
}

func wantWaits(t *testing.T, got, expect map[string]chat.Waiting) {
	t.Helper()
	if !maps.Equal(got, expect) {
		t.Errorf("open turns wait for\n%+v, want\n%+v", got, expect)
	}
}

func TestOpenTurnsSayWhatTheyWaitFor(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		runs := h.send("main", "sleep 1h")
		h.send("main", "after it")
		h.send("two", "in the lane")
		h.send("three", "after that")
		h.send("four", "typing", typed)
		synctest.Wait()
		wantWaits(t, h.waitsOf(store.TurnFilter{}), map[string]chat.Waiting{
			"sleep 1h": {}, "after it": {Cause: chat.WaitSession, Position: 1, BlockedBy: runs}, "in the lane": {Cause: chat.WaitLane, Position: 1},
			"after that": {Cause: chat.WaitLane, Position: 2}, "typing": {Cause: chat.WaitDebounce, Until: time.Now().Add(3 * time.Second)},
		})
		if _, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopRun, MessageID: runs}); err != nil {
			t.Fatal(err)
		}
	}, lanes(1), queue(dispatch.QueueRules{Settings: scheduler.Settings{Debounce: 3 * time.Second, MaxConcurrent: 1}}))
}

func TestATurnThatAsksWaitsForItsPerson(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send(askerChat, "go", askerMessage("7"))
		h.asked(0)
		wantWaits(t, h.waitsOf(store.TurnFilter{Which: store.TurnsRunning}), map[string]chat.Waiting{"go": {Cause: chat.WaitQuestion}})
		h.by7(texts(h.asked(0))[0])
		h.end(id)
		want(t, "after the answer", len(h.waitsOf(store.TurnFilter{})), 0)
	}, runBy(asks{}))
}

func TestARunBetweenTwoAttemptsWaitsForTheNextOne(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.put(once("failing", "fail", time.Second))
		after(1500 * time.Millisecond)
		var next time.Time
		for text, w := range h.waitsOf(store.TurnFilter{Which: store.TurnsWaiting}) {
			if text != "failing" || w.Cause != chat.WaitRetry || !w.Until.After(time.Now()) {
				t.Errorf("%s waits for %+v", text, w)
			}
			next = w.Until
		}
		want(t, "found", next.IsZero(), false)
		want(t, "in the lane main", len(h.waitsOf(store.TurnFilter{Lane: "main"})), 0)
		want(t, "that run", len(h.waitsOf(store.TurnFilter{Which: store.TurnsRunning})), 0)
	})
}
