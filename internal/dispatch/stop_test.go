package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// Two chats fill the lane for 14 s. A third one waits and sends /stop, then the first does.
// Messages of other chats are accepted meanwhile without delay.
func TestStopCommandWorksWhileEveryLaneIsFull(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		began := time.Now()
		a, b := h.send("a", "sleep 14s"), h.send("b", "sleep 14s")
		waiting := h.send("c", "hello")
		others := []string{h.send("d", "one"), h.send("e", "two")}
		want(t, "answer to c", h.end(h.send("c", "/stop")).Text, "Stopped the oldest waiting message; nothing was running.")
		others = append(others, h.send("f", "three"))
		want(t, "answer to a", h.end(h.send("a", "@lane_bot /stop@lane_bot")).Text, "Stopped the running turn.")
		want(t, "answer with nothing left", h.end(h.send("a", "/stop")).Text, "There's nothing to stop.")
		want(t, "a", h.end(a).Outcome, chat.OutcomeStopped)
		want(t, "c", h.end(waiting).Outcome, chat.OutcomeStopped)
		for _, id := range others {
			want(t, "another chat", h.end(id).Outcome, chat.OutcomeAnswered)
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("three stops and the other chats took %s", took)
		}
		want(t, "b", h.end(b).Outcome, chat.OutcomeAnswered)
		want(t, "b ended after", time.Since(began).Round(time.Second), 14*time.Second)
	}, lanes(2))
}

// /stopall is sent while other sessions occupy the lane, with ten waiting messages and one in the
// debounce window.
func TestStopAllTakesRunningWaitingAndDebounced(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		holder := h.send("other", "sleep 1m")
		var ids []string
		for range 10 {
			ids = append(ids, h.send("main", "waits"))
		}
		ids = append(ids, h.send("main", "typed", typed))
		began := time.Now()
		want(t, "answer", h.end(h.send("main", "/stopall")).Text, "Stopped 0 running turns and 11 waiting messages.")
		for _, id := range ids {
			e := h.end(id)
			want(t, "outcome of "+id, e.Outcome, chat.OutcomeStopped)
			want(t, "reason of "+id, e.Reason, "stopall")
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("/stopall took %s", took)
		}
		after := h.send("main", "again")
		want(t, "the other session", h.end(holder).Outcome, chat.OutcomeAnswered)
		want(t, "afterwards", h.end(after).Outcome, chat.OutcomeAnswered)
		running := h.send("main", "sleep 1h")
		synctest.Wait()
		h.end(h.send("main", "/stopall"))
		want(t, "a running turn", h.end(running).Outcome, chat.OutcomeStopped)
	}, lanes(1), queue(scheduler.Settings{Cap: 11}))
}

// A message reaches the scheduler after /stopall has cancelled the running turn and before the
// store has written the stop, which also ends that message. It must not start in the slot of the
// cancelled turn.
func TestNothingStartsBetweenTheSignalOfAStopAndItsRow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		between := func() {}
		st := sqlitetest.Open(t, sqlite.Config{Before: func(_ context.Context, op string) error {
			if op == "stop" {
				between()
			}
			return nil
		}})
		h := open(t, st)
		defer h.close()
		long := h.send("main", "sleep 1h")
		time.Sleep(time.Second)
		var late string
		between = func() {
			between = func() {}
			late = h.send("main", "late")
			time.Sleep(100 * time.Millisecond) // enough for a turn
		}
		h.send("main", "/stopall")
		want(t, "the running turn", h.end(long).Outcome, chat.OutcomeStopped)
		want(t, "the message between", h.end(late).Outcome, chat.OutcomeStopped)
		wantList(t, "turns", h.runner.texts(), []string{"sleep 1h"})
		want(t, "afterwards", h.end(h.send("main", "after")).Outcome, chat.OutcomeAnswered)
	})
}

// The runner ignores its context for three seconds; messages that arrive meanwhile wait for its
// return.
func TestAStoppedTurnIsNeverOverlapped(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		began := time.Now()
		deaf := h.send("main", "deaf 3s")
		synctest.Wait()
		h.end(h.send("main", "/stop"))
		next := h.send("main", "next")
		time.Sleep(2*time.Second + time.Millisecond)
		lane := h.d.Lanes().Lanes[1]
		if lane.Name != "main" || lane.Stopping != 1 || lane.Active != 1 {
			t.Errorf("two seconds after the stop the lane shows %+v", lane)
		}
		want(t, "outcome of the deaf one after the grace", h.end(deaf).Outcome, chat.OutcomeStopped)
		want(t, "next", h.end(next).Outcome, chat.OutcomeAnswered)
		want(t, "next began", h.runner.began("next").Sub(began), 3*time.Second)
		want(t, "text of the stopped one after its late result", h.end(deaf).Text, "begun")
		wantTranscript(t, h, "user deaf 3s", "user /stop", "assistant Stopped the running turn.", "assistant begun",
			`system Stopped before its answer was complete, and not to be carried out: "deaf 3s"`, "user next", "assistant next")

		ids := []string{h.send("main", "deaf 3s")}
		synctest.Wait()
		for _, text := range []string{"1", "2", "3", "4", "5"} {
			ids = append(ids, h.send("main", text, mode(chat.ModeInterrupt)))
		}
		want(t, "the last of five quick ones", h.end(ids[5]).Outcome, chat.OutcomeAnswered)
		for _, id := range ids[:5] {
			want(t, "an earlier one", h.end(id).Outcome, chat.OutcomeSuperseded)
		}
		want(t, "turns at once", h.runner.most["agent:main:main"], 1)
	})
}

// In every form, a command does not wait for the debounce window and is not part of a batch.
// Messages after it do not join messages before it.
func TestCommandsActAtOnceAndCutTheBatch(t *testing.T) {
	cases := map[string]struct {
		with   func(m *chat.Message)
		before chat.Outcome
		turns  []string
	}{
		"/queue":          {nil, chat.OutcomeAnswered, []string{"before", "after"}},
		"/stop":           {nil, chat.OutcomeStopped, []string{"after"}},
		"/stop@lane_bot":  {nil, chat.OutcomeStopped, []string{"after"}},
		"@lane_bot /stop": {func(m *chat.Message) { m.BotName = "lane_bot" }, chat.OutcomeStopped, []string{"after"}},
		"/stop ": {func(m *chat.Message) { // the caption of a photo
			m.Content.Attachments = []chat.Attachment{{Name: "photo.jpg", MIMEType: "image/jpeg"}}
		}, chat.OutcomeStopped, []string{"after"}},
	}
	for text, c := range cases {
		t.Run(text, func(t *testing.T) {
			inDispatcher(t, func(t *testing.T, h *harness) {
				before := h.send("main", "before", typed)
				time.Sleep(100 * time.Millisecond)
				sentAt := time.Now()
				changes := []func(*chat.Message){typed}
				if c.with != nil {
					changes = append(changes, c.with)
				}
				e := h.end(h.send("main", text, changes...))
				want(t, "the command", e.Outcome, chat.OutcomeAnswered)
				want(t, "the command was answered after", time.Since(sentAt), 0)
				time.Sleep(100 * time.Millisecond)
				after := h.send("main", "after", typed)
				want(t, "after", h.end(after).Outcome, chat.OutcomeAnswered)
				want(t, "before", h.end(before).Outcome, c.before)
				wantList(t, "turns", h.runner.texts(), c.turns)
			})
		})
	}
}

// wantTranscript checks the whole transcript of the main session.
func wantTranscript(t *testing.T, h *harness, lines ...string) {
	t.Helper()
	tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:main"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range tr.Entries {
		got = append(got, e.Role+" "+e.Text)
	}
	wantList(t, "transcript", got, lines)
}

// Each /stop of a burst stops a turn, and the chat gets each answer once; after the burst it is
// answered again.
func TestBurstOfStopsIsAnsweredOnce(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for range 60 {
			id := h.send(askerChat, "sleep 1m", askerMessage("7"))
			time.Sleep(100 * time.Millisecond)
			h.send(askerChat, "/stop", askerMessage("7"))
			want(t, "a turn of the burst", h.end(id).Outcome, chat.OutcomeStopped)
		}
		time.Sleep(answersEnd)
		stops := func() (n int) {
			for _, text := range h.asker.texts("7") {
				if text == "Stopped the running turn." {
					n++
				}
			}
			return n
		}
		want(t, "answers to the burst", stops(), 1)
		id := h.send(askerChat, "sleep 1m", askerMessage("7"))
		time.Sleep(100 * time.Millisecond)
		h.send(askerChat, "/stop", askerMessage("7"))
		want(t, "the turn after the burst", h.end(id).Outcome, chat.OutcomeStopped)
		time.Sleep(answersEnd)
		want(t, "answers after a pause", stops(), 2)
	})
}

// answersEnd is longer than the pause that ends a burst.
const answersEnd = 4 * time.Second

// gated is a store in which the test can block single calls.
type gated struct {
	dispatch.Store

	finish, stop func(id string) // called before the call; may be nil
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

// At the signal, the answer of the previous turn is being written, so nothing can be stopped. When
// the stop reaches the store, the next turn is running. It is stopped at once, not at the next
// heartbeat.
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

// The first stop arrives while an answer is being written and ends the next message in the store.
// The second stop must not count that message's turn; it applies to the message after it.
func TestAStopIsNotSpentOnAMessageThatAnotherStopHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		written := make(chan struct{})
		h := open(t, &gated{Store: newStore(t), finish: only("m1", written)})
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
		want(t, "the answer", h.end(h.send("main", "/stop")).Text, "There's nothing to stop.")
		r, err := h.d.Stop(t.Context(), store.StopParams{Session: h.msg("main", "").Session, Scope: store.StopRun, MessageID: first, By: "tester"})
		if err != nil || len(r) != 0 {
			t.Errorf("a stop by name: %v, %v", r, err)
		}
		close(written)
		want(t, "the turn", h.end(first).Outcome, chat.OutcomeAnswered)
	})
}

// The stop is requested in a process that does not run the turn, on a store without hints. The
// heartbeat of the process that runs it reads the stop, and the end has its reason.
func TestAStopFromAnotherProcessKeepsItsReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for scope, reason := range map[store.StopScope]string{store.StopOne: "stop", store.StopAll: "stopall"} {
			st := newStore(t)
			owner, other := open(t, st), open(t, st)
			id := owner.send("main", "sleep 1h")
			synctest.Wait()
			if _, err := other.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: scope, By: "gateway"}); err != nil {
				t.Fatal(err)
			}
			asked := time.Now()
			end := owner.end(id)
			want(t, "outcome", end.Outcome, chat.OutcomeStopped)
			want(t, "reason", end.Reason, reason)
			if waited := time.Since(asked); waited > 4*time.Second {
				t.Errorf("the heartbeat brought the stop after %s", waited)
			}
			other.close()
			owner.close()
		}
	})
}
