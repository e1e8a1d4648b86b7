package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

const longSession = "agent:main:long"

// line returns a message of some 50 tokens with a fact.
func line(n int) string { return fmt.Sprintf("fact-%d ", n) + strings.Repeat("words ", 20) }

// talkUntil sends messages until done returns true.
func (h *harness) talkUntil(what string, done func() bool) {
	h.t.Helper()
	for n := range 200 {
		if end := h.end(h.send(longSession, line(n))); end.Outcome != chat.OutcomeAnswered {
			h.t.Fatalf("turn %d ended %+v", n, end)
		}
		if synctest.Wait(); done() {
			return
		}
	}
	h.t.Fatalf("not in 200 turns: %s", what)
}

// count reads a counter under the lock of the model.
func (s *scripted) count(of *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *of
}

// compactionSession returns the session in which a conversation is compacted.
func compactionSession(t *testing.T, st dispatch.Store) string {
	t.Helper()
	key, err := chat.ParseSessionKey(longSession, "main")
	if err != nil {
		t.Fatal(err)
	}
	tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return "agent:main:cron:compact:" + tr.SessionID
}

// In a lane of one slot, no message waits for a summary.
func TestASummaryHoldsNoSlotOfItsLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
		h := open(t, newStore(t), compacting(model), lanes(1))
		for i := range 80 {
			before := time.Now()
			h.end(h.send(longSession, line(i)))
			if took := time.Since(before); took > 1100*time.Millisecond {
				t.Fatalf("message %d waited, its turn took %s", i, took)
			}
		}
		h.close()
		if model.count(&model.summarised) == 0 {
			t.Error("nothing was summarised")
		}
	})
}

// Summaries take no slots, so they have their own limit.
func TestSummariesAreWrittenEightAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
		h := open(t, newStore(t), compacting(model))
		const conversations = 20
		for i := range 40 {
			var ids []string
			for c := range conversations {
				ids = append(ids, h.send(fmt.Sprintf("agent:main:c%d", c), line(i)))
			}
			for _, id := range ids {
				h.end(id)
			}
		}
		time.Sleep(10 * time.Minute)
		h.close()
		model.mu.Lock()
		defer model.mu.Unlock()
		want(t, "summaries at once", model.mostSums, 8)
		if model.summarised < conversations {
			t.Errorf("%d summaries of %d conversations", model.summarised, conversations)
		}
	})
}

// Its message was ended while it waited for a slot, so this process has seen no turn of it.
func TestACompactionThatNeverRanIsBegunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 4000, takes: time.Second, sums: time.Second}
		h := open(t, st, compacting(model), func(c *dispatch.Config) {
			c.Lanes = []scheduler.Lane{{Name: "main", Limit: 1}, {Name: "team", Limit: 1}}
		})
		inTeam := func(m *chat.Message) { m.Lane = "team" }
		waiting := func() bool {
			key, err := chat.ParseSessionKey(compactionSession(t, st), "main")
			if err != nil {
				t.Fatal(err)
			}
			rows, _, err := st.PendingInputs(t.Context(), key, 0, 10)
			return err == nil && len(rows) > 0
		}
		model.hold.Store(true)
		blocker := h.send("agent:main:blocker", "held") // in the lane of compactions
		for n := 0; !waiting(); n++ {
			if n == 100 {
				t.Fatal("no compaction was begun")
			}
			h.end(h.send(longSession, line(n), inTeam))
			synctest.Wait()
		}
		h.end(h.send(compactionSession(t, st), "/stopall", typed))
		h.end(h.send("agent:main:blocker", "/stop", typed))
		h.end(blocker)
		model.hold.Store(false)
		time.Sleep(16 * time.Minute)
		h.talkUntil("a summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 0 })
		h.close()
	})
}

// The part of the summary that was written is neither sent nor stored in a session that a deletion of the conversation would not reach.
func TestAStoppedCompactionLeavesNoneOfItsText(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 8000, takes: time.Second, sums: time.Hour, writes: "They said fact-0 and "}
		h := open(t, st, compacting(model))
		for i := range 12 {
			h.end(h.send(longSession, line(i), replyTo("1")))
		}
		h.end(h.send(longSession, "/compact", replyTo("1"), typed))
		time.Sleep(10 * time.Second)
		session := compactionSession(t, st)
		h.end(h.send(session, "/stop", typed))
		time.Sleep(10 * time.Second)
		key, err := chat.ParseSessionKey(session, "main")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: key})
		if err != nil || len(tr.Entries) == 0 {
			t.Fatalf("the session of the compaction has %d rows, %v", len(tr.Entries), err)
		}
		for _, e := range tr.Entries {
			if strings.Contains(e.Text, "fact-0") {
				t.Errorf("its transcript has %q", e.Text)
			}
		}
		for _, text := range h.box.texts("1") {
			if strings.Contains(text, "They said") {
				t.Errorf("the person got %q", text)
			}
		}
		list, _ := summaries(t, st, longSession)
		want(t, "summaries", len(list), 0)
		h.close()
	})
}

// The summary of the old conversation is not added to the new one.
func TestAResetOrDeletionBesideACompactionLeavesNoSummary(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	ends := map[string]func(h *harness){
		"reset": func(h *harness) { h.end(h.send(longSession, "/reset", typed)) },
		"delete": func(h *harness) {
			key := chat.SessionKey{Agent: "main", Rest: "long"}
			if out, err := h.d.Delete(h.t.Context(), store.DeleteParams{Session: key}, chat.Caller{Principal: "tester"}); err != nil || !out.Deleted {
				h.t.Fatalf("%+v, %v", out, err)
			}
		},
	}
	for name, end := range ends {
		for kind, openStore := range stores(t) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := openStore(t)
					model := &scripted{window: 4000, takes: time.Second, sums: time.Minute}
					h := open(t, st, compacting(model))
					h.end(h.send(longSession, "fact-9999"))
					h.talkUntil("a summary is being written", func() bool { return model.count(&model.summing) > 0 })
					end(h)
					h.end(h.send(longSession, "hello again"))
					time.Sleep(2 * time.Minute)
					list, rows := summaries(t, st, longSession)
					if len(list) != 0 || rows > 4 { // a command, its answer, a message, its answer
						t.Errorf("%d summaries in %d rows: %+v", len(list), rows, list)
					}
					h.talkUntil("the new conversation has a summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 0 })
					model.mu.Lock()
					if strings.Contains(model.conversation, "fact-9999") {
						t.Errorf("the new conversation has the old one:\n%s", model.conversation)
					}
					model.mu.Unlock()
					h.close()
					if err := st.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The turns of the conversation run alternately on the two replicas.
func TestTwoReplicasCompactAConversationOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	for kind, openStore := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := openStore(t)
				model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
				a, b := open(t, st, compacting(model)), open(t, st, compacting(model))
				b.n.Store(100_000)
				const turns = 150
				for i := range turns {
					h := a
					if i%2 == 1 {
						h = b
					}
					if end := h.end(h.send(longSession, line(i))); end.Outcome != chat.OutcomeAnswered {
						t.Fatalf("turn %d ended %+v", i, end)
					}
				}
				time.Sleep(time.Minute)
				a.close()
				b.close()
				list, rows := summaries(t, st, longSession)
				model.mu.Lock()
				defer model.mu.Unlock()
				if len(list) < 5 || rows != 2*turns+len(list) || model.summarised != len(list) || model.over > 0 {
					t.Errorf("%d summaries in %d rows, the model has written %d; %d requests over the window", len(list), rows, model.summarised, model.over)
				}
				for i, e := range list {
					if i > 0 && e.Covers.To <= list[i-1].Covers.To {
						t.Errorf("summary %d covers %+v after %+v", i, e.Covers, list[i-1].Covers)
					}
				}
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The other replica has made the summary that this one started.
func TestAReplicaThatLostItsLeaseCompactsAgainLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		c, off := cord(st)
		model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
		h := open(t, c, compacting(model))
		h.talkUntil("a summary is being written", func() bool { return model.count(&model.summing) > 0 })
		off.Store(true)
		other := open(t, st, compacting(model))
		time.Sleep(40 * time.Second)
		list, _ := summaries(t, st, longSession)
		want(t, "summaries after the takeover", len(list), 1)
		off.Store(false)
		other.close()
		time.Sleep(16 * time.Minute)
		h.talkUntil("a second summary", func() bool { list, _ := summaries(t, st, longSession); return len(list) > 1 })
		h.close()
	})
}

// unanswered is a store that adds a summary and loses the response.
type unanswered struct {
	cronStore

	lost atomic.Int64
}

func (u *unanswered) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	e, added, err = u.cronStore.AppendSummary(ctx, p)
	if u.lost.Add(-1) >= 0 {
		return chat.TranscriptEntry{}, false, chat.ErrStoreUnavailable
	}
	return e, added, err
}

// The person is informed that the summary was made.
func TestASummaryWhoseCommitWasNotAnsweredIsReported(t *testing.T) {
	for kind, openStore := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &unanswered{cronStore: openStore(t)}
				model := &scripted{window: 8000, takes: time.Second, sums: time.Second}
				h := open(t, st, compacting(model))
				for i := range 12 {
					h.end(h.send(longSession, line(i), replyTo("1")))
				}
				st.lost.Store(2)
				h.end(h.send(longSession, "/compact", replyTo("1"), typed))
				time.Sleep(time.Minute)
				texts := h.box.texts("1")
				if last := texts[len(texts)-1]; !strings.HasPrefix(last, "Summarised the rows 1 to ") {
					t.Errorf("the person got %q", last)
				}
				list, _ := summaries(t, st, longSession)
				want(t, "summaries", len(list), 1)
				h.close()
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The job uses one conversation for months.
func TestTheSharedSessionOfAJobIsCompacted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		model := &scripted{window: 4000, takes: time.Second, sums: 10 * time.Second}
		h := openCron(t, st, compacting(model))
		h.put(cron.Job{ID: "watch", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Payload: cron.Payload{Text: line(0)}}, func(j *cron.Job) { j.Session = "session:" + longSession })
		time.Sleep(2 * time.Hour)
		h.close()
		runs := h.runs("watch")
		for _, r := range runs {
			if r.State != cron.RunOK {
				t.Fatalf("run %s is %s, %s", r.ID, r.State, r.Error)
			}
		}
		list, _ := summaries(t, st, longSession)
		if len(runs) < 100 || len(list) < 4 || model.over > 0 {
			t.Errorf("%d runs, %d summaries, %d requests over the window", len(runs), len(list), model.over)
		}
	})
}
