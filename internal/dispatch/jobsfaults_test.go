package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/dispatch"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestAFailureThatDoesNotPassIsNotTriedAgain(t *testing.T) {
	for _, c := range []struct {
		reason            chat.FailReason
		retries, attempts int
		last              cron.AttemptState
	}{
		{chat.FailBadRequest, 3, 1, cron.AttemptError},
		{chat.FailRefusal, 3, 1, cron.AttemptError},
		{chat.FailAuth, 3, 1, cron.AttemptError},
		{chat.FailContextLength, 3, 1, cron.AttemptError},
		{chat.FailTimeout, 3, 4, cron.AttemptTimeout},
		{chat.FailOverloaded, 3, 4, cron.AttemptError},
		{chat.FailOverloaded, 1, 2, cron.AttemptError},
		{chat.FailOverloaded, 0, 1, cron.AttemptError},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			inJobs(t, func(t *testing.T, h *jobHarness) {
				h.put(once("bad", "fail "+string(c.reason), time.Second), func(j *cron.Job) { j.Retry.Retries = c.retries })
				after(10 * time.Minute)
				runs := h.runs("bad")
				if len(runs) != 1 || runs[0].State != cron.RunError || runs[0].ErrorClass != string(c.reason) || len(runs[0].Attempts) != c.attempts {
					t.Fatalf("runs: %+v", runs)
				}
				for i, a := range runs[0].Attempts {
					if a.Number != i+1 || a.State != c.last || a.ErrorClass != string(c.reason) {
						t.Errorf("attempt %d: %+v", i+1, a)
					}
				}
				want(t, "calls of the agent", len(h.runner.texts()), c.attempts)
				want(t, "errors in a row", h.job("bad").State.ConsecutiveErrors, 1)
			})
		})
	}
}

func TestARunThatADrainCutsGoesOnElsewhereAndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(t)
		a := openCron(t, st)
		a.put(once("long", "sleep 1h", time.Second), func(j *cron.Job) {
			j.Timeout, j.Alert.After = 3*time.Hour, 1
			j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "box", To: "ops"}
		})
		after(2 * time.Second)
		before := a.runs("long")
		wantList(t, "before", a.states("long"), []string{"running"})
		a.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.d.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		wantList(t, "after the drain", a.states("long"), []string{"queued"})
		a.d.Leave(t.Context())
		a.cancel()
		<-a.ended

		b := openCron(t, st)
		after(5 * time.Second)
		wantList(t, "in the next process", b.states("long"), []string{"running"})
		after(time.Hour)
		runs := b.runs("long")
		if len(runs) != 1 || runs[0].ID != before[0].ID || runs[0].State != cron.RunOK || len(runs[0].Attempts) != 2 {
			t.Fatalf("runs: %+v", runs)
		}
		want(t, "first attempt", runs[0].Attempts[0].State, cron.AttemptInterrupted)
		want(t, "second attempt", runs[0].Attempts[1].State, cron.AttemptOK)
		if r, err := st.RunByID(t.Context(), runs[0].ID); err != nil || r.Attempt != 2 || r.Crashes != 0 {
			t.Errorf("turn %+v, %v; want its second attempt without a crash", r, err)
		}
		want(t, "calls of the agents", len(a.runner.texts())+len(b.runner.texts()), 2)
		want(t, "errors in a row", b.job("long").State.ConsecutiveErrors, 0)
		wantList(t, "sent", append(a.box.texts("ops"), b.box.texts("ops")...), []string{"(planned 00:00) begun"})
		b.close()
		a.work(errors.New("over"))
	})
}

func TestAJobThatRunsAtMostOnceIsInterruptedByACrashWithOneAlert(t *testing.T) {
	deliveries := map[string]cron.Delivery{
		"a chat":           {Mode: cron.DeliverAnnounce, Channel: "box", To: "ops"},
		"the main session": {Mode: cron.DeliverAnnounce},
		"failures alone":   {Mode: cron.DeliverNone, Options: []byte(`{"failureDestination":{"channel":"box","to":"ops"}}`)},
	}
	for name, d := range deliveries {
		for _, kind := range []schedule.Kind{schedule.KindAt, schedule.KindEvery} {
			t.Run(string(kind)+" to "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					st := newStore(t)
					line, off := cord(st)
					a := openCron(t, line)
					job := once("care", "sleep 10m", time.Second)
					if kind == schedule.KindEvery {
						job.Schedule = schedule.Spec{Kind: kind, EveryMs: 86_400_000, AnchorMs: job.Schedule.At.UnixMilli()}
					}
					a.put(job, deliverTo(d), func(j *cron.Job) { j.AtMostOnce = true })
					after(2 * time.Second)
					wantList(t, "before", a.states("care"), []string{"running"})
					a.stop()
					off.Store(true)

					b := openCron(t, st)
					after(time.Minute)
					wantList(t, "afterwards", b.states("care"), []string{"interrupted"})
					want(t, "calls of the agents", len(a.runner.texts())+len(b.runner.texts()), 1)
					want(t, "errors in a row", b.job("care").State.ConsecutiveErrors, 1)
					tr, err := st.Transcript(t.Context(), store.TranscriptQuery{Session: chat.MainKey("main"), Limit: 10})
					if err != nil && !errors.Is(err, chat.ErrNotFound) {
						t.Fatal(err)
					}
					if sent := b.box.texts("ops"); len(sent)+len(tr.Entries) != 1 {
						t.Errorf("the owner got %q in the chat and %+v in the session", sent, tr.Entries)
					}
					b.close()
					a.abandon()
				})
			})
		}
	}
}

func TestAJobThatKeepsFailingIsDisabledWithOneAlert(t *testing.T) {
	inJobs(t, func(t *testing.T, h *jobHarness) {
		bad := cron.Job{ID: "bad", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000}, Payload: cron.Payload{Text: "fail"}}
		h.put(bad, func(j *cron.Job) {
			j.PauseAfter, j.Retry.Retries, j.Alert.After = 3, 0, 5
			j.Delivery.Options = []byte(`{"failureDestination":{"channel":"box","to":"ops"}}`)
		})
		after(10 * time.Minute)
		wantList(t, "runs", h.states("bad"), []string{"error", "error", "error"})
		want(t, "calls of the agent", len(h.runner.texts()), 3)
		if j := h.job("bad"); j.Enabled || !j.AutoDisabled || !j.State.NextRunAt.IsZero() || j.State.ConsecutiveErrors != 3 {
			t.Errorf("the job is %+v", j)
		}
		if sent := h.box.texts("ops"); len(sent) != 1 || !strings.Contains(sent[0], "switched off") {
			t.Errorf("the owner got %q", sent)
		}
		h.enable("bad", "true")
		if j := h.job("bad"); !j.Enabled || j.AutoDisabled || j.State.ConsecutiveErrors != 0 {
			t.Errorf("enabled again it is %+v", j)
		}
		after(61 * time.Second)
		wantList(t, "runs after it was enabled", h.states("bad"), []string{"error", "error", "error", "error"})
	})
}

func TestAnOutageOfTheDatabaseDuringARunCostsNeitherTheRunNorASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		st := sqlitetest.Open(t, sqlite.Config{Before: func(context.Context, string) error {
			if down.Load() {
				return chat.ErrStoreUnavailable
			}
			return nil
		}})
		h := openCron(t, st)
		job := everySecond("tick", "sleep 2s")
		job.Schedule.EveryMs, job.Schedule.AnchorMs = 10_000, time.Now().Add(time.Second).UnixMilli()
		h.put(job)
		after(2 * time.Second)
		wantList(t, "before", h.states("tick"), []string{"running"})
		down.Store(true)
		after(5 * time.Second) // the run ends meanwhile
		down.Store(false)
		after(2 * time.Second)
		wantList(t, "when it is back", h.states("tick"), []string{"ok"})
		after(20 * time.Second)
		ok, missed := h.slotsOnce("tick")
		if ok != 3 || missed != 0 || len(h.runs("tick")) != 3 {
			t.Errorf("%d runs, %d missed slots: %+v", ok, missed, h.runs("tick"))
		}
		want(t, "calls of the agent", len(h.runner.texts()), 3)
		for _, r := range h.runs("tick") {
			if late := r.StartedAt.Sub(r.ScheduledFor); r.Attempt != 1 || late < 0 || late > 5*time.Millisecond {
				t.Errorf("run %s began %s after its slot: %+v", r.ID, late, r)
			}
		}
		h.close()
	})
}

func TestARunThatIsLateNamesTheMomentForWhichItWasPlanned(t *testing.T) {
	for name, c := range map[string]struct {
		late time.Duration
		sent bool
	}{"an hour": {time.Hour, true}, "a minute": {time.Minute, true}, "less than a minute": {50 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStore(t)
				a := openCron(t, st)
				a.put(once("late", "water the plants", time.Hour))
				slot := time.Now().Add(time.Hour)
				a.close()
				after(time.Hour + c.late)
				b := openCron(t, st)
				after(5 * time.Second)
				expect := "water the plants"
				if c.sent {
					expect += "\n\n(planned for " + slot.UTC().Format("2006-01-02 15:04 -07:00") + ")"
				}
				wantList(t, "what the agent was asked", b.runner.texts(), []string{expect})
				wantList(t, "runs", b.states("late"), []string{"ok"})
				b.close()
			})
		})
	}
}

// dying is a store that can be disconnected from one process, as by a kill: after that, the process
// has no effect.
type dying struct {
	cronStore

	off  *atomic.Bool
	wake *modelWake
}

// modelWake passes the hints between processes, as the database does.
type modelWake struct {
	mu    sync.Mutex
	nodes map[string]chan struct{}
	heard map[string]store.HintedSessions
}

// The dispatcher finds this interface by a type assertion. If one of its methods were missing, it
// would work without hints.
var _ store.Waker = dying{}

func (w *modelWake) of(node string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes == nil {
		w.nodes, w.heard = map[string]chan struct{}{}, map[string]store.HintedSessions{}
	}
	if w.nodes[node] == nil {
		w.nodes[node] = make(chan struct{}, 1)
	}
	return w.nodes[node]
}

// Notify implements store.Waker.
func (s dying) Notify(node string, h store.Hint, session string) {
	if s.gone() {
		return
	}
	name := node + string(h)
	ch := s.wake.of(name)
	s.wake.mu.Lock()
	heard := s.wake.heard[name]
	heard.Add(session)
	s.wake.heard[name] = heard
	s.wake.mu.Unlock()
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Hinted implements store.Waker.
func (s dying) Hinted(node string, h store.Hint) store.HintedSessions {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	heard := s.wake.heard[node+string(h)]
	delete(s.wake.heard, node+string(h))
	return heard
}

// Wakeups implements store.Waker.
func (s dying) Wakeups(node string, h store.Hint) <-chan struct{} { return s.wake.of(node + string(h)) }

func (s dying) gone() bool { return s.off.Load() }

func (s dying) Heartbeat(ctx context.Context, id string, draining bool) (store.Beat, error) {
	if s.gone() {
		return store.Beat{}, chat.ErrStoreUnavailable
	}
	return s.cronStore.Heartbeat(ctx, id, draining)
}

func (s dying) Register(ctx context.Context, n store.Node) error {
	if s.gone() {
		return chat.ErrStoreUnavailable
	}
	return s.cronStore.Register(ctx, n)
}

func (s dying) Unregister(ctx context.Context, n string) error {
	if s.gone() {
		return nil
	}
	return s.cronStore.Unregister(ctx, n)
}

func (s dying) Begin(ctx context.Context, p store.BeginParams) (store.Begun, error) {
	if s.gone() {
		return store.Begun{}, chat.ErrFenced
	}
	return s.cronStore.Begin(ctx, p)
}

func (s dying) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if s.gone() {
		return store.Finished{}, chat.ErrFenced
	}
	return s.cronStore.Finish(ctx, p)
}

func (s dying) Claim(ctx context.Context, p cron.ClaimParams) (cron.Claimed, error) {
	if s.gone() {
		return cron.Claimed{}, chat.ErrStoreUnavailable
	}
	return s.cronStore.Claim(ctx, p)
}

func (s dying) Sweep(ctx context.Context, sp store.SweepParams) ([]store.Front, error) {
	if s.gone() {
		return nil, chat.ErrStoreUnavailable
	}
	return s.cronStore.Sweep(ctx, sp)
}

// The second run of a buffer_one job is started through the process that does not run the first
// one. The owner of the session receives the hint and starts the second run at the end of the
// first, before its next sweep.
func TestAWaitingRunBeginsWhenTheRunOfAnotherProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, wake, off := sqlitetest.Open(t, sqlite.Config{}), &modelWake{}, &atomic.Bool{}
		rare := func(c *dispatch.Config) { c.Sweep = time.Minute }
		a, b := openCron(t, dying{st, off, wake}, rare), openCron(t, dying{st, off, wake}, rare)
		job := a.put(everySecond("twice", "sleep 1s"), func(j *cron.Job) { j.Schedule.EveryMs, j.Overlap = 3_600_000, cron.OverlapBufferOne })
		var ids []string
		for _, h := range []*jobHarness{a, b} {
			id, reason, err := h.d.Jobs.Start(t.Context(), job.ID, cron.RunForce, operator(), nil)
			if err != nil || reason != "" {
				t.Fatalf("the run did not start: %q, %v", reason, err)
			}
			ids = append(ids, id)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		starts := map[string]time.Time{}
		for _, h := range []*jobHarness{a, b} {
			h.runner.mu.Lock()
			for i, c := range h.runner.calls {
				starts[c.RunID] = h.runner.starts[i]
			}
			h.runner.mu.Unlock()
		}
		want(t, "time between the starts", fmt.Sprint(starts[ids[1]].Sub(starts[ids[0]])), "1s")
		b.close()
		a.close()
	})
}

func TestOldMessagesAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		old := h.send("main", "hello", replyTo("5"))
		h.end(old)
		after(3 * time.Hour)
		young := h.send("main", "again", replyTo("5"))
		h.end(young)
		after(time.Hour) // the job fires at 3:37
		if m, err := h.st.MessageByID(t.Context(), old); !errors.Is(err, chat.ErrNotFound) {
			t.Errorf("the old message is still there: %+v, %v", m, err)
		}
		if _, err := h.st.MessageByID(t.Context(), young); err != nil {
			t.Errorf("the young message is gone: %v", err)
		}
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:main"))
		if err != nil || len(tr.Entries) != 4 {
			t.Errorf("the conversation has %d entries, %v", len(tr.Entries), err)
		}
		page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "outgoing"})
		if err != nil || len(page.Runs) != 1 || !strings.HasPrefix(page.Runs[0].Summary, "1 messages and 1 outgoing messages removed") {
			t.Errorf("the ledger has %+v, %v", page.Runs, err)
		}
	}, func(c *dispatch.Config) { c.Cron.MessageRetention = time.Hour })
}

func TestWithoutARetentionNothingIsRemoved(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		id := h.send("main", "hello")
		h.end(id)
		after(4 * time.Hour)
		if _, err := h.st.MessageByID(t.Context(), id); err != nil {
			t.Errorf("the message is gone: %v", err)
		}
	})
}

func TestOldSessionsOfTasksAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	inJobs(t, func(t *testing.T, h *jobHarness) {
		h.end(h.send("agent:main:own", calling(delegated("old"), spawns("old", true))))
		after(3 * time.Hour)
		h.end(h.send("agent:main:own", calling(delegated("young"))))
		after(30 * time.Minute) // the job fires at 3:17
		kept := 0
		for _, task := range h.tasks(store.TaskFilter{}) {
			want(t, "a task that is kept", task.Text, "young")
			kept++
		}
		want(t, "tasks that are kept", kept, 1)
		wantSessions(t, h.st, "coder", 1)
		wantSessions(t, h.st, "main", 1)
		tr, err := h.st.Transcript(t.Context(), storeQuery("agent:main:own"))
		if err != nil || len(tr.Entries) < 4 {
			t.Errorf("the conversation has %d entries, %v", len(tr.Entries), err)
		}
	}, team(&branching{}), func(c *dispatch.Config) { c.Cron.Retention = time.Hour })
}

func TestOldSessionsOfCompactionsAreRemovedByABuiltInJobEveryNight(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		model := &scripted{window: 4000, takes: time.Second, sums: time.Second}
		h := openCron(t, newStore(t), compacting(model), func(c *dispatch.Config) { c.Cron.Retention = time.Hour })
		for i := range 40 {
			h.end(h.send(longSession, line(i)))
		}
		after(time.Minute) // the last compaction may still be running
		wantSessions(t, h.st, "main", 2)
		list, rows := summaries(t, h.st, longSession)
		if len(list) == 0 {
			t.Fatal("nothing was summarised")
		}
		after(4 * time.Hour) // the job fires at 3:17
		wantSessions(t, h.st, "main", 1)
		still, stay := summaries(t, h.st, longSession)
		want(t, "summaries", len(still), len(list))
		want(t, "rows of the conversation", stay, rows)
		h.close()
	})
}

// wantSessions counts the sessions of an agent that belong to people.
func wantSessions(t *testing.T, st dispatch.Store, agent string, want int) {
	t.Helper()
	list, _, err := st.ListSessions(t.Context(), store.SessionFilter{Agent: agent, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range list {
		if s.Principal != cron.SystemOwner {
			keys = append(keys, s.Key.String())
		}
	}
	if len(keys) != want {
		t.Errorf("the agent %s has %d sessions, want %d: %v", agent, len(keys), want, keys)
	}
}

// compacted is a store that counts its compactions.
type compacted struct {
	*sqlite.Store

	times []time.Time
}

func (c *compacted) Compact(context.Context) (string, error) {
	c.times = append(c.times, time.Now().UTC())
	return "3.5 MiB given back to the disk", nil
}

func TestTheStoreIsCompactedEverySunday(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	synctest.Test(t, func(t *testing.T) {
		st := &compacted{Store: newStore(t)}
		var h *jobHarness
		for range 15 { // a process runs from 3:55 to 4:15 of each day, because an idle process costs the test the most time
			until(3, 55)
			h = openCron(t, st)
			until(4, 15)
			h.close()
		}
		if len(st.times) != 2 {
			t.Fatalf("compacted at %v in fifteen days, want twice", st.times)
		}
		for _, at := range st.times {
			if at.Weekday() != time.Sunday || at.Hour() != 4 || at.Minute() > 10 {
				t.Errorf("compacted at %s, want Sundays from 4:00 to 4:10", at)
			}
		}
		page, err := h.jobs.Runs(t.Context(), cron.RunFilter{Query: "3.5 MiB given back"})
		if err != nil || len(page.Runs) != 2 {
			t.Errorf("the ledger has %+v, %v", page.Runs, err)
		}
	})
}
