package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// Runs starts runs by hand, backfills past slots, cancels runs and lists the ledger.
type Runs struct {
	*shared

	nudge func() // makes the loop claim immediately
}

// Ledger lists rows of the ledger, and the changes of a job if requested. A caller that sees
// neither the job nor a run of it gets no changes.
func (rs *Runs) Ledger(ctx context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error) {
	f.Visible = visible(by)
	page, err := rs.jobs.Runs(ctx, f)
	page.Zone = cmp.Or(rs.cfg.Rules.DefaultTZ, "UTC")
	if err != nil || !f.Changes || f.JobID == "" {
		return page, err
	}
	j, err := rs.jobs.Job(ctx, f.JobID, f.Visible)
	switch {
	case errors.Is(err, chat.ErrNotFound) && len(page.Runs) == 0:
		return page, nil
	case err != nil && !errors.Is(err, chat.ErrNotFound):
		return page, err
	}
	key := j.Key
	if f.Visible != "" {
		key = "" // another principal may have a job with the same key
	}
	past, err := rs.store.Past(ctx, f.JobID, key, f.Since, mostHistory)
	page.Changes = past.Changes
	return page, err
}

// maxShift is by how many milliseconds a manual run is moved at most when its millisecond is taken.
const maxShift = 100

// Start starts a run by hand. reason is why no run was started. With an idempotency key, a repeated
// call returns the result of the first one.
func (rs *Runs) Start(ctx context.Context, id string, mode cron.RunMode, by chat.Caller, o *chat.IdempotencyKey) (runID string, reason string, err error) {
	node, err := rs.node.Alive()
	if err != nil {
		return "", "", err
	}
	leave, err := rs.admit(ctx, by.Principal, by.Own, 1)
	if err != nil {
		return "", "", err
	}
	defer leave()
	p := cron.EnqueueParams{Node: node, JobID: id, Visible: visible(by), New: true, IdempotencyKey: o, Audit: by.Audit("cron.run", id)}
	shift := time.Duration(0)
	p.Make = func(due cron.DueJob, now time.Time) ([]cron.Launch, error) {
		if err := mayRun(due, mode, now); err != nil {
			return nil, err
		}
		slot := now.Add(shift)
		r := cron.PlannedRun{Fire: schedule.Fire{Slot: slot, At: slot}, Trigger: cron.TriggerManual}
		return []cron.Launch{rs.planner.Launch(due.Job, r, time.Time{})}, nil
	}
	for ; shift < maxShift*time.Millisecond; shift += time.Millisecond {
		res, err := rs.jobs.EnqueueRuns(ctx, p)
		switch {
		case errors.Is(err, chat.ErrConflict): // another manual run has taken this millisecond
			continue
		case errors.Is(err, chat.ErrNotFound):
			return "", "", jobNotFound(id)
		case err != nil:
			return "", "", wireFault(err)
		case res.NotRun != "":
			return "", res.NotRun, nil
		}
		rs.launch(ctx, res.Launched)
		return res.IDs[0], "", nil
	}
	return "", "", chat.Errorf(chat.CodeRateLimited, "this job was started by hand too often within this moment; try again")
}

// mayRun decides whether a manual run may start during active runs; its error is a
// [cron.NotRunError].
func mayRun(due cron.DueJob, mode cron.RunMode, now time.Time) error {
	j := due.Job
	switch {
	case mode == cron.RunIfEnabled && !j.MayFire():
		return cron.NotRunError("disabled")
	case mode == cron.RunDue && (!j.MayFire() || j.State.NextRunAt.IsZero() || j.State.NextRunAt.After(now)):
		return cron.NotRunError("not-due")
	case len(due.Active) > 0 && (j.Overlap == "" || j.Overlap == cron.OverlapSkip):
		return cron.NotRunError("already-running")
	case len(due.Active) > 1 && j.Overlap == cron.OverlapBufferOne:
		return cron.NotRunError("already-running")
	case len(due.Active) >= cron.MaxConcurrent:
		return cron.NotRunError("already-running")
	}
	return nil
}

// launch launches runs that were enqueued. The loop claims immediately, because the next slot of
// their job may be close and may have been locked.
func (rs *Runs) launch(ctx context.Context, list []cron.Launched) {
	for _, l := range list {
		rs.turns.Launch(ctx, l)
	}
	rs.nudge()
}

// Cancel ends active runs: one of them, or all of a job. It needs no slot and does not wait for
// turns. It fills in the requester.
func (rs *Runs) Cancel(ctx context.Context, p cron.CancelParams, by chat.Caller) ([]string, error) {
	cause := store.StopCause(store.ReasonStop, by.Principal)
	p.Visible, p.Reason, p.Note, p.By, p.Audit = visible(by), cron.ReasonStopped, cancelNote(p.Note), cause, by.Audit("cron.cancel", p.RunID+p.JobID)
	done, err := rs.jobs.CancelRuns(ctx, p)
	switch {
	case errors.Is(err, chat.ErrNotFound) && p.RunID == "":
		return nil, jobNotFound(p.JobID)
	case errors.Is(err, chat.ErrNotFound):
		return nil, chat.Errorf(chat.CodeInvalid, "cron run not found: %s", chat.Escaped(chat.Cut(p.RunID, 200), "")).With("code", "CRON_RUN_NOT_FOUND").With("runId", chat.Cut(p.RunID, 200))
	case err != nil:
		return nil, err
	}
	for _, run := range done.Runs {
		rs.turns.Stop(run, cause)
	}
	return done.IDs, nil
}

func cancelNote(note string) string {
	if note == "" {
		return "cancelled"
	}
	return "cancelled: " + note
}

// Backfill runs the slots of a job in [From, To], one at a time, oldest first. Slots with a
// successful run are skipped unless forced.
func (rs *Runs) Backfill(ctx context.Context, p cron.BackfillParams, by chat.Caller) ([]cron.BackfillFire, error) {
	if p.DryRun {
		p.IdempotencyKey = nil
	}
	if before, err := store.AnswerOf[*cron.Enqueued](ctx, rs.store.IdempotencyRecord, p.IdempotencyKey); err != nil || before != nil {
		return backfilled(before), err
	}
	job, err := rs.jobs.Job(ctx, p.ID, visible(by))
	if errors.Is(err, chat.ErrNotFound) {
		return nil, jobNotFound(p.ID)
	}
	if err != nil {
		return nil, err
	}
	node, err := rs.node.Alive()
	if err != nil {
		return nil, err
	}
	fires, err := rs.backfillFires(ctx, p, job)
	if err != nil {
		return nil, err
	}
	if p.DryRun {
		return rs.backfillPlan(ctx, p, fires)
	}
	leave, err := rs.admit(ctx, by.Principal, by.Own, len(fires))
	if err != nil {
		return nil, err
	}
	defer leave()
	if p.Spend != nil {
		if err := p.Spend(len(fires) * (len(job.Payload.Text) + len(job.Payload.Options))); err != nil {
			return nil, err
		}
	}
	slots := make([]time.Time, 0, len(fires))
	for _, f := range fires {
		slots = append(slots, f.Slot)
	}
	res, err := rs.jobs.EnqueueRuns(ctx, cron.EnqueueParams{
		Node: node, JobID: p.ID, Visible: visible(by), Slots: slots, IdempotencyKey: p.IdempotencyKey, Audit: by.Audit("cron.backfill", p.ID),
		Make: func(due cron.DueJob, _ time.Time) ([]cron.Launch, error) {
			return rs.planner.Backfill(due, fires, p.Force), nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("filling in runs: %w", err)
	}
	rs.launch(ctx, res.Launched)
	return backfilled(&res), nil
}

// backfillFires are the slots of a backfill.
func (rs *Runs) backfillFires(ctx context.Context, p cron.BackfillParams, job cron.Job) ([]schedule.Fire, error) {
	t, err := rs.planner.Timetable(job)
	if err != nil {
		return nil, wireFault(err)
	}
	now, err := rs.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if !p.From.Before(p.To) || p.To.After(now) {
		return nil, wireFault(&schedule.InvalidError{Field: "toMs", Reason: schedule.InvalidRange, Sentence: "the start must be before the end, and the end not in the future"})
	}
	fires, total := t.Between(p.From.Add(-1), p.To, p.MaxRuns)
	if total > int64(p.MaxRuns) {
		return nil, chat.Errorf(chat.CodeLimit, "there are %d fires in this time; at most %d are run at once, so choose a shorter time or a larger maxRuns", total, p.MaxRuns).
			With("field", "maxRuns").With("limit", p.MaxRuns)
	}
	return fires, nil
}

// backfilled lists the slots of a backfill; nil returns an empty list.
func backfilled(res *cron.Enqueued) []cron.BackfillFire {
	if res == nil {
		return nil
	}
	out := make([]cron.BackfillFire, 0, len(res.IDs))
	for _, id := range res.IDs {
		_, _, slot, err := cron.ParseRunID(id)
		if err != nil {
			continue // unreachable: the store keeps ids that this program made
		}
		out = append(out, cron.BackfillFire{Slot: slot, RunID: id, Exists: slices.Contains(res.Existing, id)})
	}
	return out
}

// backfillPlan lists what a backfill would do.
func (rs *Runs) backfillPlan(ctx context.Context, p cron.BackfillParams, fires []schedule.Fire) ([]cron.BackfillFire, error) {
	var ran []cron.SlotRun
	for offset := 0; ; {
		page, err := rs.jobs.Runs(ctx, cron.RunFilter{JobID: p.ID, Since: p.From, Until: p.To, IncludeActive: true, Limit: 200, Offset: offset})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			ran = append(ran, cron.SlotRun{Slot: r.ScheduledFor, Trigger: r.Trigger, State: r.State})
		}
		if offset += len(page.Runs); len(page.Runs) == 0 || offset >= page.Total && !page.More {
			break
		}
	}
	out := make([]cron.BackfillFire, 0, len(fires))
	for _, f := range fires {
		trigger, exists := cron.NextBackfill(ran, f.Slot, p.Force)
		out = append(out, cron.BackfillFire{Slot: f.Slot, RunID: cron.RunID(trigger, p.ID, f.Slot), Exists: exists})
	}
	return out, nil
}

// launcher receives the claims of the loop; it implements [cron.Launcher].
type launcher struct {
	*shared

	delivery *Delivery
	budgets  dailyAlerts
}

var _ cron.Launcher = (*launcher)(nil)

// Launch submits a claimed run to its lane.
func (l *launcher) Launch(ctx context.Context, run cron.Launched) { l.turns.Launch(ctx, run) }

// Claimed stops the runs that are replaced by claimed ones, and sends alerts about skipped slots.
func (l *launcher) Claimed(ctx context.Context, c cron.Claimed) {
	for _, run := range c.Cancelled {
		l.turns.Stop(run, store.StopCause(string(cron.ReasonReplaced), cron.Channel))
	}
	byID := map[string]cron.Job{}
	for _, j := range c.Jobs {
		byID[j.ID] = j
	}
	skipped := map[string][]cron.Run{}
	for _, r := range c.Recorded {
		if r.State == cron.RunSkipped && (r.Reason == cron.ReasonOverlap || r.Reason == cron.ReasonBudget || r.Reason == cron.ReasonBufferFull) {
			skipped[r.JobID] = append(skipped[r.JobID], r)
		}
	}
	for id, runs := range skipped {
		if kind := l.skipAlert(byID[id], runs); kind != cron.AlertNone { // the loop does not wait for the alert
			l.background(func() { l.delivery.alert(context.WithoutCancel(ctx), byID[id], runs[len(runs)-1], kind) })
		}
	}
}

// skipAlert is the alert about the slots of a job that were just skipped.
func (l *launcher) skipAlert(job cron.Job, runs []cron.Run) cron.AlertKind {
	byBudget := slices.ContainsFunc(runs, func(r cron.Run) bool { return r.Reason == cron.ReasonBudget && r.Error == "" }) // others have their own notice
	switch {
	case byBudget && !job.Alert.Off && l.budgets.first(job.Owner, time.Now()):
		return cron.AlertBudget
	case job.Skipping(len(runs)):
		return cron.AlertSkipping
	default:
		return cron.AlertNone
	}
}

// dailyAlerts records who got an alert of one kind: one a day. For used-up daily runs these are
// owners, whichever job it is.
type dailyAlerts struct {
	mu   sync.Mutex
	sent map[string]time.Time
}

const alertPeriod = 24 * time.Hour

// first reports whether the name got no alert within a day, and records that it gets one now.
func (b *dailyAlerts) first(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.sent, func(_ string, at time.Time) bool { return now.Sub(at) >= alertPeriod })
	if _, known := b.sent[name]; known {
		return false
	}
	if b.sent == nil {
		b.sent = map[string]time.Time{}
	}
	b.sent[name] = now
	return true
}

const (
	// longestExplained is the longest period whose slots are explained in one call.
	longestExplained = 26 * time.Hour
	// mostExplained is the maximum number of these slots.
	mostExplained = 100
	// rowsBefore is how many earlier rows are searched for one that stands for many slots.
	rowsBefore = 50
	// rulesApart is how far after its moment the run of a slot is searched that other rules of the
	// zone have planned.
	rulesApart = 3 * time.Hour
	// mostHistory is how many outages, and how many changes, an explanation reads.
	mostHistory = 100
)

// Explain explains the outcome of slots, by the ledger, the changes of the job and the outages.
func (ed *Editor) Explain(ctx context.Context, p cron.ExplainParams, by chat.Caller) (out cron.Explained, err error) {
	e := cron.Evidence{}
	if e.Now, err = ed.store.Now(ctx); err != nil {
		return out, err
	}
	j, err := ed.jobs.Job(ctx, p.ID, visible(by))
	switch {
	case err == nil:
		e.Job = &j
		if t, err := ed.planner.Timetable(j); err == nil {
			e.Timetable = &t
		}
	case !errors.Is(err, chat.ErrNotFound):
		return out, err
	}
	out.Zone = cmp.Or(ed.cfg.Rules.DefaultTZ, "UTC")
	if e.Job != nil {
		out.Zone = cmp.Or(j.Schedule.TZ, out.Zone)
	}
	if e.Zone, err = schedule.LoadZone(out.Zone); err != nil { // the row is invalid, which explains the outcome
		out.Zone, e.Zone = "UTC", time.UTC
	}
	one := p.From.IsZero()
	if one && p.At == "" && p.Moment.IsZero() {
		if p.Moment, err = ed.newest(ctx, p.ID, by, &e); err != nil {
			return out, err
		}
	}
	if p.From, p.Until, err = stretch(p, e.Now, out.Zone); err != nil {
		return out, err
	}
	if err := ed.evidence(ctx, p, by, &e); err != nil {
		return out, err
	}
	if e.Job == nil && len(e.Rows) == 0 {
		return out, jobNotFound(p.ID)
	}
	if e.Ref, err = ed.ref(ctx, e.Job, by); err != nil {
		return out, err
	}
	slots := []time.Time{p.From}
	if !one {
		slots = e.SlotsOf(p.From, p.Until, mostExplained)
	}
	for _, at := range slots {
		out.Slots = append(out.Slots, cron.Explain(at, e))
	}
	return out, nil
}

// Moment reads a moment in words by the store's clock, in the zone of a job, see
// [schedule.ParsePast] and [schedule.ParseMoment].
func (ed *Editor) Moment(ctx context.Context, id, words string, past bool, by chat.Caller) (time.Time, error) {
	j, err := ed.Job(ctx, id, by)
	if err != nil {
		return time.Time{}, err
	}
	now, err := ed.store.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	parse, zone := schedule.ParseMoment, cmp.Or(j.Schedule.TZ, ed.cfg.Rules.DefaultTZ, "UTC")
	if past {
		parse = schedule.ParsePast
	}
	at, err := parse(words, now, zone)
	return at, wireFault(err)
}

// ref is how a command names a job: by its id if another job has its name, else "".
func (ed *Editor) ref(ctx context.Context, j *cron.Job, by chat.Caller) (string, error) {
	if j == nil {
		return "", nil
	}
	named, err := ed.jobs.Jobs(ctx, cron.JobFilter{Visible: visible(by), IncludeSystem: true, Query: j.Name, WithoutPayload: true, Limit: mostExplained})
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(named.Jobs, func(other cron.Job) bool {
		return other.ID != j.ID && (other.Name == j.Name || other.Key == j.Name)
	}) {
		return j.ID, nil
	}
	return "", nil
}

// newest is the moment that is explained when none is asked for: the newest slot, for a job that is
// gone or has had all its runs that of its last run.
func (ed *Editor) newest(ctx context.Context, id string, by chat.Caller, e *cron.Evidence) (time.Time, error) {
	if e.Job == nil || e.Job.Spent() {
		last, err := ed.jobs.Runs(ctx, cron.RunFilter{Visible: visible(by), JobID: id, IncludeActive: true, Limit: 1})
		if err != nil {
			return time.Time{}, err
		}
		if len(last.Runs) > 0 {
			return last.Runs[0].ScheduledFor, nil
		}
	}
	return e.Newest(), nil
}

// stretch is the requested period; see [cron.After] for that of a moment.
func stretch(p cron.ExplainParams, now time.Time, zone string) (from, until time.Time, err error) {
	switch {
	case p.At != "":
		if p.Moment, err = schedule.ParsePast(p.At, now, zone); err != nil {
			return from, until, wireFault(err)
		}
	case !p.From.IsZero():
		if p.Until.Before(p.From) || p.Until.Sub(p.From) > longestExplained {
			return from, until, chat.Errorf(chat.CodeInvalid, "untilMs must be after fromMs, by at most 26 hours").With("field", "untilMs")
		}
		return p.From, p.Until, nil
	}
	from = p.Moment.Truncate(time.Second)
	return from, cron.After(from), nil
}

// evidence reads the evidence from the store.
func (ed *Editor) evidence(ctx context.Context, p cron.ExplainParams, by chat.Caller, e *cron.Evidence) error {
	id, key := p.ID, ""
	if e.Job != nil {
		key = e.Job.Key
	}
	f := cron.RunFilter{Visible: visible(by), JobID: id, IncludeActive: true, Since: p.From, Until: p.Until, Limit: mostExplained}
	during, err := ed.jobs.Runs(ctx, f)
	if err != nil {
		return err
	}
	f.Since, f.Until, f.Limit = time.Time{}, p.From, rowsBefore
	before, err := ed.jobs.Runs(ctx, f)
	if err != nil {
		return err
	}
	e.Rows = append(during.Runs, before.Runs...)
	if e.Timetable != nil && e.Timetable.Schedule.Release() != "" { // other rules of the zone may have planned the slot later
		f := f
		f.Since, f.Until, f.Ascending, f.Limit = p.Until, p.Until.Add(rulesApart), true, rowsBefore
		after, err := ed.jobs.Runs(ctx, f)
		if err != nil {
			return err
		}
		e.Rows = append(e.Rows, after.Runs...)
	}
	if e.Kept, err = ed.kept(ctx, f, e.Now); err != nil {
		return err
	}
	past, err := ed.store.Past(ctx, id, key, p.From, mostHistory)
	if err != nil {
		return err
	}
	e.Outages, e.Changes = past.Outages, past.Changes
	hold, err := ed.store.Hold(ctx)
	e.Held = hold != nil
	return err
}

// kept is how far back the ledger of a job reaches; zero = to its beginning.
func (ed *Editor) kept(ctx context.Context, f cron.RunFilter, now time.Time) (since time.Time, err error) {
	if ed.cfg.Retention > 0 {
		since = now.Add(-ed.cfg.Retention)
	}
	if ed.cfg.RetentionRuns == 0 {
		return since, nil
	}
	f.Until, f.Ascending, f.Limit, f.Count = time.Time{}, true, 1, ed.cfg.RetentionRuns
	oldest, err := ed.jobs.Runs(ctx, f)
	if err == nil && oldest.Total >= ed.cfg.RetentionRuns && len(oldest.Runs) == 1 && oldest.Runs[0].ScheduledFor.After(since) {
		since = oldest.Runs[0].ScheduledFor
	}
	return since, err
}
