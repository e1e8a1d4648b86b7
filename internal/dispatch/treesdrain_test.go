package dispatch_test

import (
	"context"
	"testing"
	"time"

	"laneway/internal/chat"
)

// The process drains while turns wait for sub-turns, in lanes with one slot. A turn whose sub-turn runs ends normally. Turns whose
// sub-turns wait for the slot, directly or one level below, are left for the next process at once.
func TestADrainLeavesATurnWhoseSubTurnsMayNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, st := &branching{}, newStore(t)
		h := open(t, st, team(b), lanes(1))
		runs := h.send("agent:main:runs", calling(delegated("sleep 5s")))
		time.Sleep(time.Second)
		waits := h.send("agent:main:waits", calling(delegated("quick")))
		below := h.send("agent:main:below", calling(spawns(calling(delegated("quick too")), true)))
		time.Sleep(time.Second)

		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.d.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the drain took %s, want the 3s of the sub-turn that runs and a moment more", took)
		}
		want(t, "the turn whose sub-turn runs", h.end(runs).Outcome, chat.OutcomeAnswered)
		h.d.Leave(t.Context())
		h.cancel()
		<-h.ended

		next := open(t, st, team(b), lanes(1))
		defer next.close()
		want(t, "the turn whose sub-turn waited", next.end(waits).Text, "quick")
		want(t, "the turn above one whose sub-turn waited", next.end(below).Text, "quick too")
		for _, id := range []string{waits, below} {
			run, err := st.RunByID(t.Context(), id)
			if err != nil || run.Attempt != 2 || run.Crashes != 0 {
				t.Errorf("run: %+v, %v; want attempt 2 without a crash", run, err)
			}
		}
	})
}
