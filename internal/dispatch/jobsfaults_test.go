package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
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
		wantList(t, "sent", append(a.box.texts("ops"), b.box.texts("ops")...), []string{"begun"})
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
