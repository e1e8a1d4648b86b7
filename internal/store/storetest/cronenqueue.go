package storetest

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func cronHandTests() []test {
	return []test{
		{"RunByHandMovesNothing", runByHand},
		{"BackfillRunsWhatDidNotRunWell", backfill},
		{"NextWakeIsTheEarliestPlan", nextWake},
	}
}

func runByHand(w *world) {
	node := w.node()
	j := w.job(func(j *cron.Job) { j.Enabled = false })
	at := w.clock.now()
	params := cron.EnqueueParams{
		Node: node, JobID: j.ID, Visible: "ann", Audit: &cron.Audit{Who: "ann", Verb: "run", Object: j.ID},
		Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			equal(w, "the job and the clock", []any{d.Job.ID, now.UTC()}, []any{j.ID, at})
			return []cron.Launch{launch(d.Job, cron.TriggerManual, schedule.Fire{Slot: now, At: now})}, nil
		},
	}
	e := try(w.cron().EnqueueRuns(w.ctx, params)).ok(w)
	equal(w, "made", []any{len(e.Launched), len(e.Existing), e.Launched[0].Mine, e.Job.ID}, []any{1, 0, true, j.ID})
	id := cron.RunID(cron.TriggerManual, j.ID, at)
	again := try(w.cron().EnqueueRuns(w.ctx, params)).ok(w)
	equal(w, "made again", []any{len(again.Launched), again.Existing}, []any{0, []string{id}})
	equal(w, "audit rows", len(w.audits()), 1)
	l := e.Launched[0]
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	equal(w, "row", []any{w.ledger(id).State, w.ledger(id).Trigger}, []any{cron.RunOK, cron.TriggerManual})
	equal(w, "job", w.stored(j.ID), j)
	refuse := chat.ErrLimit
	params.Make = func(cron.DueJob, time.Time) ([]cron.Launch, error) { return nil, refuse }
	try(w.cron().EnqueueRuns(w.ctx, params)).fails(w, refuse)
	params.JobID = "nothing"
	try(w.cron().EnqueueRuns(w.ctx, params)).fails(w, chat.ErrNotFound)
}

func backfill(w *world) {
	node := w.node()
	j := w.job(nil)
	good := w.due(node)
	w.endRun(w.begin(good), good.Message.ID, cron.RunOK, nil)
	bad := w.due(node)
	w.endRun(w.begin(bad), bad.Message.ID, cron.RunError, nil)
	slots := []time.Time{good.Run.ScheduledFor, bad.Run.ScheduledFor, j.State.Next.Add(-interval)}
	launched := map[string]cron.Launched{}
	attempt := func(force bool) ([]string, []string) {
		e := try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{
			Node: node, JobID: j.ID, Slots: slots,
			Make: func(d cron.DueJob, _ time.Time) ([]cron.Launch, error) {
				var list []cron.Launch
				for _, slot := range slots {
					list = append(list, backfillOf(d, slot, force))
				}
				return list, nil
			},
		})).ok(w)
		var made []string
		for _, l := range e.Launched {
			made = append(made, l.Run.ID)
			launched[l.Run.ID] = l
		}
		return made, e.Existing
	}
	var ids []string
	for _, slot := range slots {
		ids = append(ids, cron.RunID(cron.TriggerBackfill, j.ID, slot))
	}
	made, existing := attempt(false)
	equal(w, "made and existing", [][]string{made, existing}, [][]string{ids[1:], ids[:1]})
	made, existing = attempt(false)
	equal(w, "made and existing again", [][]string{made, existing}, [][]string{nil, ids})
	made, existing = attempt(true)
	equal(w, "made and existing by force while some are under way", [][]string{made, existing}, [][]string{ids[:1], ids[1:]})
	for i, state := range []cron.RunState{cron.RunOK, cron.RunError, cron.RunOK} {
		l := launched[ids[i]]
		w.endRun(w.begin(l), l.Message.ID, state, nil)
	}
	second := func(i int) string { return cron.RunID(cron.BackfillTrigger(2), j.ID, slots[i]) }
	made, existing = attempt(false)
	equal(w, "made and existing when they have ended", [][]string{made, existing}, [][]string{{second(1)}, {ids[0], ids[2]}})
	w.endRun(w.begin(launched[second(1)]), second(1), cron.RunOK, nil)
	made, existing = attempt(true)
	third := cron.RunID(cron.BackfillTrigger(3), j.ID, slots[1])
	equal(w, "made and existing by force", [][]string{made, existing}, [][]string{{second(0), third, second(2)}, nil})
	equal(w, "trigger", w.ledger(third).Trigger, cron.BackfillTrigger(3))
}

// backfillOf is the launch of a slot by a backfill.
func backfillOf(d cron.DueJob, slot time.Time, force bool) cron.Launch {
	trigger, exists := cron.NextBackfill(d.Ran, slot, force)
	l := launch(d.Job, trigger, schedule.Fire{Slot: slot, At: slot})
	l.Exists = exists
	return l
}

func nextWake(w *world) {
	wake := func() time.Time {
		s := try(w.cron().Summary(w.ctx, "")).ok(w)
		return s.NextWake
	}
	equal(w, "no job", wake().IsZero(), true)
	node := w.node()
	j := w.job(nil)
	w.job(func(j *cron.Job) { j.Enabled, j.State.NextRunAt = false, w.clock.now() })
	equal(w, "one job", wake().UTC(), j.State.NextRunAt)
	l := w.due(node)
	c := w.begin(l)
	retry := w.clock.now().Add(10 * time.Second)
	equal(w, "while it runs", wake().UTC(), j.State.NextRunAt.Add(interval))
	w.endRun(c, l.Message.ID, cron.RunRetrying, func(e *cron.AttemptEnd) { e.NextAttempt = retry })
	equal(w, "with a retry", wake().UTC(), retry)
}
