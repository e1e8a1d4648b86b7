package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// gated is a store in which single calls wait until the test lets them go on.
type gated struct {
	dispatch.Store

	start, finish, stop func(id string) // called before the call; nil = nothing
}

func (g *gated) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	if g.start != nil {
		g.start(p.RunID)
	}
	return g.Store.Start(ctx, p)
}

func (g *gated) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if g.finish != nil {
		g.finish(p.RunID)
	}
	return g.Store.Finish(ctx, p)
}

func (g *gated) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	if g.stop != nil {
		g.stop(p.MessageID)
	}
	return g.Store.Stop(ctx, p)
}

// only lets calls for one id wait.
func only(id string, gate <-chan struct{}) func(string) {
	return func(got string) {
		if got == id {
			<-gate
		}
	}
}

// TestAStopReachesATurnThatBeganBehindItsSignal: at the signal the answer of the turn before is being written, so that nothing can be stopped; when the
// stop comes to the store, the next turn runs. It is stopped at once, not at the next heartbeat.
func TestAStopReachesATurnThatBeganBehindItsSignal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		written, asked := make(chan struct{}), make(chan struct{})
		h := open(t, &gated{Store: newStore(t), finish: only("m1", written), stop: only("", asked)})
		defer h.close()
		h.send("main", "hello")
		next := h.send("main", "sleep 1h")
		synctest.Wait()
		answer := make(chan string)
		go func() { answer <- h.end(h.send("main", "/stop")).Text }()
		synctest.Wait()
		close(written)
		synctest.Wait()
		began := time.Now()
		close(asked)
		want(t, "the answer", <-answer, "Stopped the running turn.")
		want(t, "the next turn", h.end(next).Outcome, chat.OutcomeStopped)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it was stopped after %s", took)
		}
	})
}

// TestAStopIsNotSpentOnAMessageThatAnotherStopHasEnded: the first stop comes while an answer is being written and ends the message behind it in the
// store. Its turn must not be there for the second stop, which is about the message after it.
func TestAStopIsNotSpentOnAMessageThatAnotherStopHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		written, begun := make(chan struct{}), make(chan struct{})
		h := open(t, &gated{Store: newStore(t), finish: only("m1", written), start: only("m2", begun)})
		defer h.close()
		h.send("main", "hello")
		ended := h.send("main", "ended by the first stop")
		synctest.Wait()
		for range 2 { // what is being written is asked to stop first, which is too late
			h.end(h.send("main", "/stop"))
		}
		want(t, "behind the answer", h.end(ended).Outcome, chat.OutcomeStopped)
		close(written)
		synctest.Wait()
		next := h.send("main", "sleep 1h")
		synctest.Wait()
		began := time.Now()
		want(t, "the answer", h.end(h.send("main", "/stop")).Text, "Stopped the running turn.")
		close(begun)
		want(t, "the message after it", h.end(next).Outcome, chat.OutcomeStopped)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it was stopped after %s", took)
		}
	})
}

// TestAStopThatComesTooLateSaysSo: the answer of the only turn is being written. The stop stops nothing and says so.
func TestAStopThatComesTooLateSaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		written := make(chan struct{})
		h := open(t, &gated{Store: newStore(t), finish: only("m1", written)})
		defer h.close()
		first := h.send("main", "hello")
		synctest.Wait()
		want(t, "the answer", h.end(h.send("main", "/stop")).Text, "There is nothing to stop.")
		r, err := h.d.Stop(t.Context(), store.StopParams{Session: h.msg("main", "").Session, Scope: store.StopRun, MessageID: first, By: "tester"})
		if err != nil || len(r) != 0 {
			t.Errorf("a stop by name: %v, %v", r, err)
		}
		close(written)
		want(t, "the turn", h.end(first).Outcome, chat.OutcomeAnswered)
	})
}
