package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/usage"
)

// abandon ends a harness whose process was killed.
func (h *harness) abandon() {
	h.t.Helper()
	h.work(errors.New("killed"))
	h.cancel()
	<-h.ended
	time.Sleep(time.Hour) // pending writes of the killed process end by themselves
}

func TestADeadProcessLosesNothingAndTheOrderIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c)
		running := h.send("main", "sleep 20s")
		ids := []string{h.send("main", "a"), h.send("main", "b"), h.send("main", "held", typed)}
		time.Sleep(time.Second)
		off.Store(true)
		died := time.Now()

		next := open(t, st)
		defer next.close()
		want(t, "the running one", next.end(running).Outcome, chat.OutcomeAnswered)
		for _, id := range ids {
			want(t, "outcome of "+id, next.end(id).Outcome, chat.OutcomeAnswered)
		}
		wantList(t, "order", next.runner.texts(), []string{"sleep 20s", "a", "b", "held"})
		next.mu.Lock()
		replaced := false
		for _, e := range next.events {
			if e.Kind == chat.EventStarted && e.RunID == running && e.At.Sub(died) > dispatch.DefaultLease+2*time.Second {
				t.Errorf("taken over after %s", e.At.Sub(died))
			}
			replaced = replaced || e.Kind == chat.EventDelta && e.RunID == running && e.Replace
		}
		next.mu.Unlock()
		want(t, "the second attempt replaces the first", replaced, true)
		r, err := st.RunByID(t.Context(), running)
		if err != nil || r.Attempt != 2 || r.Crashes != 1 {
			t.Errorf("run %+v, %v; want attempt 2 and one crash", r, err)
		}
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: chat.MainKey("main")})
		if err != nil || len(tr.Entries) != 8 {
			t.Errorf("%d lines in the transcript, want a question and an answer for each of 4: %+v, %v", len(tr.Entries), tr.Entries, err)
		}
		h.abandon()
	})
}

func TestAMessageThatKillsItsProcessThreeTimesIsDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		var processes []*harness
		var killer, after string
		for i := range store.MaxCrashes {
			c, off := cord(st)
			h := open(t, c)
			if i == 0 {
				killer = h.send("box:direct:1", "sleep 10m", replyTo("1"))
				after = h.send("box:direct:1", "hello", replyTo("1"))
			}
			time.Sleep(30 * time.Second)
			off.Store(true)
			processes = append(processes, h)
		}
		last := open(t, st)
		defer last.close()
		want(t, "outcome", last.end(killer).Outcome, chat.OutcomeDead)
		want(t, "the next one", last.end(after).Outcome, chat.OutcomeAnswered)
		time.Sleep(3 * time.Second)
		sent := strings.Join(last.box.texts("1"), "|")
		if !strings.Contains(sent, "three times") {
			t.Errorf("the person got %q", sent)
		}
		for _, h := range processes {
			h.abandon()
		}
	})
}

func TestAProcessThatLosesItsLeaseWritesNothingAndGoesOnAsANewOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c)
		defer h.close()
		id := h.send("main", "deaf 40s") // it cannot even be cancelled
		first := h.d.NodeID()
		time.Sleep(time.Second)
		off.Store(true) // disconnected from the database
		time.Sleep(20 * time.Second)
		if err := h.d.Ready(t.Context()); err == nil {
			t.Error("a process without a lease reports that it is ready")
		}
		other := open(t, st)
		defer other.close()
		time.Sleep(2 * time.Second)
		off.Store(false)
		want(t, "outcome", other.end(id).Outcome, chat.OutcomeAnswered)
		r, err := st.RunByID(t.Context(), id)
		if err != nil || r.Owner != other.d.NodeID() {
			t.Errorf("the run was ended by %s, %v; want the other process", r.Owner, err)
		}
		time.Sleep(10 * time.Second)
		if now := h.d.NodeID(); now == "" || now == first {
			t.Errorf("incarnation after the cut is %q, was %q", now, first)
		}
		want(t, "a new message here", h.end(h.send("main", "hello")).Outcome, chat.OutcomeAnswered)
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: chat.MainKey("main")})
		if err != nil || len(tr.Entries) != 4 {
			t.Errorf("transcript %+v, %v", tr.Entries, err)
		}
	})
}

func TestDrainInterruptsAtTheDeadlineAndTheNextProcessRunsItAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st, lanes(100))
		quick := h.send("quick", "sleep 3s")
		var long []string
		for i := range 50 {
			long = append(long, h.send(fmt.Sprintf("long%d", i), "sleep 1h"))
		}
		deaf := h.send("deaf", "deaf 1h")
		waiting := h.send("quick", "hello")
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := h.d.Drain(ctx)
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the drain took %s", took)
		}
		if err == nil {
			t.Error("a turn that never returns was not reported")
		}
		_, err = h.d.Receive(t.Context(), h.msg("main", "late"))
		if !errors.Is(err, chat.ErrDraining) {
			t.Errorf("a message during the drain got %v", err)
		}
		want(t, "the quick one", h.end(quick).Outcome, chat.OutcomeAnswered)
		h.d.Leave(t.Context())
		h.cancel()
		<-h.ended

		next := open(t, st, lanes(100))
		want(t, "what waited", next.end(waiting).Outcome, chat.OutcomeAnswered)
		time.Sleep(2 * time.Second)
		for _, id := range append(long, deaf) {
			r, err := st.RunByID(t.Context(), id)
			if err != nil || r.State != store.RunRunning || r.Attempt != 2 || r.Crashes != 0 {
				t.Fatalf("run after the restart: %+v, %v; want its second attempt without a crash", r, err)
			}
		}
		for i := range 50 {
			next.send(fmt.Sprintf("long%d", i), "/stopall")
		}
		next.send("deaf", "/stopall")
		time.Sleep(2 * time.Hour)
		next.close()
		h.work(errors.New("over"))
	})
}

func TestAtMostOnceMessagesGetANoticeInsteadOfASecondRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		h := open(t, st)
		once := func(m *chat.Message) { replyTo("9")(m); m.Content.Options.AtMostOnce = true }
		id := h.send("box:direct:9", "sleep 1h", once)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.d.Drain(ctx); err != nil {
			t.Error(err)
		}
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeInterrupted)
		h.d.Leave(t.Context())
		h.cancel()
		<-h.ended
		if sent := strings.Join(h.box.texts("9"), "|"); !strings.Contains(sent, "restarted") {
			t.Errorf("the person got %q before the channels stopped", sent)
		}
		h.work(errors.New("over"))
	})
}

func TestAStopIsNotForgottenByACrash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c)
		id := h.send("main", "deaf 10m")
		time.Sleep(time.Second)
		if _, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopOne, By: "tester"}); err != nil {
			t.Fatal(err)
		}
		off.Store(true) // before the grace period has ended and the outcome is written
		next := open(t, st)
		defer next.close()
		want(t, "outcome", next.end(id).Outcome, chat.OutcomeStopped)
		want(t, "second runs", len(next.runner.texts()), 0)
		h.abandon()
	})
}

func TestTheEndOfATurnIsWrittenWhenTheDatabaseIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		down := atomic.Bool{}
		st := sqlitetest.Open(t, sqlite.Config{Before: func(context.Context, string) error {
			if down.Load() {
				return chat.ErrStoreUnavailable
			}
			return nil
		}})
		h := open(t, st)
		defer h.close()
		id := h.send("main", "sleep 2s")
		time.Sleep(time.Second)
		down.Store(true)
		if _, err := h.d.Receive(t.Context(), h.msg("main", "hello")); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Errorf("a message without a database got %v", err)
		}
		time.Sleep(5 * time.Second)
		down.Store(false)
		time.Sleep(2 * time.Second)
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeAnswered)
		want(t, "attempts", len(h.runner.texts()), 1)
		synctest.Wait()
	})
}

func TestASlowChatDelaysNoOtherAndKeepsItsOrder(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		h.box.delay = func(r chat.Reply) time.Duration {
			if r.Target.ChatID == "slow" {
				return 20 * time.Second
			}
			return 0
		}
		tries := map[string]int{}
		h.box.fail = func(r chat.Reply) error {
			tries[r.ID]++
			if r.Target.ChatID == "limited" && tries[r.ID] == 1 {
				return &channel.SendError{Reason: "rate_limited", RetryAfter: 10 * time.Second}
			}
			if r.Target.ChatID == "gone" {
				return &channel.SendError{Reason: "blocked", Permanent: true}
			}
			return nil
		}
		began := time.Now()
		for _, chatID := range []string{"slow", "limited", "gone"} {
			for _, text := range []string{"1", "2", "3"} {
				h.end(h.send("box:direct:"+chatID, text, replyTo(chatID)))
			}
		}
		h.end(h.send("box:direct:quick", "hello", replyTo("quick")))
		synctest.Wait()
		wantList(t, "quick", h.box.texts("quick"), []string{"hello"})
		if took := time.Since(began); took > time.Second {
			t.Errorf("the quick chat waited %s", took)
		}
		time.Sleep(2 * time.Minute)
		wantList(t, "slow", h.box.texts("slow"), []string{"1", "2", "3"})
		wantList(t, "limited", h.box.texts("limited"), []string{"1", "2", "3"})
		wantList(t, "gone", h.box.texts("gone"), nil)
		counts, err := h.st.OutboxCounts(t.Context())
		if err != nil || counts["box"].Failed != 3 || counts["box"].Waiting != 0 {
			t.Errorf("outbox %+v, %v", counts, err)
		}
	})
}

func TestAMessageOfferedAgainDoesNotPassOlderOnes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c, lanes(1))
		blocker := h.send("other", "sleep 10m")
		ids := []string{h.send("main", "a"), h.send("main", "b")}
		last := h.msg("main", "c")
		last.Dedupe = "tester/" + last.ID
		if _, err := h.d.Receive(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		off.Store(true)
		next := open(t, st)
		defer next.close()
		for range 30 { // the sender does not know that it was accepted, and repeats it before, during and after the takeover
			if r, err := next.d.Receive(t.Context(), last); err != nil || !r.Duplicate {
				t.Fatalf("offered again: %+v, %v", r, err)
			}
			time.Sleep(time.Second)
		}
		for _, id := range append(ids, last.ID) {
			want(t, "outcome of "+id, next.end(id).Outcome, chat.OutcomeAnswered)
		}
		wantList(t, "order", next.runner.textsOf("agent:main:main"), []string{"a", "b", "c"})
		_ = blocker
		h.abandon()
	})
}

// When the database does not respond in time, a message must keep its place in the session.
func TestAStartWithoutAnAnswerLetsNoMessagePass(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		left := atomic.Int64{}
		left.Store(3)
		st := sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, op string) error {
			if op == "start a run" && left.Add(-1) >= 0 {
				return context.DeadlineExceeded
			}
			return nil
		}})
		h := open(t, st)
		defer h.close()
		first, second := h.send("main", "a"), h.send("main", "b")
		want(t, "second", h.end(second).Outcome, chat.OutcomeAnswered)
		want(t, "first", h.end(first).Outcome, chat.OutcomeAnswered)
		wantList(t, "order", h.runner.texts(), []string{"a", "b"})
		if left.Load() > -2 {
			t.Errorf("%d starts were not lost", left.Load()+2)
		}
	})
}

// power is a store that several processes share. When a harness is disconnected, all its operations
// fail, as after kill -9.
type power struct {
	cronStore

	off *atomic.Bool
}

// cord returns the store for one harness.
func cord(st cronStore) (cronStore, *atomic.Bool) {
	off := &atomic.Bool{}
	return &power{cronStore: st, off: off}, off
}

func (p *power) dead(ctx context.Context) error {
	if p.off.Load() {
		<-ctx.Done()
		return chat.ErrStoreUnavailable
	}
	return nil
}

func (p *power) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	if err := p.dead(ctx); err != nil {
		return store.Beat{}, err
	}
	return p.cronStore.Heartbeat(ctx, id, draining)
}

func (p *power) Finish(ctx context.Context, f store.FinishParams) (store.Finished, error) {
	if err := p.dead(ctx); err != nil {
		return store.Finished{}, err
	}
	return p.cronStore.Finish(ctx, f)
}

func (p *power) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.AddUsage(ctx, b, day, read)
}

func (p *power) Register(ctx context.Context, n store.Node) error {
	if err := p.dead(ctx); err != nil {
		return err
	}
	return p.cronStore.Register(ctx, n)
}

func (p *power) Sweep(ctx context.Context, sp store.SweepParams) ([]store.Front, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.Sweep(ctx, sp)
}

func (p *power) ClaimOutgoing(ctx context.Context, c store.ClaimOutgoingParams) ([]store.Outgoing, error) {
	if err := p.dead(ctx); err != nil {
		return nil, err
	}
	return p.cronStore.ClaimOutgoing(ctx, c)
}

func (p *power) Undelivered(ctx context.Context, u store.UndeliveredParams) (store.Gone, error) {
	if err := p.dead(ctx); err != nil {
		return store.Gone{}, err
	}
	return p.cronStore.Undelivered(ctx, u)
}

func (p *power) Unregister(ctx context.Context, n string) error {
	if err := p.dead(ctx); err != nil {
		return err
	}
	return p.cronStore.Unregister(ctx, n)
}
