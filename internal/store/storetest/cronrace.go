package storetest

import (
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronRaceTests() []test {
	return []test{
		{"CancelAgainstStart", cancelAgainstStart},
		{"EditsAgainstEnds", editsAgainstEnds},
		{"EditsAgainstClaims", editsAgainstClaims},
		{"RunsByHandOfOneMoment", runsByHandOfOneMoment},
		{"CancelsOfOneRun", cancelsOfOneRun},
	}
}

// together runs two operations concurrently, each with a handle of its own.
func (w *world) together(one, other func(st store.Store) error) {
	w.Helper()
	second := w.h.Open()
	var group errgroup.Group
	begin := make(chan struct{})
	group.Go(func() error { <-begin; return one(w.st) })
	group.Go(func() error { <-begin; return other(second) })
	close(begin)
	w.ok(group.Wait())
}

// cancelAgainstStart: a run that is cancelled while it starts either never ran or has a stop request.
func cancelAgainstStart(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	for range 20 {
		w.clock.advance(time.Millisecond)
		l := w.byHand(node, j)
		c := claimOfRun(l)
		var began store.Started
		var ended []cron.CancelledRun
		w.together(func(st store.Store) (err error) {
			began, err = st.Start(w.ctx, store.StartParams{
				Claim: c, RunID: l.Message.ID, Lane: "cron", Seqs: []int64{l.Seq},
				Cron: &cron.AttemptStart{RunID: l.Run.ID, Attempt: 1, Node: node},
			})
			return err
		}, func(st store.Store) (err error) {
			c, err := w.cronOf(st).CancelRuns(w.ctx, cron.CancelParams{RunID: l.Run.ID, Reason: cron.ReasonStopped, By: "ann"})
			ended = c.Runs
			return err
		})
		equal(w, "cancelled", len(ended), 1)
		equal(w, "asked to stop exactly when it began", ended[0].Running, len(began.Seqs) == 1)
		if ended[0].Running {
			equal(w, "who asked", w.run(l.Message.ID).StopBy, "ann")
			w.endRun(c, l.Message.ID, cron.RunCancelled, nil)
		}
		w.ended(l.Message.ID, chat.OutcomeStopped)
		r := w.ledger(l.Run.ID)
		equal(w, "ledger", []any{r.State, r.Reason}, []any{cron.RunCancelled, cron.ReasonStopped})
	}
}

// editsAgainstEnds: neither an edit nor the end of a run overwrites the changes of the other.
func editsAgainstEnds(w *world) {
	const n = 16
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Overlap, j.MaxRuns = cron.OverlapConcurrent, 1 })
	var ends []store.FinishParams
	for range n {
		w.clock.advance(time.Millisecond)
		l := w.byHand(node, j)
		ends = append(ends, w.ending(w.begin(l), l.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
			e.Job = func(old cron.Job, _ cron.Run, _ time.Time) *cron.Job {
				old.State.RunCount++
				return &old
			}
		}))
	}
	w.race(2*n, func(st store.Store, i int) error {
		if i < n {
			_, err := st.Finish(w.ctx, ends[i])
			return err
		}
		_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			old.MaxRuns++
			return &old, nil
		}})
		return err
	})
	after := w.stored(j.ID)
	equal(w, "ends and edits", []int{int(after.State.RunCount), after.MaxRuns, after.State.Queued}, []int{n, n + 1, 0})
}

// editsAgainstClaims: in either order, the plan of an edit is kept.
func editsAgainstClaims(w *world) {
	node := w.node()
	var jobs []cron.Job
	for range 20 {
		jobs = append(jobs, w.job(nil))
	}
	w.pass(interval, node)
	at := w.clock.now().Add(time.Hour)
	for _, j := range jobs {
		w.together(func(st store.Store) error {
			_, err := w.cronOf(st).Claim(w.ctx, cron.ClaimParams{Node: node, Limit: 2, Decide: decide})
			return err
		}, func(st store.Store) error {
			_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
				old.Revision, old.State.Next, old.State.NextRunAt = "r2", at, at
				return &old, nil
			}})
			return err
		})
		after := w.stored(j.ID)
		equal(w, "plan", []any{after.Revision, after.State.Next, after.State.NextRunAt}, []any{"r2", at, at})
		equal(w, "fired as often as it has rows", after.State.Fired, len(w.history(j.ID)))
	}
}

func runsByHandOfOneMoment(w *world) {
	node := w.node()
	j := w.job(nil)
	var made, existing [racers]int
	w.race(racers, func(st store.Store, i int) error {
		e, err := w.cronOf(st).EnqueueRuns(w.ctx, cron.EnqueueParams{
			Node: node, JobID: j.ID, Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
				return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
			},
		})
		made[i], existing[i] = len(e.Launched), len(e.Existing)
		return err
	})
	sum := func(list [racers]int) (n int) {
		for _, v := range list {
			n += v
		}
		return n
	}
	equal(w, "made and existing", []int{sum(made), sum(existing)}, []int{1, racers - 1})
	equal(w, "messages", w.unfinished(), 1)
}

func cancelsOfOneRun(w *world) {
	node := w.node()
	w.job(nil)
	l := w.due(node)
	var ended [racers]int
	w.race(racers, func(st store.Store, i int) error {
		c, err := w.cronOf(st).CancelRuns(w.ctx, cron.CancelParams{
			RunID: l.Run.ID, Reason: cron.ReasonStopped, Audit: &cron.Audit{Who: "ann", Verb: "cancel", Object: l.Run.ID},
		})
		ended[i] = len(c.Runs)
		return err
	})
	total := 0
	for _, n := range ended {
		total += n
	}
	equal(w, "cancelled", total, 1)
	if w.h.Query != nil {
		equal(w, "audit rows", len(w.audits()), 1)
	}
}
