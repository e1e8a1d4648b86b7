package sqlite

import (
	"context"
	"reflect"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// jobColumns are written by jobArgs and read by jobFields, in this order; the id comes before them.
const jobColumns = `owner, key, key_derived, name, display_name, description, principal, agent, account_id, lane, kind,
	schedule, tz, jitter_ms, starts_at, ends_at, max_runs, session, wake_mode, payload, delivery, alert, policy,
	enabled, paused_note, paused_by, paused_at, paused_until, auto_disabled, invalid, revision, created_at, updated_at,
	` + stateColumns

// stateColumns are the columns that runs change.
const stateColumns = `next_slot, next_run_at, activated_at, fired, run_count, error_count, last_run_at, last_state, last_error, last_error_class,
	last_duration_ms, last_delivery, last_delivery_error, last_alert_at, consecutive_errors, consecutive_skipped,
	delivery_paused_at, delivery_paused_why, delivery_paused_channel, delivery_paused_chat`

const (
	jobMarks   = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ` + stateMarks
	stateMarks = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`
)

// activeColumns are the active runs of a job. They follow from the ledger and are not stored in the job.
const activeColumns = `
	(SELECT count(*) FROM cron_run_logs r WHERE r.job_id = cron_jobs.id AND r.state IN ('queued', 'running', 'retrying')),
	(SELECT min(started_at) FROM cron_run_logs r WHERE r.job_id = cron_jobs.id AND r.state IN ('queued', 'running', 'retrying') AND r.state = 'running')`

// storedJob is a job with the texts that it was read from: texts that cannot be decoded must survive a change of another column.
type storedJob struct {
	cron.Job
	parts      cron.Parts
	unreadable bool
}

// jobScan holds what a row is read into before it becomes a job.
type jobScan struct {
	job       storedJob
	pause     cron.Pause
	pausedAt  *int64
	lastRunMs int64
	kind      string
}

func (v *jobScan) fields() []any {
	j, s := &v.job.Job, &v.job.State
	return []any{
		&j.ID, &j.Owner, &j.Key, &j.KeyDerived, &j.Name, &j.DisplayName, &j.Description, &j.Principal, &j.Agent, &j.AccountID, &j.Lane, &v.kind,
		&v.job.parts.Schedule, &v.job.parts.TZ, &j.JitterMs,
		timeColumn{&j.StartsAt},
		timeColumn{&j.EndsAt},
		&j.MaxRuns, &j.Session, &j.WakeMode,
		&v.job.parts.Payload, &v.job.parts.Delivery, &v.job.parts.Alert, &v.job.parts.Policy,
		&j.Enabled, &v.pause.Note, &v.pause.By, &v.pausedAt,
		timeColumn{&v.pause.Until},
		&j.AutoDisabled, &j.Invalid, &j.Revision,
		timeColumn{&j.CreatedAt},
		timeColumn{&j.UpdatedAt},
		timeColumn{&s.Next},
		timeColumn{&s.NextRunAt},
		timeColumn{&s.ActivatedAt},
		&s.Fired, &s.RunCount, &s.ErrorCount,
		timeColumn{&s.LastRunAt},
		&s.LastState, &s.LastError, &s.LastErrorClass, &v.lastRunMs, &s.LastDelivery, &s.LastDeliveryError,
		timeColumn{&s.LastAlertAt},
		&s.ConsecutiveErrors, &s.ConsecutiveSkipped,
		timeColumn{&s.DeliveryPause.Since},
		&s.DeliveryPause.Reason, &s.DeliveryPause.Channel, &s.DeliveryPause.ChatID,
	}
}

// done makes the job of the scanned columns. A row whose texts cannot be decoded is a job too, with the reason in Invalid.
func (v *jobScan) done(decode func(cron.Parts, *cron.Job) error) *storedJob {
	j := &v.job
	j.State.LastDuration = span(v.lastRunMs)
	if v.pausedAt != nil {
		v.pause.At = instant(*v.pausedAt)
		j.Pause = &v.pause
	}
	if err := decode(j.parts, &j.Job); err != nil {
		j.unreadable = true
		j.Schedule.Kind = schedule.Kind(v.kind)
		if j.Invalid == "" {
			j.Invalid = err.Error()
		}
	}
	return j
}

// scanDue reads a job without its active runs.
func (t *tx) scanDue(row scanner) (*storedJob, error) {
	v := &jobScan{}
	if err := row.Scan(v.fields()...); err != nil {
		return nil, err
	}
	return v.done(t.decode), nil
}

// scanJob reads a job with its active runs.
func scanJob(row scanner) (*storedJob, error) { return scanActive(row, cron.DecodeParts) }

func scanActive(row scanner, decode func(cron.Parts, *cron.Job) error) (*storedJob, error) {
	v := &jobScan{}
	s := &v.job.State
	if err := row.Scan(append(v.fields(), &s.Queued, timeColumn{&s.RunningAt})...); err != nil {
		return nil, err
	}
	return v.done(decode), nil
}

const (
	selectJob = `SELECT id, ` + jobColumns + `, ` + activeColumns + ` FROM cron_jobs `
	// The driver copies the name of a parameter that has one for each execution.
	findOne  = `SELECT ` + asOne + `id, ` + jobColumns + `, ` + activeColumns + column + ` FROM cron_jobs WHERE id = ?`
	findSeen = findOne + ` AND owner = ?`
)

// findJob reads a job that visible may see; chat.ErrNotFound.
func findJob(ctx context.Context, q querier, id, visible string) (*storedJob, error) {
	row := packed{}
	if visible == "" {
		row.scanner = q.one(ctx, findOne, id)
	} else {
		row.scanner = q.one(ctx, findSeen, id, visible)
	}
	j, err := scanActive(row, q.decode)
	if none(err) {
		return nil, chat.ErrNotFound
	}
	return j, err
}

// jobArgs are the values of jobColumns.
func jobArgs(j *cron.Job, parts *cron.Parts) []any {
	pause, pausedAt := cron.Pause{}, any(nil)
	if j.Pause != nil {
		pause, pausedAt = *j.Pause, millis(j.Pause.At)
	}
	args := []any{
		j.Owner, j.Key, bit(j.KeyDerived), j.Name, j.DisplayName, j.Description, j.Principal, j.Agent, j.AccountID, j.Lane, string(j.Schedule.Kind),
		parts.Schedule, parts.TZ, j.JitterMs, zero(millis(j.StartsAt)), zero(millis(j.EndsAt)), j.MaxRuns, j.Session, j.WakeMode,
		parts.Payload, parts.Delivery, parts.Alert, parts.Policy,
		bit(j.Enabled), pause.Note, pause.By, pausedAt, zero(millis(pause.Until)), bit(j.AutoDisabled), j.Invalid, j.Revision,
		millis(j.CreatedAt), millis(j.UpdatedAt),
	}
	return append(args, stateArgs(j)...)
}

// stateArgs are the values of stateColumns.
func stateArgs(j *cron.Job) []any {
	s := &j.State
	return []any{
		zero(millis(s.Next)), zero(millis(s.NextRunAt)), zero(millis(s.ActivatedAt)), s.Fired, s.RunCount, s.ErrorCount, zero(millis(s.LastRunAt)),
		string(s.LastState), s.LastError, s.LastErrorClass, s.LastDuration.Milliseconds(), string(s.LastDelivery), s.LastDeliveryError,
		zero(millis(s.LastAlertAt)), s.ConsecutiveErrors, s.ConsecutiveSkipped,
		zero(millis(s.DeliveryPause.Since)), s.DeliveryPause.Reason, s.DeliveryPause.Channel, s.DeliveryPause.ChatID,
	}
}

// insertJob adds a job whose id and key are free.
func (t *tx) insertJob(ctx context.Context, j *cron.Job) error {
	parts, err := cron.EncodeParts(*j)
	if err != nil {
		return chat.Errorf(chat.CodeInvalid, "the job cannot be stored: %v", err)
	}
	_, err = t.exec(ctx, `INSERT INTO cron_jobs (id, `+jobColumns+`) VALUES (?, `+jobMarks+`)`, append([]any{j.ID}, jobArgs(j, &parts)...)...)
	if err != nil {
		return err
	}
	return t.countChange(ctx)
}

// storeJob writes what differs between old and next, and reports whether anything does.
func (t *tx) storeJob(ctx context.Context, old *storedJob, next *cron.Job) (changed bool, err error) {
	before, after := asRead(&old.Job), asRead(next)
	sameState := before.State == after.State
	samePlan := planOf(&before.State) == planOf(&after.State) && before.State.DeliveryPause == after.State.DeliveryPause
	state := after.State
	before.State, after.State = cron.JobState{}, cron.JobState{}
	same := reflect.DeepEqual(before, after)
	switch {
	case same && sameState:
		return false, nil
	case same && samePlan:
		return true, t.storeJobState(ctx, old.ID, &state)
	case same:
		_, err = t.exec(ctx, `UPDATE cron_jobs SET (`+stateColumns+`) = (`+stateMarks+`) WHERE id = ?`, append(stateArgs(next), old.ID)...)
		return true, err
	}
	parts, err := t.partsOf(old, next)
	if err != nil {
		return false, err
	}
	_, err = t.exec(ctx, `UPDATE cron_jobs SET (`+jobColumns+`) = (`+jobMarks+`) WHERE id = ?`, append(jobArgs(next, &parts), old.ID)...)
	if err != nil {
		return false, err
	}
	return true, t.countChange(ctx)
}

// plan is the part of a job's state that determines when it fires. Some of it is in the index that claims read.
type plan struct {
	next, runAt, activated time.Time
	fired                  int
}

func planOf(s *cron.JobState) plan { return plan{s.Next, s.NextRunAt, s.ActivatedAt, s.Fired} }

// storeJobState writes the columns that the end of a run usually changes. SQLite rewrites the indexes of every column that a statement
// names, whether its value differs or not; so this one names no indexed column.
func (t *tx) storeJobState(ctx context.Context, id string, s *cron.JobState) error {
	_, err := t.exec(ctx, `
		UPDATE cron_jobs SET run_count = ?, error_count = ?, last_run_at = ?, last_state = ?, last_error = ?, last_error_class = ?, last_duration_ms = ?,
			last_delivery = ?, last_delivery_error = ?, last_alert_at = ?, consecutive_errors = ?, consecutive_skipped = ?
		WHERE id = ?`,
		s.RunCount, s.ErrorCount, zero(millis(s.LastRunAt)), string(s.LastState), s.LastError, s.LastErrorClass, s.LastDuration.Milliseconds(),
		string(s.LastDelivery), s.LastDeliveryError, zero(millis(s.LastAlertAt)), s.ConsecutiveErrors, s.ConsecutiveSkipped, id)
	return err
}

// partsOf are the texts of next. Texts of a job that could not be decoded stay unchanged unless the change writes new ones.
func (t *tx) partsOf(old *storedJob, next *cron.Job) (cron.Parts, error) {
	parts, err := cron.EncodeParts(*next)
	if err != nil {
		return parts, chat.Errorf(chat.CodeInvalid, "the job cannot be stored: %v", err)
	}
	if !old.unreadable {
		return parts, nil
	}
	was, err := cron.EncodeParts(old.Job)
	if err == nil && was == parts {
		return old.parts, nil
	}
	return parts, nil
}

// asRead is a copy of a job as it would be read back: without derived members, nothing shared, with the store's precision.
func asRead(j *cron.Job) cron.Job {
	c := j.Clone()
	c.State.Queued, c.State.RunningAt = 0, instant(0)
	if c.Pause != nil {
		c.Pause.At, c.Pause.Until = instant(millis(c.Pause.At)), instant(millis(c.Pause.Until))
	}
	s := &c.State
	for _, at := range []*time.Time{&c.StartsAt, &c.EndsAt, &c.CreatedAt, &c.UpdatedAt, &c.Schedule.At, &s.Next, &s.NextRunAt, &s.ActivatedAt, &s.LastRunAt, &s.LastAlertAt, &s.DeliveryPause.Since} {
		*at = instant(millis(*at))
	}
	return c
}

// removeJob deletes a job; its ledger stays.
func (t *tx) removeJob(ctx context.Context, id string) error {
	if _, err := t.exec(ctx, `DELETE FROM cron_jobs WHERE id = ?`, id); err != nil {
		return err
	}
	return t.countChange(ctx)
}

// countChange changes the revision of lists, so that pages of an older list are recognised as old.
func (t *tx) countChange(ctx context.Context) error {
	_, err := t.exec(ctx, `UPDATE cron_changes SET n = n + 1 WHERE id = 1`)
	return err
}
