package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// Editor reads, adds, changes and removes jobs. Errors are *chat.Error values. A job that is not
// visible to the caller is treated as missing.
type Editor struct {
	*shared

	delivery *Delivery
	nudge    func() // makes the loop claim immediately
}

// Add creates a job, or changes the one with the same key; equal configuration writes nothing. With
// an idempotency key, a repeated call changes nothing and returns the result of the first one, even
// if the request would no longer be valid.
func (ed *Editor) Add(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey) (cron.Put, error) {
	return ed.add(ctx, m, by, o, ed.mayTarget)
}

// AddInChat is Add for a job that its owner creates by a command: it delivers to the chat of the
// command.
func (ed *Editor) AddInChat(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey) (cron.Put, error) {
	return ed.add(ctx, m, by, o, anyTarget)
}

func (ed *Editor) add(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey, may targetCheck) (cron.Put, error) {
	if by.Principal == cron.SystemOwner {
		return cron.Put{}, chat.Errorf(chat.CodeForbidden, "the name %s is the gateway's own", by.Principal)
	}
	key, err := givenKey(m)
	if err != nil {
		return cron.Put{}, err
	}
	rule, m, err := nameRule(m)
	if err != nil {
		return cron.Put{}, err
	}
	former, m, err := formerID(m)
	if err != nil {
		return cron.Put{}, err
	}
	keyed := key != ""
	if before, err := store.AnswerOf[*cron.PutResult](ctx, ed.store.IdempotencyRecord, o); err != nil || before != nil {
		return putOf(before, keyed), err
	}
	asked, err := ed.store.Now(ctx)
	if err != nil {
		return cron.Put{}, err
	}
	// One time for the draft and for the job: the key of a job contains the moment that its words
	// mean.
	border := ed.limits(by, asked)
	draft, err := border.Apply(cron.Job{}, m)
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	if err := may(ctx, cron.Job{}, draft, by); err != nil {
		return cron.Put{}, err
	}
	if err := ed.mayDeliver(ctx, cron.Job{}, draft); err != nil {
		return cron.Put{}, err
	}
	if !keyed {
		key = schedule.Key(draft.Name, draft.Schedule)
	}
	p := cron.PutParams{
		Owner: by.Principal, Key: key, KeyGiven: keyed, Name: draft.Name, IfNameExists: rule, MaxTotal: max(0, ed.cfg.MaxJobs), EndWaiting: endsWaiting(m), IdempotencyKey: o, Audit: by.Audit("cron.add", key),
		FormerID: former,
	}
	if by.Bounded() {
		if p.MaxOfOwner = ed.cfg.MaxJobsOfUser; p.MaxOfOwner < 0 {
			return cron.Put{}, chat.Errorf(chat.CodeLimit, "chat users and agents may have no jobs here").With("field", "jobs").With("limit", 0)
		}
	}
	id := newID()
	p.Change = func(old *cron.Job, now time.Time) (*cron.Job, error) {
		if old != nil {
			return ed.upsert(*old, m, by, border, now)
		}
		j, err := border.Apply(cron.Job{Owner: by.Principal, Principal: by.Principal, Key: key, KeyDerived: !keyed}, m)
		if err != nil {
			return nil, err
		}
		j.ID = id
		setPausedBy(&j, by)
		return ed.planned(j, now)
	}
	return ed.put(ctx, p, keyed)
}

// put writes a job that Add has prepared, and publishes the change.
func (ed *Editor) put(ctx context.Context, p cron.PutParams, keyed bool) (cron.Put, error) {
	res, err := ed.jobs.PutJob(ctx, p)
	if errors.Is(err, chat.ErrLimit) {
		err = chat.Errorf(chat.CodeLimit, "there are too many jobs; remove one first").With("field", "jobs").With("limit", max(p.MaxOfOwner, p.MaxTotal))
	}
	if exists, ok := errors.AsType[*cron.NameExistsError](err); ok {
		err = nameExists(exists)
	}
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	if !res.Repeated {
		ed.stopEnded(res.Ended, store.StopCause(store.ReasonStop, p.Owner))
		switch {
		case res.Created:
			ed.changed(cron.ActionAdded, res.Job)
		case res.Updated:
			ed.changed(cron.ActionUpdated, res.Job)
		}
	}
	out := putOf(&res, keyed)
	out.Job.Unserved = ed.unserved(ctx, out.Job)
	return out, nil
}

func putOf(res *cron.PutResult, keyed bool) cron.Put {
	if res == nil {
		return cron.Put{}
	}
	return cron.Put{Job: res.Job, Created: res.Created, Updated: res.Updated, Keyed: keyed}
}

// upsert is a second Add with the same key. It never ends a pause.
func (ed *Editor) upsert(old cron.Job, m cron.Members, by chat.Caller, border cron.Border, now time.Time) (*cron.Job, error) {
	if old.Pause != nil || old.AutoDisabled {
		m = without(without(m, "enabled"), "paused")
	}
	next, err := border.Apply(old, without(m, "sessionKey"))
	if err != nil {
		return nil, err
	}
	if next.KeyDerived {
		next.Key = schedule.Key(next.Name, next.Schedule) // it was found by its name
	}
	if old.Pause == nil {
		setPausedBy(&next, by)
	}
	if cron.RevisionOf(next) == cron.RevisionOf(old) {
		return &old, nil
	}
	if _, named := m["enabled"]; firedOnce(old) && next.Schedule != old.Schedule {
		next.State.Fired = 0
		next.Enabled = next.Enabled || !named
	}
	return ed.replan(old, next, now)
}

// firedOnce reports whether a job of one moment has fired: it is disabled because it has no fire
// left, and not because a caller disabled it.
func firedOnce(j cron.Job) bool {
	return j.Schedule.Kind == schedule.KindAt && !j.Enabled && j.State.Fired > 0 && j.Pause == nil && !j.AutoDisabled
}

// setPausedBy sets the author of the pause of a job that is written with its pause. A caller that
// sees all jobs may give the name; others pause in their own.
func setPausedBy(j *cron.Job, by chat.Caller) {
	if j.Pause != nil && (j.Pause.By == "" || by.Own || by.InChat()) {
		j.Pause.By = by.Principal
	}
}

func without(m cron.Members, name string) cron.Members {
	out := cron.Members{}
	for k, v := range m {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// endsWaiting is the reason with which a change of some members ends the waiting runs of a job:
// disabling a job includes its waiting runs.
func endsWaiting(m cron.Members) cron.Reason {
	if raw, given := m["enabled"]; given && string(raw) == "false" {
		return cron.ReasonStopped
	}
	return cron.ReasonNone
}

// replan recomputes the next fire when a member that affects it has changed; otherwise the plan
// stays.
func (ed *Editor) replan(old, next cron.Job, now time.Time) (*cron.Job, error) {
	if !next.State.DeliveryPause.Holds(ed.delivery.target(next.Agent, next.Delivery)) {
		next.State.DeliveryPause = cron.DeliveryPause{} // the answers are sent to another address now
	}
	same := old.Schedule == next.Schedule && old.JitterMs == next.JitterMs && old.MayFire() == next.MayFire() &&
		old.StartsAt.Equal(next.StartsAt) && old.EndsAt.Equal(next.EndsAt) && old.MaxRuns == next.MaxRuns
	if !same {
		if old.Schedule != next.Schedule {
			next.State.NextWall, next.State.ZoneRelease = time.Time{}, "" // the plan is that of another schedule
		}
		return ed.planned(next, now)
	}
	next.UpdatedAt, next.Revision = now, cron.RevisionOf(next)
	return &next, nil
}

// planned fills in the fields of a job whose schedule takes effect: revision, times and the first
// fire.
func (p *shared) planned(j cron.Job, now time.Time) (*cron.Job, error) {
	t, err := p.planner.Timetable(j)
	if err != nil {
		return nil, err
	}
	fresh := j.CreatedAt.IsZero()
	if fresh {
		j.CreatedAt = now
	}
	j.UpdatedAt, j.State.ActivatedAt = now, now
	before := j.State.Plan
	j.State.Plan = cron.Plan{}
	switch {
	case j.Pause != nil:
		if fresh { // slots that passed before this gateway had the job do not count
			fire, _ := t.First(now)
			before = t.PlanOf(fire)
		}
		j.State.Plan = before
		j.State.NextRunAt = j.Pause.Until
	case j.MayFire():
		fire, _ := t.First(t.Free(before, now))
		j.State.Plan = t.PlanOf(fire)
	case !before.NextWall.IsZero(): // enabled again under other zone rules, it fires no local time twice
		before.NextRunAt = time.Time{}
		j.State.Plan = before
	}
	j.Revision = cron.RevisionOf(j)
	return &j, nil
}

// changed publishes a change of a job and makes the loop claim immediately: the job may be due
// before its next tick.
func (ed *Editor) changed(action cron.Action, j cron.Job) {
	ed.events.publish(cron.Event{Action: action, Job: j})
	ed.nudge()
}

// change is the common part of all edits of one job.
func (ed *Editor) change(ctx context.Context, p cron.ChangeParams) (cron.Job, error) {
	decide, key := p.Change, ""
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		j, err := decide(old, now)
		if j != nil {
			key = j.Key
		}
		return j, err
	}
	res, err := ed.jobs.ChangeJob(ctx, p)
	switch {
	case errors.Is(err, chat.ErrNotFound):
		return cron.Job{}, jobNotFound(p.ID)
	case errors.Is(err, chat.ErrConflict):
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "another job has the key that this change gives").With("code", "CRON_KEY_CONFLICT").With("key", key).With("jobId", p.ID)
	case err != nil:
		return cron.Job{}, wireFault(err)
	}
	ed.stopEnded(res.Ended, store.StopCause(string(cmp.Or(p.CancelReason, p.EndWaiting)), p.By))
	switch {
	case res.Job == nil:
		ed.changed(cron.ActionRemoved, res.Old)
		return res.Old, nil
	case res.Changed:
		ed.changed(cron.ActionUpdated, *res.Job)
	}
	return *res.Job, nil
}

// stopEnded stops the turns of runs that a change has cancelled.
func (ed *Editor) stopEnded(ended []cron.CancelledRun, cause string) {
	for _, run := range ended {
		ed.turns.Stop(run, cause)
	}
}

// newID is a UUIDv7: sortable by time, unique without a query of the store.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// maxPatchTries is how often an update is tried while the job changes between the check of its
// target and its transaction.
const maxPatchTries = 10

// atGrace is how old the given moment of a job that fires once may be.
const atGrace = time.Minute

// Update changes a job by a patch. expected, if not empty, is the revision that the caller read.
func (ed *Editor) Update(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error) {
	for _, name := range []string{"key", "declarationKey"} {
		if _, given := patch[name]; given {
			return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property '%s': a key never changes", name)
		}
	}
	if _, given := patch["paused"]; given {
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property 'paused': cron.pause and cron.resume change it")
	}
	for try := 1; ; try++ {
		checked, err := ed.mayPatch(ctx, id, patch, expected, by)
		if err != nil {
			return cron.Job{}, err
		}
		job, stale, err := ed.patch(ctx, id, patch, revisions{expected, checked}, by)
		if !stale || try == maxPatchTries {
			if err == nil {
				job.Unserved = ed.unserved(ctx, job)
			}
			return job, err
		}
	}
}

// mayPatch makes the decisions that need the store before the transaction: whether the job may run
// in and deliver to the sessions in the patch. It returns the revision for which this holds, "" =
// any.
func (ed *Editor) mayPatch(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (revision string, err error) {
	if !by.Own {
		return "", nil
	}
	old, err := ed.Job(ctx, id, by)
	if err != nil {
		return "", err
	}
	if err := mayEdit(old, expected); err != nil {
		return "", err
	}
	now, err := ed.store.Now(ctx)
	if err != nil {
		return "", err
	}
	next, err := ed.limits(by, now).Apply(old, patch)
	if err != nil {
		return "", wireFault(err)
	}
	if err := ed.mayTarget(ctx, old, next, by); err != nil {
		return "", err
	}
	return old.Revision, ed.mayDeliver(ctx, old, next)
}

// revisions are the revisions to which a patch may be applied; "" = any: expected by the caller,
// checked by mayPatch.
type revisions struct{ expected, checked string }

// patch changes a job by a patch. stale reports that the revision of the job differs from the
// checked one.
func (ed *Editor) patch(ctx context.Context, id string, patch cron.Members, at revisions, by chat.Caller) (job cron.Job, stale bool, err error) {
	_, enables := patch["enabled"]
	_, delivers := patch["delivery"]
	taken, err := ed.takenSlots(ctx, id)
	if err != nil {
		return cron.Job{}, false, err
	}
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: endsWaiting(patch), By: store.StopCause(store.ReasonStop, by.Principal), Audit: by.Audit("cron.update", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		if err := mayEdit(old, at.expected); err != nil {
			return nil, err
		}
		if stale = at.checked != "" && at.checked != old.Revision; stale {
			return nil, mayEdit(old, at.checked)
		}
		next, err := ed.limits(by, now).Apply(old, patch)
		if err != nil {
			return nil, err
		}
		if next.KeyDerived {
			next.Key = schedule.Key(next.Name, next.Schedule)
		}
		if enables && next.Enabled {
			if err := ed.enable(&next, now, next.Schedule == old.Schedule); err != nil {
				return nil, err
			}
		}
		if delivers {
			next.State.DeliveryPause = cron.DeliveryPause{} // even if it names the same chat: the caller has made sure that it is reachable again
		}
		if cron.RevisionOf(next) == cron.RevisionOf(old) && next.Key == old.Key && next.State.DeliveryPause == old.State.DeliveryPause {
			return &old, nil
		}
		j, err := ed.replan(old, next, now)
		if err == nil && j.MayFire() && !j.State.Next.IsZero() && !j.State.Next.After(now) && taken[j.State.Next.UnixMilli()] {
			return nil, errNoFire()
		}
		return j, err
	}
	job, err = ed.change(ctx, p)
	return job, stale, err
}

// enable makes a job that a caller enables fire and deliver again. If its schedule is unchanged, it
// must have a future fire.
func (ed *Editor) enable(j *cron.Job, now time.Time, sameSchedule bool) error {
	j.Enabled, j.Pause, j.AutoDisabled, j.Invalid = true, nil, false, ""
	j.State.ConsecutiveErrors, j.State.ConsecutiveSkipped, j.State.DeliveryPause = 0, 0, cron.DeliveryPause{}
	t, err := ed.planner.Timetable(*j)
	if err != nil {
		return err
	}
	_, ok := t.First(now)
	if sameSchedule {
		_, ok = t.Next(now)
	}
	if !ok {
		return errNoFire()
	}
	return nil
}

// takenSlots are the slots of a job with a row in the ledger, within the time in which a past
// moment may be given: no slot fires twice.
func (ed *Editor) takenSlots(ctx context.Context, id string) (map[int64]bool, error) {
	now, err := ed.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	page, err := ed.jobs.Runs(ctx, cron.RunFilter{JobID: id, IncludeActive: true, Since: now.Add(-atGrace - time.Second), Limit: 200})
	if err != nil {
		return nil, err
	}
	taken := map[int64]bool{}
	for _, r := range page.Runs {
		if r.Trigger.Planned() {
			taken[r.ScheduledFor.UnixMilli()] = true
		}
	}
	return taken, nil
}

// Remove removes a job; its history stays. Runs that wait to start end with it, and with
// cancelRunning the running ones as well.
func (ed *Editor) Remove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error {
	_, err := ed.change(ctx, cron.ChangeParams{
		ID: id, Visible: visible(by), CancelActive: cancelRunning, CancelReason: cron.ReasonRemoved, EndWaiting: cron.ReasonRemoved,
		By: store.StopCause(string(cron.ReasonRemoved), by.Principal), Audit: by.Audit("cron.remove", id),
		Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			if old.Owner == cron.SystemOwner {
				return nil, chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be removed, only paused")
			}
			return nil, nil
		},
	})
	return err
}

// Pause pauses a job. With a zero until it stays paused until it is resumed. Fires that wait to
// start end; running ones continue.
func (ed *Editor) Pause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error) {
	p := cron.ChangeParams{ID: id, Visible: visible(by), EndWaiting: cron.ReasonPaused, By: store.StopCause(store.ReasonStop, by.Principal), Audit: by.Audit("cron.pause", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		if !until.IsZero() && !until.After(now) {
			return nil, &schedule.InvalidError{Field: "untilMs", Reason: schedule.InvalidPast, Sentence: "choose a moment to come, or none"}
		}
		at := now
		if old.Pause != nil {
			at = old.Pause.At
		}
		old.Pause = &cron.Pause{Note: note, By: by.Principal, At: at, Until: until}
		old.UpdatedAt, old.State.NextRunAt = now, until // the planned slot stays: slots that pass from then on are recorded when the job is resumed
		old.Revision = cron.RevisionOf(old)
		return &old, nil
	}
	return ed.change(ctx, p)
}

// Resume ends a pause: the next fire is computed from now, and the slots that passed become one row
// of the ledger. It also ends a pause of the delivery, and enables a job that failures have
// disabled. A job whose last slot passed while it was paused has no fire left: it is refused.
func (ed *Editor) Resume(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	var row cron.Run
	p := cron.ChangeParams{ID: id, Visible: visible(by), Skipped: &row, Audit: by.Audit("cron.resume", id)}
	p.Change = func(old cron.Job, now time.Time) (*cron.Job, error) {
		row = cron.Run{}
		old.State.DeliveryPause = cron.DeliveryPause{}
		if old.Pause == nil && !old.AutoDisabled {
			return &old, nil
		}
		if old.Pause != nil {
			t, err := ed.planner.Timetable(old)
			if err != nil {
				return nil, err
			}
			if _, more := t.Next(now); !more && old.Enabled && old.Invalid == "" {
				return nil, errNoFire()
			}
			if r, ok := cron.PausedRow(old, t, now); ok {
				row = r
			}
		}
		if old.AutoDisabled {
			if err := ed.enable(&old, now, true); err != nil {
				return nil, err
			}
		}
		old.Pause = nil
		return ed.planned(old, now)
	}
	return ed.change(ctx, p)
}

// Job reads one job.
func (ed *Editor) Job(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	j, err := ed.jobs.Job(ctx, id, visible(by))
	if errors.Is(err, chat.ErrNotFound) {
		return j, jobNotFound(id)
	}
	if err == nil {
		j.Unserved = ed.unserved(ctx, j)
	}
	return j, err
}

// Jobs lists jobs.
func (ed *Editor) Jobs(ctx context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error) {
	f.Visible = visible(by)
	return ed.jobs.Jobs(ctx, f)
}

// Preview lists the next fires. An edit keeps the fires that a job has had, the anchor of its
// interval and its jitter, so its preview needs the job.
func (ed *Editor) Preview(ctx context.Context, p cron.PreviewParams, by chat.Caller) (cron.Preview, error) {
	now, err := ed.store.Now(ctx)
	if err != nil {
		return cron.Preview{}, err
	}
	if p.From.IsZero() {
		p.From = now
	}
	var j cron.Job
	if p.ID != "" {
		if j, err = ed.Job(ctx, p.ID, by); err != nil {
			return cron.Preview{}, err
		}
	}
	if p.ID == "" || len(p.Schedule) > 0 {
		if j, err = ed.limits(by, now).Planned(j, p.Schedule); err != nil {
			return cron.Preview{}, wireFault(err)
		}
	}
	t, err := ed.planner.Timetable(j)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	return t.Preview(p.From, p.Count), nil
}
