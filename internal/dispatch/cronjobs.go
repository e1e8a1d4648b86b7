package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// errNoCron is told where the store keeps no jobs.
func errNoCron() error {
	return chat.Errorf(chat.CodeInvalid, "this gateway keeps no jobs: its store has no place for them")
}

// jobGone is the refusal for a job that is not there or not the caller's.
func jobGone(id string) error {
	id = chat.Cut(id, 128)
	return chat.Errorf(chat.CodeInvalid, "cron job not found: %s", id).With("code", "CRON_JOB_NOT_FOUND").With("jobId", id)
}

// visible is whose jobs a caller sees; "" = everybody's.
func visible(by chat.Caller) string {
	if by.Own {
		return by.Principal
	}
	return ""
}

// border is what new input is checked against.
func (d *Dispatcher) border(by chat.Caller, now time.Time) cron.Border {
	rules := d.cfg.Cron.Rules
	if !OperatorOwner(by.Principal) {
		rules = rules.ForChat()
		rules.MinInterval = max(rules.MinInterval, d.cfg.Cron.UserMinInterval)
	}
	return cron.Border{
		Now: now, Rules: rules, DefaultAgent: d.DefaultAgent(), Lanes: d.laneNames(),
		Agent:   func(id string) bool { _, ok := d.agents[id]; return ok },
		Payload: func(kind cron.PayloadKind) bool { return slices.Contains(d.cfg.Cron.Payloads, kind) },
		Channel: func(name string) bool {
			return knownChannel(name) || slices.ContainsFunc(d.channelNames(), func(have string) bool { return channelKind(have) == channelKind(name) })
		},
	}
}

func (d *Dispatcher) laneNames() []string {
	var names []string
	for _, l := range d.sched.Stats().Lanes {
		names = append(names, l.Name)
	}
	return names
}

// knownChannel tells channels that this program can have, configured or not.
func knownChannel(name string) bool { return channelKind(name) == "telegram" }

// wireFault gives errors of package cron the codes that clients know.
func wireFault(err error) error {
	if bad, ok := errors.AsType[*cron.InvalidError](err); ok {
		return chat.Errorf(chat.CodeInvalid, "%s", bad.Error()).With("code", "CRON_INVALID_SCHEDULE").With("field", bad.Field).With("reason", string(bad.Reason))
	}
	return err
}

func audit(by chat.Caller, verb, object string) *cron.Audit {
	return &cron.Audit{Who: by.Principal, Verb: verb, Object: object}
}

// givenKey is the key that a client chose, "" for none.
func givenKey(m cron.Members) (string, error) {
	key := ""
	for _, name := range []string{"key", "declarationKey"} {
		raw, given := m[name]
		if !given {
			continue
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must be string", name)
		}
		if err := chat.CheckText(name, s, 800); err != nil || len([]rune(s)) > 200 {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must have 1 to 200 characters, not only blanks", name)
		}
		if key != "" && s != key {
			return "", chat.Errorf(chat.CodeInvalid, "key and declarationKey are different; give one of them")
		}
		key = s
	}
	return key, nil
}

// CronAdd makes a job, or changes the one with the same key; equal configuration writes nothing.
func (d *Dispatcher) CronAdd(ctx context.Context, m cron.Members, by chat.Caller) (cron.Put, error) {
	switch {
	case d.jobs == nil:
		return cron.Put{}, errNoCron()
	case by.Principal == cron.SystemOwner:
		return cron.Put{}, chat.Errorf(chat.CodeForbidden, "the name %s is the gateway's own", by.Principal)
	}
	key, err := givenKey(m)
	if err != nil {
		return cron.Put{}, err
	}
	draft, err := d.border(by, time.Now()).Apply(cron.Job{}, m)
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	if err := d.mayTarget(ctx, draft, by); err != nil {
		return cron.Put{}, err
	}
	keyed := key != ""
	if !keyed {
		key = cron.Key(draft.Name, draft.Schedule)
	}
	p := cron.PutParams{Owner: by.Principal, Key: key, MaxTotal: max(0, d.cfg.Cron.MaxJobs), Audit: audit(by, "cron.add", key)}
	if !OperatorOwner(by.Principal) {
		if p.MaxOfOwner = d.cfg.Cron.MaxJobsOfUser; p.MaxOfOwner < 0 {
			return cron.Put{}, chat.Errorf(chat.CodeLimit, "chat users may have no jobs here").With("field", "jobs").With("limit", 0)
		}
	}
	id := newID()
	p.Change = func(old *cron.Job, now time.Time) (*cron.Job, error) {
		if old != nil {
			return d.upsert(*old, m, by, now)
		}
		j, err := d.border(by, now).Apply(cron.Job{Owner: by.Principal, Principal: by.Principal, Key: key, KeyDerived: !keyed}, m)
		if err != nil {
			return nil, err
		}
		j.ID = id
		return d.planned(j, now)
	}
	res, err := d.jobs.PutJob(ctx, p)
	if errors.Is(err, chat.ErrLimit) {
		err = chat.Errorf(chat.CodeLimit, "there are too many jobs; remove one first").With("field", "jobs").With("limit", max(p.MaxOfOwner, p.MaxTotal))
	}
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	switch {
	case res.Created:
		d.changed(cron.ActionAdded, res.Job)
	case res.Updated:
		d.changed(cron.ActionUpdated, res.Job)
	}
	return cron.Put{Job: res.Job, Created: res.Created, Updated: res.Updated, Keyed: keyed}, nil
}

// mayTarget refuses a session of somebody else to a caller that sees its own only.
func (d *Dispatcher) mayTarget(ctx context.Context, j cron.Job, by chat.Caller) error {
	if !by.Own || j.Session == cron.Isolated {
		return nil
	}
	key := chat.MainKey(j.Agent)
	if name, ok := cutSession(j.Session); ok {
		var err error
		if key, err = chat.ParseSessionKey(name, j.Agent); err != nil {
			return err
		}
	}
	return d.mayUse(ctx, key, by.Principal)
}

func cutSession(target string) (string, bool) {
	if len(target) <= len(cron.NamedSession) || target[:len(cron.NamedSession)] != cron.NamedSession {
		return "", false
	}
	return target[len(cron.NamedSession):], true
}

// upsert is a second add under the same key. It never ends a pause.
func (d *Dispatcher) upsert(old cron.Job, m cron.Members, by chat.Caller, now time.Time) (*cron.Job, error) {
	if old.Pause != nil || old.AutoDisabled {
		m = without(m, "enabled")
	}
	next, err := d.border(by, now).Apply(old, without(m, "sessionKey"))
	if err != nil {
		return nil, err
	}
	if cron.RevisionOf(next) == cron.RevisionOf(old) {
		return &old, nil
	}
	return d.replan(old, next, now)
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

// replan computes the next fire anew when something changed that decides it; otherwise the plan stays.
func (d *Dispatcher) replan(old, next cron.Job, now time.Time) (*cron.Job, error) {
	same := old.Schedule == next.Schedule && old.JitterMs == next.JitterMs && old.MayFire() == next.MayFire() &&
		old.StartsAt.Equal(next.StartsAt) && old.EndsAt.Equal(next.EndsAt) && old.MaxRuns == next.MaxRuns
	if !same {
		return d.planned(next, now)
	}
	next.UpdatedAt, next.Revision = now, cron.RevisionOf(next)
	return &next, nil
}

// changed tells watchers, and lets the loop look: the job may be due before its next tick.
func (d *Dispatcher) changed(action cron.Action, j cron.Job) {
	d.cronEvents.publish(cron.Event{Action: action, Job: j})
	if d.cron != nil {
		d.cron.Nudge()
	}
}

// CronUpdate changes a job by a patch. expected, if not empty, is the revision that the caller read.
func (d *Dispatcher) CronUpdate(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error) {
	for _, name := range []string{"key", "declarationKey"} {
		if _, given := patch[name]; given {
			return cron.Job{}, chat.Errorf(chat.CodeInvalid, "at /patch: unexpected property '%s': a key never changes", name)
		}
	}
	_, enables := patch["enabled"]
	return d.change(ctx, id, "cron.update", by, func(old cron.Job, now time.Time) (*cron.Job, error) {
		if old.Owner == cron.SystemOwner {
			return nil, chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be changed, only paused, resumed and run")
		}
		if expected != "" && expected != old.Revision {
			return nil, chat.Errorf(chat.CodeInvalid, "cron job changed since it was read").With("code", "CRON_JOB_CHANGED").
				With("expectedConfigRevision", expected).With("actualConfigRevision", old.Revision)
		}
		next, err := d.border(by, now).Apply(old, patch)
		if err != nil {
			return nil, err
		}
		if err := d.mayTarget(ctx, next, by); err != nil {
			return nil, err
		}
		if next.KeyDerived {
			next.Key = cron.Key(next.Name, next.Schedule)
		}
		if enables && next.Enabled {
			next.Pause, next.AutoDisabled, next.Invalid = nil, false, ""
			next.State.ConsecutiveErrors, next.State.ConsecutiveSkipped = 0, 0
			if err := d.fires(next, now); err != nil {
				return nil, err
			}
		}
		if cron.RevisionOf(next) == cron.RevisionOf(old) && next.Key == old.Key {
			return &old, nil
		}
		return d.replan(old, next, now)
	})
}

// fires refuses to enable a job that has no fire any more.
func (d *Dispatcher) fires(j cron.Job, now time.Time) error {
	t, err := d.planner.Timetable(j)
	if err != nil {
		return err
	}
	if _, ok := t.First(now); !ok {
		return &cron.InvalidError{Field: "schedule", Reason: cron.InvalidPast, Sentence: "the job has no fire any more; give it another schedule"}
	}
	return nil
}

// change is what all edits of one job share.
func (d *Dispatcher) change(ctx context.Context, id, verb string, by chat.Caller, f func(old cron.Job, now time.Time) (*cron.Job, error)) (cron.Job, error) {
	return d.changeWith(ctx, cron.ChangeParams{ID: id, Visible: visible(by), Change: f, Audit: audit(by, verb, id)})
}

func (d *Dispatcher) changeWith(ctx context.Context, p cron.ChangeParams) (cron.Job, error) {
	if d.jobs == nil {
		return cron.Job{}, errNoCron()
	}
	res, err := d.jobs.ChangeJob(ctx, p)
	switch {
	case errors.Is(err, chat.ErrNotFound):
		return cron.Job{}, jobGone(p.ID)
	case errors.Is(err, chat.ErrConflict):
		return cron.Job{}, chat.Errorf(chat.CodeInvalid, "another job has the key that this change gives").With("code", "CRON_KEY_CONFLICT").With("jobId", p.ID)
	case err != nil:
		return cron.Job{}, wireFault(err)
	}
	for _, end := range res.Ended {
		d.stopRun(end, joinBy(string(p.CancelReason), p.By))
	}
	d.dropPlanned(ctx, res)
	switch {
	case res.Job == nil:
		d.changed(cron.ActionRemoved, res.Old)
		return res.Old, nil
	case res.Changed:
		d.changed(cron.ActionUpdated, *res.Job)
	}
	return *res.Job, nil
}

// dropPlanned ends runs that the loop had claimed a moment ahead and that the change takes back: their moment has not come, and the job is gone, does
// not fire any more, or has no such slot. A slot that the new schedule has as well stays as it was claimed.
func (d *Dispatcher) dropPlanned(ctx context.Context, c cron.Changed) {
	if c.Old.State.Queued == 0 || !c.Changed {
		return
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return
	}
	page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: c.Old.ID, States: []cron.RunState{cron.RunQueued}, Limit: 50})
	if err != nil {
		d.log.WarnContext(ctx, "runs that were claimed ahead cannot be read; they start", "job_id", c.Old.ID, "err", err)
		return
	}
	for _, r := range page.Runs {
		if r.Trigger != cron.TriggerSchedule || !r.FireAt.After(now) || d.stillPlanned(c.Job, r.ScheduledFor) {
			continue
		}
		reason := cron.ReasonReplaced
		if c.Job == nil {
			reason = cron.ReasonRemoved
		}
		ended, err := d.jobs.CancelRuns(ctx, cron.CancelParams{RunID: r.ID, Reason: reason, Note: "cancelled: the job was changed before its moment", By: joinBy(string(reason), cron.Channel)})
		if err != nil {
			d.log.WarnContext(ctx, "a run that was claimed ahead starts although its job was changed", "run_id", r.ID, "err", err)
		}
		for _, e := range ended {
			d.stopRun(e, joinBy(string(reason), cron.Channel))
		}
	}
}

func (d *Dispatcher) stillPlanned(j *cron.Job, slot time.Time) bool {
	if j == nil || !j.MayFire() {
		return false
	}
	t, err := d.planner.Timetable(*j)
	if err != nil {
		return false
	}
	fire, ok := t.Next(slot.Add(-1))
	return ok && fire.Slot.Equal(slot)
}

// CronRemove removes a job; its history stays. With cancelRunning its active runs end, too.
func (d *Dispatcher) CronRemove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error {
	_, err := d.changeWith(ctx, cron.ChangeParams{
		ID: id, Visible: visible(by), CancelActive: cancelRunning, CancelReason: cron.ReasonRemoved, By: joinBy(string(cron.ReasonRemoved), by.Principal),
		Audit: audit(by, "cron.remove", id),
		Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			if old.Owner == cron.SystemOwner {
				return nil, chat.Errorf(chat.CodeForbidden, "built-in jobs cannot be removed, only paused")
			}
			return nil, nil
		},
	})
	return err
}

// CronPause pauses a job. A zero until means until somebody resumes it.
func (d *Dispatcher) CronPause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error) {
	return d.change(ctx, id, "cron.pause", by, func(old cron.Job, now time.Time) (*cron.Job, error) {
		if !until.IsZero() && !until.After(now) {
			return nil, &cron.InvalidError{Field: "untilMs", Reason: cron.InvalidPast, Sentence: "choose a moment to come, or none"}
		}
		at := now
		if old.Pause != nil {
			at = old.Pause.At
		}
		old.Pause = &cron.Pause{Note: note, By: by.Principal, At: at, Until: until}
		old.UpdatedAt, old.State.Next, old.State.NextRunAt = now, time.Time{}, until
		old.Revision = cron.RevisionOf(old)
		return &old, nil
	})
}

// CronResume ends a pause: the next fire is computed from now, and the slots that passed are one entry of the ledger.
func (d *Dispatcher) CronResume(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	p := cron.ChangeParams{ID: id, Visible: visible(by), Audit: audit(by, "cron.resume", id)}
	var row cron.Run
	p.Skipped = nil
	change := func(old cron.Job, now time.Time) (*cron.Job, error) {
		if old.Pause == nil {
			return &old, nil
		}
		t, err := d.planner.Timetable(old)
		if err != nil {
			return nil, err
		}
		if r, ok := cron.PausedRow(old, t, now); ok {
			row = r
		}
		old.Pause = nil
		return d.planned(old, now)
	}
	// The row has to be known before the call: the pause is read first, and the change is decided again in the transaction.
	now, err := d.store.Now(ctx)
	if err != nil {
		return cron.Job{}, err
	}
	before, err := d.CronGet(ctx, id, by)
	if err != nil {
		return cron.Job{}, err
	}
	if before.Pause != nil {
		if _, err := change(before, now); err != nil {
			return cron.Job{}, wireFault(err)
		}
		if row.ID != "" {
			p.Skipped = &row
		}
	}
	p.Change = change
	return d.changeWith(ctx, p)
}

// CronGet reads one job.
func (d *Dispatcher) CronGet(ctx context.Context, id string, by chat.Caller) (cron.Job, error) {
	if d.jobs == nil {
		return cron.Job{}, errNoCron()
	}
	j, err := d.jobs.Job(ctx, id, visible(by))
	if errors.Is(err, chat.ErrNotFound) {
		return j, jobGone(id)
	}
	return j, err
}

// CronList lists jobs.
func (d *Dispatcher) CronList(ctx context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error) {
	if d.jobs == nil {
		return cron.JobPage{Revision: "r0"}, nil
	}
	f.Visible = visible(by)
	return d.jobs.Jobs(ctx, f)
}

// CronRuns lists entries of the ledger.
func (d *Dispatcher) CronRuns(ctx context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error) {
	if d.jobs == nil {
		return cron.RunPage{}, nil
	}
	f.Visible = visible(by)
	return d.jobs.Runs(ctx, f)
}

// CronCounts counts for status pages; what cannot be read is zero.
func (d *Dispatcher) CronCounts(ctx context.Context, by chat.Caller) (s cron.Summary, enabled bool) {
	enabled = d.jobs != nil && d.cfg.Cron.Enabled
	if d.jobs == nil {
		return cron.Summary{OldestDue: -1}, enabled
	}
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	s, err := d.jobs.Summary(ctx, visible(by))
	if err != nil {
		d.log.WarnContext(ctx, "the jobs cannot be counted", "err", err)
		return cron.Summary{OldestDue: -1}, enabled
	}
	return s, enabled
}

// CronTicked is when the loop last asked the store; running says whether it turns here.
func (d *Dispatcher) CronTicked() (last time.Time, running bool) {
	if d.cron == nil {
		return time.Time{}, false
	}
	return d.cron.LastTick(), d.cfg.Cron.Fires && d.cfg.Cron.Enabled
}

// CronPreview lists the next fires: of a job, or of a schedule in m when id is empty.
func (d *Dispatcher) CronPreview(ctx context.Context, id string, m cron.Members, from time.Time, count int, by chat.Caller) (cron.Preview, error) { //nolint:revive // six arguments, as the call has them
	now := time.Now()
	if d.jobs != nil {
		var err error
		if now, err = d.store.Now(ctx); err != nil {
			return cron.Preview{}, err
		}
	}
	if from.IsZero() {
		from = now
	}
	if id != "" {
		j, err := d.CronGet(ctx, id, by)
		if err != nil {
			return cron.Preview{}, err
		}
		t, err := d.planner.Timetable(j)
		if err != nil {
			return cron.Preview{}, wireFault(err)
		}
		return t.Preview(from, count), nil
	}
	spec, err := d.border(by, now).Spec(m)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	s, err := cron.Compile(spec)
	if err != nil {
		return cron.Preview{}, wireFault(err)
	}
	return cron.Timetable{Schedule: s}.Preview(from, count), nil
}

// notRunError carries the reason for which a run by hand did not start.
type notRunError string

func (e notRunError) Error() string { return "not run: " + string(e) }

// CronRun starts a run by hand. reason says why there was none: not-due, disabled or already-running.
func (d *Dispatcher) CronRun(ctx context.Context, id string, mode cron.RunMode, by chat.Caller) (runID, reason string, err error) {
	if d.jobs == nil {
		return "", "", errNoCron()
	}
	me, err := d.alive()
	if err != nil {
		return "", "", err
	}
	p := cron.EnqueueParams{Node: me.id, JobID: id, Visible: visible(by), Audit: audit(by, "cron.run", id)}
	shift := time.Duration(0)
	p.Make = func(due cron.DueJob, now time.Time) ([]cron.Launch, error) {
		j := due.Job
		if err := mayRun(due, mode, now); err != nil {
			return nil, err
		}
		slot := now.Add(shift)
		r := cron.PlannedRun{Fire: cron.Fire{Slot: slot, At: slot}, Trigger: cron.TriggerManual}
		return []cron.Launch{d.planner.Launch(j, r, time.Time{})}, nil
	}
	for ; shift < 100*time.Millisecond; shift += time.Millisecond {
		res, err := d.jobs.EnqueueRuns(ctx, p)
		var not notRunError
		switch {
		case errors.As(err, &not):
			return "", string(not), nil
		case errors.Is(err, chat.ErrNotFound):
			return "", "", jobGone(id)
		case err != nil:
			return "", "", wireFault(err)
		case len(res.Launched) > 0:
			d.launchAll(ctx, res.Launched)
			return res.Launched[0].Run.ID, "", nil
		}
	}
	return "", "", chat.Errorf(chat.CodeRateLimited, "this job was started by hand too often within this moment; try again")
}

func mayRun(due cron.DueJob, mode cron.RunMode, now time.Time) error {
	j := due.Job
	switch {
	case mode == cron.RunIfEnabled && !j.MayFire():
		return notRunError("disabled")
	case mode == cron.RunDue && (!j.MayFire() || j.State.NextRunAt.IsZero() || j.State.NextRunAt.After(now)):
		return notRunError("not-due")
	case len(due.Active) > 0 && (j.Overlap == "" || j.Overlap == cron.OverlapSkip):
		return notRunError("already-running")
	case len(due.Active) > 1 && j.Overlap == cron.OverlapBufferOne:
		return notRunError("already-running")
	case len(due.Active) >= cron.MaxConcurrent:
		return notRunError("already-running")
	}
	return nil
}

func (d *Dispatcher) launchAll(ctx context.Context, list []cron.Launched) {
	for _, l := range list {
		house{d}.Launch(ctx, l)
	}
}

// CronCancel ends active runs: one of them, or all of a job. It takes no slot and waits for no turn.
func (d *Dispatcher) CronCancel(ctx context.Context, runID, jobID, note string, by chat.Caller) ([]string, error) {
	if d.jobs == nil {
		return nil, errNoCron()
	}
	why := joinBy("stop", by.Principal)
	p := cron.CancelParams{RunID: runID, JobID: jobID, Visible: visible(by), Reason: cron.ReasonStopped, Note: cancelNote(note), By: why, Audit: audit(by, "cron.cancel", runID+jobID)}
	ended, err := d.jobs.CancelRuns(ctx, p)
	if errors.Is(err, chat.ErrNotFound) {
		return nil, chat.Errorf(chat.CodeInvalid, "cron run not found: %s", chat.Cut(runID, 200)).With("code", "CRON_RUN_NOT_FOUND").With("runId", chat.Cut(runID, 200))
	}
	ids := make([]string, 0, len(ended))
	for _, e := range ended {
		ids = append(ids, e.RunID)
		d.stopRun(e, why)
	}
	if jobID != "" && err == nil && len(ids) == 0 {
		if _, err := d.CronGet(ctx, jobID, by); err != nil {
			return nil, err
		}
	}
	d.tellCancelled(ctx, ended)
	return ids, err
}

func cancelNote(note string) string {
	if note == "" {
		return "cancelled"
	}
	return "cancelled: " + note
}

// tellCancelled tells watchers of runs that ended while they waited; those that run tell it themselves.
func (d *Dispatcher) tellCancelled(ctx context.Context, ended []cron.CancelledRun) {
	for _, e := range ended {
		if e.Running {
			continue
		}
		run, err := d.jobs.Run(ctx, e.RunID, "")
		if err != nil {
			continue
		}
		job, err := d.jobs.Job(ctx, e.JobID, "")
		if err != nil {
			job = cron.Job{ID: e.JobID, Owner: run.Owner, Name: run.JobName, Agent: run.Agent}
		}
		d.cronEvents.publish(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
	}
}

// CronBackfill runs the slots of a job in [from, to], one at a time, the oldest first. Slots that ran well already are left alone unless forced.
func (d *Dispatcher) CronBackfill(ctx context.Context, p cron.BackfillParams, by chat.Caller) ([]cron.BackfillFire, error) {
	job, err := d.CronGet(ctx, p.ID, by)
	if err != nil {
		return nil, err
	}
	me, err := d.alive()
	if err != nil {
		return nil, err
	}
	t, err := d.planner.Timetable(job)
	if err != nil {
		return nil, wireFault(err)
	}
	now, err := d.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if !p.From.Before(p.To) || p.To.After(now) {
		return nil, wireFault(&cron.InvalidError{Field: "toMs", Reason: cron.InvalidRange, Sentence: "fromMs must be before toMs, and toMs not in the future"})
	}
	fires, total := t.Between(p.From.Add(-1), p.To, p.MaxRuns)
	if total > int64(p.MaxRuns) {
		return nil, chat.Errorf(chat.CodeLimit, "there are %d fires in this time; at most %d are run at once, so choose a shorter time or a larger maxRuns", total, p.MaxRuns).
			With("field", "maxRuns").With("limit", p.MaxRuns)
	}
	out, err := d.backfillPlan(ctx, p, fires)
	if err != nil || p.DryRun {
		return out, err
	}
	res, err := d.jobs.EnqueueRuns(ctx, cron.EnqueueParams{
		Node: me.id, JobID: p.ID, Visible: visible(by), Force: p.Force, Audit: audit(by, "cron.backfill", p.ID),
		Make: func(due cron.DueJob, _ time.Time) ([]cron.Launch, error) {
			list := make([]cron.Launch, 0, len(fires))
			for _, f := range fires {
				list = append(list, d.planner.Launch(due.Job, cron.PlannedRun{Fire: f, Trigger: cron.TriggerBackfill}, fires[0].Slot))
			}
			return list, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("filling in runs: %w", err)
	}
	d.launchAll(ctx, res.Launched)
	for i := range out {
		out[i].Exists = slices.Contains(res.Existing, out[i].RunID)
	}
	return out, nil
}

// backfillPlan says what a backfill would do.
func (d *Dispatcher) backfillPlan(ctx context.Context, p cron.BackfillParams, fires []cron.Fire) ([]cron.BackfillFire, error) {
	have := map[string]bool{}
	ran := map[int64]bool{}
	for offset := 0; ; offset += 200 {
		page, err := d.jobs.Runs(ctx, cron.RunFilter{JobID: p.ID, Since: p.From, Until: p.To, IncludeActive: true, Limit: 200, Offset: offset})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Runs {
			have[r.ID] = true
			ran[r.ScheduledFor.UnixMilli()] = ran[r.ScheduledFor.UnixMilli()] || r.State == cron.RunOK
		}
		if len(page.Runs) < 200 {
			break
		}
	}
	out := make([]cron.BackfillFire, 0, len(fires))
	for _, f := range fires {
		id := cron.RunID(cron.TriggerBackfill, p.ID, f.Slot)
		out = append(out, cron.BackfillFire{Slot: f.Slot, RunID: id, Exists: have[id] || (ran[f.Slot.UnixMilli()] && !p.Force)})
	}
	return out, nil
}
