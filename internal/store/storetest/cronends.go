package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func cronEndTests() []test {
	return []test{
		{"EveryEndIsReturned", everyEndIsReturned},
		{"APauseThatEndsIsReturned", pauseEndIsReturned},
		{"TheEndOfAMessageReturnsTheEndOfItsRun", messageEndsRun},
	}
}

// finished reads the finished rows of the ledger.
func (w *world) finished() map[string]cron.Run {
	w.Helper()
	p := try(w.cron().Runs(w.ctx, cron.RunFilter{Limit: many})).ok(w)
	out := map[string]cron.Run{}
	for _, r := range p.Runs {
		out[r.ID] = r
	}
	return out
}

// ends checks the rows that an operation returns as finished against its changes in the ledger.
func (w *world) ends(what string, op func() []cron.Run) (n int) {
	w.Helper()
	before := w.finished()
	got := op()
	var want []cron.Run
	for id, r := range w.finished() {
		if _, was := before[id]; !was {
			want = append(want, r)
		}
	}
	byID := func(a, b cron.Run) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	ids := func(list []cron.Run) (out []string) {
		for _, r := range list {
			out = append(out, fmt.Sprint(r.ID, r.State, r.Reason, r.Error, r.ScheduledFor.UTC(), r.FinishedAt.UTC(), r.SlotCount, r.Owner, r.Attempt))
		}
		return out
	}
	equal(w, what, ids(got), ids(want))
	return len(want)
}

// everyEndIsReturned creates a random history, the same each time, and compares the result of each operation with the changes in the ledger.
func everyEndIsReturned(w *world) {
	h := &endings{world: w, node: w.node(), dice: rand.New(rand.NewPCG(31, 12)), begun: map[string]cron.Launched{}, ended: map[string]int{}} //nolint:gosec // no secret
	for _, o := range []cron.OverlapPolicy{cron.OverlapSkip, cron.OverlapCancelPrevious, cron.OverlapConcurrent} {
		h.jobs = append(h.jobs, w.job(func(j *cron.Job) { j.Overlap, j.Missed.Rule = o, cron.MissedFireAll }).ID)
	}
	steps := []func(){h.claim, h.claim, h.start, h.start, h.finish, h.cancelRun, h.cancelJob, h.pause, h.resume, h.enqueue, h.upsert}
	for range 120 {
		steps[h.dice.IntN(len(steps))]()
	}
	h.remove()
	for _, what := range []string{"claim", "end of an attempt", "cancelled run", "cancelled job", "resume", "removal"} {
		equal(w, "ends by "+what, h.ended[what] > 0, true)
	}
}

// endings is a random history of jobs.
type endings struct {
	*world

	node  string
	dice  *rand.Rand
	jobs  []string
	wait  []cron.Launched
	begun map[string]cron.Launched
	ended map[string]int // finished rows by the operation that ended them
}

func (h *endings) check(what string, op func() []cron.Run) { h.ended[what] += h.ends(what, op) }

func (h *endings) job() string { return h.jobs[h.dice.IntN(len(h.jobs))] }

func (h *endings) claim() {
	h.pass(interval*time.Duration(1+h.dice.IntN(3)), h.node)
	h.check("claim", func() []cron.Run {
		c := h.claimDue(h.node)
		h.wait = append(h.wait, c.Launched...)
		return c.Finished
	})
}

// start begins a waiting run, unless it has ended meanwhile.
func (h *endings) start() {
	if len(h.wait) == 0 {
		return
	}
	l := h.wait[0]
	h.wait = h.wait[1:]
	if h.ledger(l.Run.ID).State != cron.RunQueued {
		return
	}
	h.check("start", func() []cron.Run { h.begin(l); return nil })
	h.begun[l.Run.ID] = l
}

func (h *endings) finish() {
	for id, l := range h.begun {
		delete(h.begun, id)
		states := []cron.RunState{cron.RunOK, cron.RunError, cron.RunRetrying}
		state := states[h.dice.IntN(len(states))]
		h.check("end of an attempt", func() (finished []cron.Run) {
			h.endRun(claimOfRun(l), l.Message.ID, state, func(e *cron.AttemptEnd) {
				e.NextAttempt = h.clock.now().Add(interval / 2)
				e.Job = func(old cron.Job, r cron.Run, _ time.Time) *cron.Job {
					finished = []cron.Run{r} // it may be called again
					return &old
				}
			})
			return finished
		})
		return
	}
}

func (h *endings) cancelRun() {
	if len(h.wait) == 0 {
		return
	}
	id := h.wait[h.dice.IntN(len(h.wait))].Run.ID
	h.check("cancelled run", func() []cron.Run { return h.cancelled(cron.CancelParams{RunID: id, Note: "cancelled: enough"}) })
}

func (h *endings) cancelJob() {
	h.check("cancelled job", func() []cron.Run { return h.cancelled(cron.CancelParams{JobID: h.job()}) })
}

func (h *endings) cancelled(p cron.CancelParams) []cron.Run {
	c := try(h.cron().CancelRuns(h.ctx, p)).ok(h)
	return c.Finished
}

func (h *endings) pause() {
	h.check("pause", func() []cron.Run {
		return h.alter(h.job(), func(j *cron.Job) {
			if j.Pause == nil {
				until := h.clock.now().Add(2 * interval)
				j.Pause, j.State.NextRunAt = &cron.Pause{By: "ann", At: h.clock.now(), Until: until}, until
			}
		}).Finished
	})
}

// resume ends a pause by a change: the missed slots become one row.
func (h *endings) resume() {
	id := h.job()
	j := h.stored(id)
	if j.Pause == nil {
		return
	}
	h.pass(interval, h.node)
	row := skippedRow(j, j.State.Next, cron.ReasonPaused)
	h.check("resume", func() []cron.Run {
		c := try(h.cron().ChangeJob(h.ctx, cron.ChangeParams{ID: id, Skipped: &row, Change: func(j cron.Job, now time.Time) (*cron.Job, error) {
			j.Pause = nil
			compiled, err := schedule.Compile(j.Schedule)
			if err != nil {
				return nil, err
			}
			next, _ := j.Timetable(compiled).First(now)
			j.State.Next, j.State.NextRunAt = next.Slot, next.At
			return &j, nil
		}})).ok(h)
		return c.Finished
	})
}

func (h *endings) enqueue() {
	h.clock.advance(time.Millisecond)
	h.check("run by hand", func() []cron.Run {
		e := try(h.cron().EnqueueRuns(h.ctx, cron.EnqueueParams{Node: h.node, JobID: h.job(), Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		}})).ok(h)
		h.wait = append(h.wait, e.Launched...)
		return e.Finished
	})
}

func (h *endings) upsert() {
	j := h.stored(h.job())
	j.Description += "x"
	h.check("upsert", func() []cron.Run {
		r := try(h.cron().PutJob(h.ctx, putParams(j))).ok(h)
		return r.Finished
	})
}

// remove removes all jobs with their active runs.
func (h *endings) remove() {
	h.enqueue()
	for _, id := range h.jobs {
		h.check("removal", func() []cron.Run {
			c := try(h.cron().ChangeJob(h.ctx, cron.ChangeParams{ID: id, CancelActive: true, CancelReason: cron.ReasonRemoved, Change: func(cron.Job, time.Time) (*cron.Job, error) {
				return nil, nil //nolint:nilnil // removes the job
			}})).ok(h)
			return c.Finished
		})
	}
}

func pauseEndIsReturned(w *world) {
	node := w.node()
	j, other := w.job(nil), w.job(func(j *cron.Job) { j.Overlap = cron.OverlapConcurrent })
	until := w.clock.now().Add(interval)
	w.alter(j.ID, func(j *cron.Job) {
		j.Pause, j.State.NextRunAt = &cron.Pause{By: "ann", At: w.clock.now(), Until: until}, until
	})
	w.pass(interval, node)
	c := w.claimDue(node)
	equal(w, "jobs of the claim", len(c.Jobs), 2)
	equal(w, "resumed", len(c.Resumed), 1)
	equal(w, "the job", []any{c.Resumed[0].ID, c.Resumed[0].Pause == nil, c.Resumed[0].State.NextRunAt}, []any{j.ID, true, w.stored(j.ID).State.NextRunAt})
	w.pass(interval, node)
	equal(w, "resumed later", len(w.claimDue(node).Resumed), 0)
	equal(w, "the other", w.stored(other.ID).Pause == nil, true)
}
