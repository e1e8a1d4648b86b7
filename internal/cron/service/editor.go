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

// Editor reads, adds, changes and removes jobs. Errors are *chat.Error values. A job that is not visible to the caller is treated as missing.
type Editor struct {
	*parts

	delivery *Delivery
	nudge    func() // makes the loop claim immediately
}

// Add creates a job, or changes the one with the same key; equal configuration writes nothing. With an idempotency key, a repeated call changes nothing and
// returns the result of the first one, even if the request would no longer be valid.
func (ed *Editor) Add(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey) (cron.Put, error) {
	return ed.add(ctx, m, by, o, ed.mayTarget)
}

// AddInChat is Add for a job that its owner creates by a command: it delivers to the chat of the command.
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
	draft, err := ed.limits(by, time.Now()).Apply(cron.Job{}, m)
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
			return ed.upsert(*old, m, by, now)
		}
		j, err := ed.limits(by, now).Apply(cron.Job{Owner: by.Principal, Principal: by.Principal, Key: key, KeyDerived: !keyed}, m)
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
	return putOf(&res, keyed), nil
}

func putOf(res *cron.PutResult, keyed bool) cron.Put {
	if res == nil {
		return cron.Put{}
	}
	return cron.Put{Job: res.Job, Created: res.Created, Updated: res.Updated, Keyed: keyed}
}

// upsert is a second Add with the same key. It never ends a pause.
func (ed *Editor) upsert(old cron.Job, m cron.Members, by chat.Caller, now time.Time) (*cron.Job, error) {
	if old.Pause != nil || old.AutoDisabled {
		m = without(without(m, "enabled"), "paused")
	}
	next, err := ed.limits(by, now).Apply(old, without(m, "sessionKey"))
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

// firedOnce reports whether a job of one moment has fired: it is disabled because it has no fire left, and not because a caller disabled it.
func firedOnce(j cron.Job) bool {
	return j.Schedule.Kind == schedule.KindAt && !j.Enabled && j.State.Fired > 0 && j.Pause == nil && !j.AutoDisabled
}

// setPausedBy sets the author of the pause of a job that is written with its pause. A caller that sees all jobs may give the name; others pause in their own.
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

// endsWaiting is the reason with which a change of some members ends the waiting runs of a job: disabling a job includes its waiting runs.
func endsWaiting(m cron.Members) cron.Reason {
	if raw, given := m["enabled"]; given && string(raw) == "false" {
		return cron.ReasonStopped
	}
	return cron.ReasonNone
}

// replan recomputes the next fire when a member that affects it has changed; otherwise the plan stays.
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

// planned fills in the fields of a job whose schedule takes effect: revision, times and the first fire.
func (p *parts) planned(j cron.Job, now time.Time) (*cron.Job, error) {
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
	}
	j.Revision = cron.RevisionOf(j)
	return &j, nil
}

// changed publishes a change of a job and makes the loop claim immediately: the job may be due before its next tick.
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
