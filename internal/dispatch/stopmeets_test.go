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

// gated is a store in which the test can block single calls.
type gated struct {
	dispatch.Store

	start, finish, stop func(id string) // called before the call; may be nil
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

// only blocks calls for one id.
func only(id string, gate <-chan struct{}) func(string) {
	return func(got string) {
		if got == id {
			<-gate
		}
	}
}

// At the signal, the answer of the previous turn is being written, so nothing can be stopped. When the stop reaches the store, the next
// turn is running. It is stopped at once, not at the next heartbeat.
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

// The first stop arrives while an answer is being written and ends the next message in the store. The second stop must not count that
// message's turn; it applies to the message after it.
func TestAStopIsNotSpentOnAMessageThatAnotherStopHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		written, begun := make(chan struct{}), make(chan struct{})
		h := open(t, &gated{Store: newStore(t), finish: only("m1", written), start: only("m2", begun)})
		defer h.close()
		h.send("main", "hello")
		ended := h.send("main", "ended by the first stop")
		synctest.Wait()
		for range 2 { // the run whose answer is being written is signalled first, which is too late
			h.end(h.send("main", "/stop"))
		}
		want(t, "after the answer", h.end(ended).Outcome, chat.OutcomeStopped)
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

// The answer of the only turn is being written. The stop stops nothing and reports that.
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
