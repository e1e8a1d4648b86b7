package storetest

import (
	"errors"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

func cronJobTests() []test {
	return []test{
		{"EveryMemberComesBack", everyMemberComesBack},
		{"PutAgainWritesNothing", putAgainWritesNothing},
		{"PutChangesTheJobWithTheKey", putChangesByKey},
		{"KeysBelongToTheirOwner", keysBelongToOwners},
		{"ErrorOfAChangeWritesNothing", changeErrors},
		{"ChangesSeeOneAnother", changesSeeOneAnother},
		{"PutsOfOneKeyMakeOneJob", putsOfOneKey},
		{"LimitsRefuseNewJobs", limitsRefuseNewJobs},
		{"KeyOfAnotherJobIsAConflict", keyConflict},
		{"NoPrincipalSeesJobsOfOthers", jobsOfOthers},
		{"RemovedJobLeavesItsHistory", removedJob},
		{"SkippedSlotsOfAPause", skippedSlotsOfAPause},
		{"AuditOnlyWithTheChange", auditOnlyWithTheChange},
		{"JobSurvivesReopening", jobSurvivesReopening},
	}
}

func everyMemberComesBack(w *world) {
	at := w.clock.now().Add(time.Hour + 7*time.Millisecond)
	j := w.draft()
	j.KeyDerived, j.DisplayName, j.Description, j.AccountID = true, script, script, "bot"
	j.JitterMs, j.StartsAt, j.EndsAt, j.MaxRuns = 1<<40, at, at.Add(time.Hour), 7
	j.Session, j.WakeMode = "session:room", "next-heartbeat"
	j.Schedule = schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * 1", TZ: "Europe/Berlin", Gap: schedule.GapSkip, Fold: schedule.FoldBoth}
	j.Payload = cron.Payload{Kind: cron.PayloadSystemEvent, Text: script, Options: []byte(`{"model":"m"}`)}
	j.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram", To: "4711", Thread: "7", BestEffort: true, Urgent: true, Options: []byte(`{"a":[1]}`)}
	j.Alert = cron.Alert{After: 3, Cooldown: time.Minute, Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: "https://example.org/"}}
	j.Overlap, j.Missed = cron.OverlapBufferOne, cron.MissedPolicy{Rule: cron.MissedFireAll, MaxCatchup: 7, Window: cron.EmptyWindow}
	j.AtMostOnce, j.DeleteAfter, j.AutoDisabled = true, true, true
	j.Pause = &cron.Pause{Note: script, By: "bob", At: at, Until: at.Add(time.Minute)}
	j.State = cron.JobState{
		Plan:        cron.Plan{Next: at, NextRunAt: at.Add(time.Second), NextWall: at.Add(time.Hour), ZoneRelease: "2026f"},
		ActivatedAt: at, Fired: 3, RunCount: 1 << 40, ErrorCount: 5,
		LastRunAt: at, LastState: cron.RunError, LastError: script, LastErrorClass: "timeout", LastDuration: 1500 * time.Millisecond,
		LastDelivery: cron.DeliveryNot, LastDeliveryError: "403", LastAlertAt: at, ConsecutiveErrors: 2, ConsecutiveSkipped: 4,
		DeliveryPause: cron.DeliveryPause{Since: at, Reason: "blocked", Channel: "telegram:1", ChatID: "4711"},
	}
	equal(w, "made", w.put(j), j)
	equal(w, "read", w.stored(j.ID), j)
	w.alter(j.ID, func(j *cron.Job) {
		j.Pause, j.Enabled, j.State.Plan = nil, false, cron.Plan{}
	})
	j.Pause, j.Enabled, j.State.Plan = nil, false, cron.Plan{}
	equal(w, "after the pause", w.stored(j.ID), j)
	equal(w, "a change of nothing else", w.alter(j.ID, func(j *cron.Job) { j.State.DeliveryPause = cron.DeliveryPause{} }).Changed, true)
	j.State.DeliveryPause = cron.DeliveryPause{}
	equal(w, "after the pause of its delivery", w.stored(j.ID), j)
}

func putAgainWritesNothing(w *world) {
	j := w.job(nil)
	before := w.revision()
	for range 2 {
		r := try(w.cron().PutJob(w.ctx, cron.PutParams{
			Owner: j.Owner, Key: j.Key, Audit: &cron.Audit{Who: "ann", Verb: "add", Object: j.ID},
			Change: func(old *cron.Job, now time.Time) (*cron.Job, error) {
				equal(w, "the stored job and the clock", []any{*old, now.UTC()}, []any{j, w.clock.now()})
				return old, nil
			},
		})).ok(w)
		equal(w, "result", r, cron.PutResult{Job: j})
	}
	equal(w, "revision of the list", w.revision(), before)
	equal(w, "audit rows", w.audits(), [][]any{})
}

func (w *world) revision() string {
	w.Helper()
	p := try(w.cron().Jobs(w.ctx, cron.JobFilter{Limit: 1})).ok(w)
	return p.Revision
}

func putChangesByKey(w *world) {
	j := w.job(nil)
	r := try(w.cron().PutJob(w.ctx, cron.PutParams{Owner: j.Owner, Key: j.Key, Change: func(old *cron.Job, _ time.Time) (*cron.Job, error) {
		old.Name, old.Revision = "other", "r2"
		return old, nil
	}})).ok(w)
	j.Name, j.Revision = "other", "r2"
	equal(w, "result", r, cron.PutResult{Job: j, Updated: true})
	equal(w, "stored", w.stored(j.ID), j)
}

func keysBelongToOwners(w *world) {
	a := w.job(nil)
	b := w.job(func(j *cron.Job) { j.Owner, j.Key = "bob", a.Key })
	equal(w, "two jobs", a.ID != b.ID, true)
	equal(w, "owners", []string{w.stored(a.ID).Owner, w.stored(b.ID).Owner}, []string{"ann", "bob"})
}

func changeErrors(w *world) {
	j := w.job(nil)
	refuse := errors.New("changed since it was read")
	before := w.revision()
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{
		ID: j.ID, Audit: &cron.Audit{Who: "ann"}, CancelActive: true,
		Change: func(old cron.Job, _ time.Time) (*cron.Job, error) { return nil, refuse },
	})).fails(w, refuse)
	try(w.cron().PutJob(w.ctx, cron.PutParams{
		Owner: "ann", Key: "new", Audit: &cron.Audit{Who: "ann"},
		Change: func(*cron.Job, time.Time) (*cron.Job, error) { return nil, refuse },
	})).fails(w, refuse)
	equal(w, "job", w.stored(j.ID), j)
	equal(w, "revision of the list", w.revision(), before)
	equal(w, "audit rows", w.audits(), [][]any{})
}

// changesSeeOneAnother: each change reads the result of the one before, so a check of the revision
// is exact.
func changesSeeOneAnother(w *world) {
	j := w.job(func(j *cron.Job) { j.MaxRuns = 1 })
	w.race(racers, func(st store.Store, _ int) error {
		_, err := w.cronOf(st).ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			old.MaxRuns++
			return &old, nil
		}})
		return err
	})
	equal(w, "counted", w.stored(j.ID).MaxRuns, 1+racers)
}

func putsOfOneKey(w *world) {
	drafts := make([]cron.Job, racers)
	for i := range drafts {
		drafts[i] = w.draft()
		drafts[i].Key = "one"
	}
	made := make([]bool, racers)
	ids := make([]string, racers)
	w.race(racers, func(st store.Store, i int) error {
		r, err := w.cronOf(st).PutJob(w.ctx, cron.PutParams{Owner: "ann", Key: "one", Change: func(old *cron.Job, _ time.Time) (*cron.Job, error) {
			if old != nil {
				return old, nil
			}
			return &drafts[i], nil
		}})
		made[i], ids[i] = r.Created, r.Job.ID
		return err
	})
	count := 0
	for i := range made {
		equal(w, "id", ids[i], ids[0])
		if made[i] {
			count++
		}
	}
	equal(w, "jobs made", count, 1)
}

func limitsRefuseNewJobs(w *world) {
	old := w.job(nil)
	w.job(func(j *cron.Job) { j.Owner = "bob" })
	attempt := func(j cron.Job, ofOwner, total int) error {
		p := putParams(j)
		p.MaxOfOwner, p.MaxTotal = ofOwner, total
		_, err := w.cron().PutJob(w.ctx, p)
		return err
	}
	w.fails(attempt(w.draft(), 1, 0), chat.ErrLimit)
	w.fails(attempt(w.draft(), 0, 2), chat.ErrLimit)
	equal(w, "jobs", w.jobIDs(cron.JobFilter{Visible: "ann", Limit: many}), []string{old.ID})
	old.Name = "changed although there is no room"
	w.ok(attempt(old, 1, 2))
	w.ok(attempt(w.draft(), 2, 3))
}

func keyConflict(w *world) {
	a, b := w.job(nil), w.job(nil)
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: b.ID, Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
		j.Key = a.Key
		return &j, nil
	}})).fails(w, chat.ErrConflict)
	equal(w, "unchanged", w.stored(b.ID), b)
	w.alter(b.ID, func(j *cron.Job) { j.Key = "free" })
	equal(w, "renamed", w.stored(b.ID).Key, "free")
	w.alter(a.ID, func(j *cron.Job) { j.Key = b.Key })
}

func jobsOfOthers(w *world) {
	j := w.job(nil)
	try(w.cron().Job(w.ctx, j.ID, "bob")).fails(w, chat.ErrNotFound)
	try(w.cron().Job(w.ctx, "nothing", "")).fails(w, chat.ErrNotFound)
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Visible: "bob", Change: func(cron.Job, time.Time) (*cron.Job, error) {
		w.Errorf("a change was called for the job of another principal")
		return nil, nil // would remove the job
	}})).fails(w, chat.ErrNotFound)
	try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{Node: w.node(), JobID: j.ID, Visible: "bob"})).fails(w, chat.ErrNotFound)
	equal(w, "jobs that bob sees", w.jobIDs(cron.JobFilter{Visible: "bob", Limit: many}), nil)
	mine := try(w.cron().Job(w.ctx, j.ID, "ann")).ok(w)
	equal(w, "job", mine, j)
}

func removedJob(w *world) {
	node := w.node()
	j := w.job(nil)
	l := w.due(node)
	w.endRun(w.begin(l), l.Message.ID, cron.RunOK, nil)
	next := w.due(node)
	c := try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil // removes the job
	}})).ok(w)
	equal(w, "what was removed", []any{c.Old.ID, c.Job == nil, c.Changed, len(c.Ended)}, []any{j.ID, true, true, 0})
	try(w.cron().Job(w.ctx, j.ID, "")).fails(w, chat.ErrNotFound)
	r := w.ledger(l.Run.ID)
	equal(w, "history", []any{r.State, r.JobName, r.JobKey, r.Owner}, []any{cron.RunOK, j.Name, j.Key, j.Owner})
	w.endRun(w.begin(next), next.Message.ID, cron.RunOK, func(e *cron.AttemptEnd) {
		e.Job = func(old cron.Job, _ cron.Run, _ time.Time) *cron.Job { return &old }
	})
	equal(w, "the run that was under way", w.ledger(next.Run.ID).State, cron.RunOK)
	try(w.cron().Job(w.ctx, j.ID, "")).fails(w, chat.ErrNotFound)

	again := j
	again.ID = "another"
	p := putParams(again)
	p.FormerID = "no such job"
	equal(w, "a job after one without history", try(w.cron().PutJob(w.ctx, p)).ok(w).Job.ID, "another")
	try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: "another", Change: func(cron.Job, time.Time) (*cron.Job, error) {
		return nil, nil // removes the job
	}})).ok(w)
	other := again
	other.ID, other.Owner = "of another owner", "mallory"
	p = putParams(other)
	p.FormerID = j.ID
	equal(w, "a job of another owner", try(w.cron().PutJob(w.ctx, p)).ok(w).Job.ID, other.ID)
	again.ID = "a third"
	p = putParams(again)
	p.FormerID = j.ID
	equal(w, "a job that continues the history", try(w.cron().PutJob(w.ctx, p)).ok(w).Job.ID, j.ID)
	again.ID, again.Key = "a fourth", "another key"
	p = putParams(again)
	p.FormerID = j.ID
	try(w.cron().PutJob(w.ctx, p)).fails(w, chat.ErrConflict)
}

func skippedSlotsOfAPause(w *world) {
	j := w.job(nil)
	w.clock.advance(5 * interval)
	row := spanRow(j, cron.RunSkipped, cron.MissedSpan{Reason: cron.ReasonPaused, First: j.State.Next, Last: j.State.Next.Add(4 * interval), Count: 5})
	for range 2 {
		p := cron.ChangeParams{ID: j.ID}
		p.Skipped = &row
		p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
			old.State.Next, old.State.NextRunAt = now.Add(interval), now.Add(interval)
			return &old, nil
		}
		try(w.cron().ChangeJob(w.ctx, p)).ok(w)
	}
	list := w.history(j.ID)
	equal(w, "rows", len(list), 1)
	equal(w, "row", []any{list[0].State, list[0].Reason, list[0].SlotCount, list[0].SlotUntil, list[0].FinishedAt},
		[]any{cron.RunSkipped, cron.ReasonPaused, int64(5), row.SlotUntil, w.clock.now()})
}

// audits reads the audit log; nothing where the engine has no SQL.
func (w *world) audits() [][]any {
	w.Helper()
	return w.h.Query(w.tb, "SELECT who, verb, object, before_hash, after_hash, peer, request_id FROM audit_log ORDER BY at, verb")
}

func auditOnlyWithTheChange(w *world) {
	j := w.draft()
	note := func(verb string) *cron.Audit {
		return &cron.Audit{Who: "ann", Verb: verb, Object: "job:" + j.ID, Peer: "127.0.0.1:9", RequestID: "q1"}
	}
	p := putParams(j)
	p.Audit = note("1-add")
	try(w.cron().PutJob(w.ctx, p)).ok(w)
	change := func(verb string, fn func(j *cron.Job) *cron.Job) {
		try(w.cron().ChangeJob(w.ctx, cron.ChangeParams{ID: j.ID, Audit: note(verb), Change: func(j cron.Job, _ time.Time) (*cron.Job, error) {
			return fn(&j), nil
		}})).ok(w)
	}
	put := func(verb, description, revision string) {
		j.Description, j.Revision = description, revision
		p := putParams(j)
		p.Audit = note(verb)
		try(w.cron().PutJob(w.ctx, p)).ok(w)
	}
	change("2-nothing", func(j *cron.Job) *cron.Job { return j })
	change("3-update", func(j *cron.Job) *cron.Job {
		j.Description, j.Revision = "x", "r2"
		return j
	})
	equal(w, "runs to cancel", len(w.cancel(cron.CancelParams{JobID: j.ID, Audit: note("4-cancel")})), 0)
	put("5-put", "y", "r3")
	put("6-nothing", "y", "r3")
	node := w.node()
	running := w.due(node)
	w.begin(running)
	queued := w.byHand(node, j)
	try(w.cron().EnqueueRuns(w.ctx, cron.EnqueueParams{
		Node: node, JobID: j.ID, Audit: note("7-run"), Make: func(d cron.DueJob, now time.Time) ([]cron.Launch, error) {
			return []cron.Launch{launch(d.Job, cron.TriggerBackfill, schedule.Fire{Slot: now, At: now})}, nil
		},
	})).ok(w)
	for _, id := range []string{queued.Run.ID, running.Run.ID} {
		w.cancel(cron.CancelParams{RunID: id, Audit: note("8-cancel " + id)})
	}
	change("9-remove", func(*cron.Job) *cron.Job { return nil })
	want := [][]any{}
	row := func(verb, before, after string) {
		want = append(want, []any{"ann", verb, "job:" + j.ID, chat.StateHash(before), chat.StateHash(after), "127.0.0.1:9", "q1"})
	}
	row("1-add", "", "r1")
	row("3-update", "r1", "r2")
	row("5-put", "r2", "r3")
	row("7-run", "r3", "r3")
	row("8-cancel "+queued.Run.ID, queued.Run.ID+" queued\n", queued.Run.ID+" cancelled\n")
	row("8-cancel "+running.Run.ID, running.Run.ID+" running\n", running.Run.ID+" stopping\n")
	row("9-remove", "r3", "")
	equal(w, "audit rows", fmt.Sprintf("%s", w.audits()), fmt.Sprintf("%s", want))
}

func jobSurvivesReopening(w *world) {
	j := w.job(nil)
	w.st = w.h.Reopen()
	equal(w, "job", w.stored(j.ID), j)
}

func cronNameTests() []test {
	return []test{
		{"NameThatExistsIsRefused", nameRefused},
		{"NameThatExistsIsReplaced", nameReplaced},
		{"GivenKeyCountsBeforeTheName", keyBeforeName},
		{"OneNameMakesOneJob", oneNameMakesOneJob},
	}
}

// named puts a new job with a rule for its name.
func (w *world) named(st cron.JobStore, name string, rule cron.NameRule, change func(*cron.PutParams)) (cron.PutResult, error) {
	j := w.draft()
	j.Name = name
	p := putParams(j)
	p.Name, p.IfNameExists = name, rule
	p.Change = func(old *cron.Job, _ time.Time) (*cron.Job, error) {
		if old != nil {
			next := *old
			next.Payload.Text = "replaced"
			return &next, nil
		}
		return &j, nil
	}
	if change != nil {
		change(&p)
	}
	return st.PutJob(w.ctx, p)
}

func (w *world) refusedFor(err error, ids ...string) {
	w.Helper()
	exists, ok := errors.AsType[*cron.NameExistsError](err)
	if !ok {
		w.Fatalf("got %v, want a *NameExistsError", err)
	}
	equal(w, "the jobs of that name", *exists, cron.NameExistsError{Name: "tea", IDs: ids})
}

func nameRefused(w *world) {
	first := w.job(func(j *cron.Job) { j.Name = "tea" })
	w.job(func(j *cron.Job) { j.Name, j.Owner = "tea", "bob" })
	before := w.revision()
	_, err := w.named(w.cron(), "tea", cron.NameRefuse, nil)
	w.refusedFor(err, first.ID)
	equal(w, "revision of the list", w.revision(), before)
	r := try(w.named(w.cron(), "Tea", cron.NameRefuse, nil)).ok(w)
	equal(w, "another name", r.Created, true)
	w.clock.advance(time.Second)
	r = try(w.named(w.cron(), "tea", cron.NameNew, nil)).ok(w)
	second := r.Job
	equal(w, "a second one", r.Created, true)
	for _, rule := range []cron.NameRule{cron.NameRefuse, cron.NameReplace} {
		_, err = w.named(w.cron(), "tea", rule, nil)
		w.refusedFor(err, first.ID, second.ID)
	}
}

func nameReplaced(w *world) {
	j := w.job(func(j *cron.Job) { j.Name = "tea" })
	audit := &cron.Audit{Who: "ann", Verb: "add", Object: "x"}
	r := try(w.named(w.cron(), "tea", cron.NameReplace, func(p *cron.PutParams) { p.Audit = audit })).ok(w)
	j.Payload.Text = "replaced"
	equal(w, "result", r, cron.PutResult{Job: j, Updated: true})
	equal(w, "stored", w.stored(j.ID), j)
	equal(w, "audit rows", len(w.audits()), 1)
	r = try(w.named(w.cron(), "water", cron.NameReplace, nil)).ok(w)
	equal(w, "nothing to replace: made", r.Created, true)
}

func keyBeforeName(w *world) {
	named := w.job(func(j *cron.Job) { j.Name = "tea" })
	keyed := w.job(func(j *cron.Job) { j.Key = "given" })
	given := func(p *cron.PutParams) { p.Key, p.KeyGiven = "given", true }
	r := try(w.named(w.cron(), "tea", cron.NameRefuse, given)).ok(w)
	equal(w, "the job with the key", r.Job.ID, keyed.ID)
	derived := func(p *cron.PutParams) { p.Key = named.Key }
	_, err := w.named(w.cron(), "tea", cron.NameRefuse, derived)
	w.refusedFor(err, named.ID)
}

// oneNameMakesOneJob: the rule is checked in the transaction, so only one of many concurrent calls
// creates the job.
func oneNameMakesOneJob(w *world) {
	made := make([]bool, racers)
	w.race(racers, func(st store.Store, i int) error {
		r, err := w.named(w.cronOf(st), "tea", cron.NameRefuse, nil)
		made[i] = r.Created
		if _, refused := errors.AsType[*cron.NameExistsError](err); refused || errors.Is(err, chat.ErrConflict) {
			return nil
		}
		return err
	})
	count := 0
	for _, m := range made {
		if m {
			count++
		}
	}
	equal(w, "jobs made", count, 1)
	equal(w, "jobs", len(w.jobIDs(cron.JobFilter{Visible: "ann", Limit: many})), 1)
}
