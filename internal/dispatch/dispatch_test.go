package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestAMessageIsAnsweredAndItsEventsAreInOrder(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("main", "hello")
		e := h.end(id)
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "text", e.Text, "hello")
		synctest.Wait()
		wantList(t, "events", h.kinds(id), []string{"queued", "started", "delta", "final"}[1:])
		tr, err := h.d.Transcript(t.Context(), store.TranscriptQuery{Session: chat.MainKey("main")})
		if err != nil || len(tr.Entries) != 2 || tr.Entries[0].Role != "user" || tr.Entries[1].Text != "hello" {
			t.Errorf("transcript %+v, %v", tr, err)
		}
		want(t, "end read from the store", h.end(id).Text, "hello")
	})
}

func TestTheSameMessageOfferedTwiceIsOneMessage(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		m := h.msg("main", "hello")
		m.Dedupe = "tester/chat.send/" + m.ID
		for range 5 {
			if _, err := h.d.Receive(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		h.end(m.ID)
		r, err := h.d.Receive(t.Context(), m)
		if err != nil || !r.Duplicate || r.Outcome != chat.OutcomeAnswered {
			t.Errorf("sixth offer: %+v, %v", r, err)
		}
		want(t, "calls", len(h.runner.texts()), 1)
	})
}

func TestASessionIsSerialAndInOrderOthersDoNotWait(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		began := time.Now()
		h.send("one", "sleep 10s")
		ids := []string{h.send("one", "a"), h.send("one", "b"), h.send("one", "c")}
		h.end(h.send("two", "x"))
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("another session waited %s", waited)
		}
		for _, id := range ids {
			h.end(id)
		}
		wantList(t, "order", h.runner.textsOf("agent:main:one"), []string{"sleep 10s", "a", "b", "c"})
		want(t, "turns at once", h.runner.most["agent:main:one"], 1)
	})
}

func TestAGroupRunsThreeTurnsAtOnce(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		var last string
		for range 7 {
			last = h.send("box:group:1", "sleep 1s")
		}
		h.end(last)
		want(t, "turns at once", h.runner.most["agent:main:box:group:1"], 3)
	})
}

func TestTypedMessagesOfOnePersonBecomeOneTurn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		first := h.send("main", "one", typed)
		time.Sleep(300 * time.Millisecond)
		last := h.send("main", "two", typed)
		want(t, "text", h.end(last).Text, "one\ntwo")
		e := h.end(first)
		want(t, "outcome of the first", e.Outcome, chat.OutcomeMerged)
		want(t, "merged into", e.MergedInto, last)
		synctest.Wait()
		wantList(t, "events of the first", h.kinds(first), []string{"queued", "final"})
	})
}

func TestCollectMakesOneTurnOfWhatWaits(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		h.send("main", "sleep 5s")
		synctest.Wait()
		h.send("main", "a")
		h.send("main", "b")
		want(t, "text", h.end(h.send("main", "c")).Text, "a\nb\nc")
	}, queue(scheduler.Settings{Mode: scheduler.ModeCollect}))
}

func TestInterruptNeverRunsTwoTurnsAtOnceAndSupersedesTheRest(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		ids := []string{h.send("main", "deaf 3s")}
		synctest.Wait() // it has started: one that is interrupted before that ends at once, and the message after it may be answered
		for _, text := range []string{"a", "b", "c", "d"} {
			ids = append(ids, h.send("main", text, mode(chat.ModeInterrupt)))
		}
		want(t, "outcome of the last", h.end(ids[4]).Outcome, chat.OutcomeAnswered)
		for _, id := range ids[:4] {
			want(t, "outcome of an earlier one", h.end(id).Outcome, chat.OutcomeSuperseded)
		}
		want(t, "turns at once", h.runner.most["agent:main:main"], 1)
		last := h.runner.texts()
		want(t, "the last call", last[len(last)-1], "d")
	})
}

func TestStopEndsTheRunningTurnAndKeepsItsText(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("main", "sleep 1h")
		next := h.send("main", "next")
		time.Sleep(time.Second)
		asked := time.Now()
		ids, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopOne, By: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "stopped", ids, []string{id})
		e := h.end(id)
		want(t, "outcome", e.Outcome, chat.OutcomeStopped)
		want(t, "its text", e.Text, "begun")
		want(t, "next", h.end(next).Outcome, chat.OutcomeAnswered)
		if took := time.Since(asked); took > 200*time.Millisecond {
			t.Errorf("stopping took %s", took)
		}
		synctest.Wait()
		wantList(t, "events", h.kinds(id), []string{"started", "delta", "aborted"})
	})
}

func TestATurnThatIgnoresItsStopIsFinishedWithoutIt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		id := h.send("main", "deaf 10s")
		next := h.send("main", "next")
		time.Sleep(time.Second)
		if _, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopOne, By: "tester"}); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		want(t, "outcome", h.end(id).Outcome, chat.OutcomeStopped)
		if took := time.Since(stopped); took < 1900*time.Millisecond || took > 2500*time.Millisecond {
			t.Errorf("the outcome was there after %s, want the grace of 2s", took)
		}
		s, err := h.st.Session(t.Context(), chat.MainKey("main"), "")
		if err != nil || len(s.ActiveRuns) != 1 {
			t.Errorf("while the turn is stopping the session shows %v, %v", s.ActiveRuns, err)
		}
		want(t, "next", h.end(next).Outcome, chat.OutcomeAnswered)
		want(t, "turns at once", h.runner.most["agent:main:main"], 1)
		want(t, "text of the stopped one after its late result", h.end(id).Text, "begun")
		want(t, "outcome after its late result", h.end(id).Outcome, chat.OutcomeStopped)
		wantTranscript(t, h, "user deaf 10s", "assistant begun",
			`system Stopped before its answer was complete, and not to be carried out: "deaf 10s"`, "user next", "assistant next")
	})
}

func TestStopWithNothingRunningTakesTheOldestWaiting(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		blocker := h.send("other", "sleep 1m")
		waiting := h.send("main", "a")
		kept := h.send("main", "b")
		ids, err := h.d.Stop(t.Context(), store.StopParams{Session: chat.MainKey("main"), Scope: store.StopOne, By: "tester"})
		if err != nil {
			t.Fatal(err)
		}
		wantList(t, "stopped", ids, []string{waiting})
		want(t, "outcome", h.end(waiting).Outcome, chat.OutcomeStopped)
		want(t, "the other", h.end(kept).Outcome, chat.OutcomeAnswered)
		h.end(blocker)
	}, lanes(1))
}

func TestStopReachesTheTurnWhileTheDatabaseIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		slow := atomic.Bool{}
		st := sqlitetest.Open(t, sqlite.Config{Before: func(ctx context.Context, op string) error {
			if slow.Load() && op != "extend the lease of this gateway" {
				time.Sleep(3 * time.Second)
			}
			return nil
		}})
		h := open(t, st)
		defer h.close()
		h.send("main", "sleep 1h")
		time.Sleep(time.Second)
		slow.Store(true)
		began := time.Now()
		h.send("main", "/stop")
		if took := time.Since(began); took > time.Second {
			t.Errorf("/stop was answered after %s", took)
		}
		h.runner.mu.Lock()
		still := h.runner.total
		h.runner.mu.Unlock()
		want(t, "turns that still run", still, 0)
		time.Sleep(10 * time.Second)
		slow.Store(false)
		time.Sleep(10 * time.Second)
	})
}

func TestAFailingAndAPanickingTurnAreOutcomesAndTheSessionGoesOn(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		e := h.end(h.send("main", "fail"))
		want(t, "outcome", e.Outcome, chat.OutcomeFailed)
		want(t, "reason", e.Reason, "overloaded")
		e = h.end(h.send("main", "panic"))
		want(t, "outcome", e.Outcome, chat.OutcomeFailed)
		want(t, "reason", e.Reason, "panic")
		want(t, "afterwards", h.end(h.send("main", "hello")).Outcome, chat.OutcomeAnswered)
	})
}

// The sentence of a failure is published once. A later reader of the conversation finds it in the
// transcript.
func TestTheTranscriptKeepsTheReasonOfAFailure(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		e := h.end(h.send("main", "fail"))
		if e.Message == "" {
			t.Fatalf("a failure without a reason: %+v", e)
		}
		wantTranscript(t, h, "user fail", "system Failed before its answer was complete: \"fail\"\n"+e.Message)
	})
}

func TestATurnHasATimeLimit(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		e := h.end(h.send("main", "sleep 1h", func(m *chat.Message) { m.Content.Options.TimeoutMs = 5000 }))
		want(t, "outcome", e.Outcome, chat.OutcomeFailed)
		want(t, "reason", e.Reason, string(chat.FailTimeout))
		want(t, "duration", e.Duration, 5*time.Second)
	})
}

func TestATurnDoesNotDieWithTheCallerThatSentIt(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		ctx, gone := context.WithCancel(t.Context())
		m := h.msg("main", "sleep 2s")
		if _, err := h.d.Receive(ctx, m); err != nil {
			t.Fatal(err)
		}
		gone()
		want(t, "outcome", h.end(m.ID).Outcome, chat.OutcomeAnswered)
	})
}

func TestBadMessagesAreRefusedWithASentenceAndNothingIsStored(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		for name, change := range map[string]func(*chat.Message){
			"blank":    func(m *chat.Message) { m.Content.Text = " \n" },
			"nul":      func(m *chat.Message) { m.Content.Text = "a\x00b" },
			"utf8":     func(m *chat.Message) { m.Content.Text = "a\xffb" },
			"large":    func(m *chat.Message) { m.Content.Text = strings.Repeat("x", chat.MaxText+1) },
			"agent":    func(m *chat.Message) { m.Session.Agent = "absent" },
			"id":       func(m *chat.Message) { m.ID = "with blank" },
			"long id":  func(m *chat.Message) { m.ID = strings.Repeat("x", 129) },
			"no place": func(m *chat.Message) { m.Session = chat.SessionKey{} },
		} {
			m := h.msg("main", "hello")
			change(&m)
			_, err := h.d.Receive(t.Context(), m)
			var e *chat.Error
			if !errors.As(err, &e) || e.Message == "" || e.Retryable {
				t.Errorf("%s: got %v, want a refusal with a sentence", name, err)
			}
		}
		if held, err := h.st.Held(t.Context()); held.Unfinished != 0 || err != nil {
			t.Errorf("%d messages stored, %v", held.Unfinished, err)
		}
		if _, err := h.d.Session(t.Context(), chat.MainKey("main"), ""); !errors.Is(err, chat.ErrSessionNotFound) {
			t.Errorf("a session was made: %v", err)
		}
	})
}

func TestAFullQueueGivesThePersonOneNoticePerBurst(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		running := h.send("box:direct:7", "sleep 1m", replyTo("7"))
		var ids []string
		for range 15 {
			ids = append(ids, h.send("box:direct:7", "hello", replyTo("7")))
		}
		dropped, answered := 0, 0
		for _, id := range ids {
			switch h.end(id).Outcome {
			case chat.OutcomeDropped:
				dropped++
			case chat.OutcomeAnswered:
				answered++
			default:
				t.Errorf("%s ended %s", id, h.end(id).Outcome)
			}
		}
		want(t, "dropped", dropped, 5)
		want(t, "answered", answered, 10)
		want(t, "the running one", h.end(running).Outcome, chat.OutcomeAnswered)
		time.Sleep(5 * time.Second)
		notices := 0
		for _, text := range h.box.texts("7") {
			if strings.Contains(text, "dropped") {
				notices++
				want(t, "notice", text, "5 messages were dropped because more than 10 were waiting.")
			}
		}
		want(t, "notices", notices, 1)
	})
}

func TestDropNewRefusesTheIncomingMessage(t *testing.T) {
	inDispatcher(t, func(t *testing.T, h *harness) {
		running := h.send("main", "sleep 10s")
		var ids []string
		for i := range 15 {
			m := h.msg("main", "hello")
			_, err := h.d.Receive(t.Context(), m)
			switch {
			case i < 10 && err == nil:
				ids = append(ids, m.ID)
			case i < 10 || !errors.Is(err, chat.ErrQueueFull):
				t.Errorf("message %d: %v", i, err)
			}
		}
		want(t, "the running one", h.end(running).Outcome, chat.OutcomeAnswered)
		for _, id := range ids {
			want(t, "what waited", h.end(id).Outcome, chat.OutcomeAnswered)
		}
		want(t, "refusals", h.d.Lanes().DropsNew, int64(5))
	}, queue(scheduler.Settings{DropNew: true}))
}

// The messages have the form of chat.send with deliver and of hooks: the key of a session names its
// chat, but not the account.
func TestAReplyToTheChatOfASessionNamesTheAccount(t *testing.T) {
	deliver := func(t *testing.T, h *harness, session string) (chat.Message, error) {
		m := h.msg(session, "hello")
		m.Content.Options.ReplyTo = m.Session.Target()
		_, err := h.d.ReceiveFrom(t.Context(), m, chat.Caller{Principal: "operator", Scopes: []string{chat.ScopeAdmin}})
		return m, err
	}
	account := func(t *testing.T, st dispatch.Store, id string) string {
		t.Helper()
		m, err := st.MessageByID(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return m.Content.Options.ReplyTo.Channel
	}
	lease := func(t *testing.T, st dispatch.Store, names ...string) {
		t.Helper()
		if err := st.Register(t.Context(), store.Node{ID: "other"}); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, _, err := st.AcquireLease(t.Context(), name, "other"); err != nil {
				t.Fatal(err)
			}
		}
	}
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		lease(t, st, "telegram:666")
		h := open(t, st)
		defer h.close()
		m, err := deliver(t, h, "agent:main:telegram:direct:7")
		want(t, "error", err, nil)
		want(t, "the only account", account(t, st, m.ID), "telegram:666")
		m, err = deliver(t, h, "agent:main:box:direct:7")
		want(t, "error", err, nil)
		want(t, "a channel without accounts", account(t, st, m.ID), "box")
		m, err = deliver(t, h, "agent:main:main")
		want(t, "error", err, nil)
		want(t, "a session without a chat", account(t, st, m.ID), "")
	})
	synctest.Test(t, func(t *testing.T) {
		st := newStore(t)
		lease(t, st, "telegram:666", "telegram:777")
		h := open(t, st)
		defer h.close()
		h.end(h.send("agent:main:telegram:direct:7", "from the chat", func(m *chat.Message) { m.Principal, m.Channel = "telegram:777:7", "telegram:777" }))
		m, err := deliver(t, h, "agent:main:telegram:direct:7")
		want(t, "error", err, nil)
		want(t, "the account of the owner of the session", account(t, st, m.ID), "telegram:777")
		if _, err = deliver(t, h, "agent:main:telegram:direct:8"); err == nil {
			t.Error("an address of two accounts was taken")
		} else {
			want(t, "refusal", err.Error(), "there are several accounts of telegram (telegram:666, telegram:777); name one of them")
		}
	})
}

// The agent answers nothing. The person reads that once, unless the agent has sent them a message
// itself. The stored answer stays empty.
func TestAnEmptyAnswerIsSaidToBeEmptyWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		call       chat.ToolCall // that the agent makes before
		answer     agent.Result
		system     bool   // the message comes from the gateway itself
		chat, note string // the messages of the chat, and the sentence in the end of the run
	}{
		"nothing":              {answer: agent.Result{StopReason: agent.StopNormal}, chat: "(empty answer)", note: "(empty answer)"},
		"blank":                {answer: agent.Result{Text: " \n"}, chat: "(empty answer)", note: "(empty answer)"},
		"at the limit":         {answer: agent.Result{StopReason: agent.StopLength}, chat: "(empty answer: the model stopped at its length limit)", note: "(empty answer: the model stopped at its length limit)"},
		"after a message":      {call: messageCall("on my way"), chat: "on my way"},
		"after a refused call": {call: chat.ToolCall{Name: "message", Args: `{"text":" "}`}, chat: "(empty answer)", note: "(empty answer)"},
		"after another call":   {call: chat.ToolCall{Name: "sessions", Args: `{}`}, chat: "(empty answer)", note: "(empty answer)"},
		"an event":             {system: true},
		"text at the limit":    {answer: agent.Result{Text: "half", StopReason: agent.StopLength}, chat: "half"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := open(t, newStore(t), withRunner(runnerFunc(func(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
					if c.call.Name != "" {
						if err := req.Journal.Record(ctx, chat.Round{Number: 1, Calls: []chat.ToolCall{c.call}, Results: make([]*chat.ToolResult, 1)}); err != nil {
							return agent.Result{}, err
						}
						result := req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", c.call)
						if err := req.Journal.RecordResult(ctx, 1, 0, result); err != nil {
							return agent.Result{}, err
						}
					}
					emit(agent.Event{Kind: agent.EventDelta, Text: c.answer.Text})
					return c.answer, nil
				}), dispatch.Tools{Default: true}))
				defer h.close()
				id := h.send("agent:main:own", "go", replyTo("7"), func(m *chat.Message) { m.Content.System = c.system })
				end := h.end(id)
				time.Sleep(10 * time.Second)
				want(t, "messages", strings.Join(h.box.texts("7"), " | "), c.chat)
				want(t, "answer", end.Text, c.answer.Text)
				want(t, "sentence of the end", end.Message, c.note)
				stored := h.end(id)
				want(t, "sentence of the stored end", stored.Message, c.note)
				if c.note != "" {
					want(t, "stop reason of the stored end", stored.StopReason, end.StopReason)
				}
			})
		})
	}
}
