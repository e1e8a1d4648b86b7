package postgres

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

const (
	// jobColumns are the columns of cron_jobs in the order of jobArgs.
	jobColumns = `id, owner, key, key_derived, name, display_name, description, principal, agent, account_id, lane, kind, schedule, tz,
	jitter_ms, starts_at, ends_at, max_runs, session, wake_mode, payload, delivery, alert, policy, enabled, paused_note, paused_by,
	paused_at, paused_until, auto_disabled, invalid, revision, created_at, updated_at, next_slot, next_run_at, activated_at, fired,
	run_count, error_count, last_run_at, last_state, last_error, last_error_class, last_duration_ms, last_delivery,
	last_delivery_error, last_alert_at, consecutive_errors, consecutive_skipped,
	delivery_paused_at, delivery_paused_why, delivery_paused_channel, delivery_paused_chat`

	// jobView are the columns that scanJob reads: the row and what follows from the ledger.
	jobView = jobColumns + `,
	(SELECT count(*) FROM cron_run_logs l WHERE l.job_id = cron_jobs.id AND l.finished_at IS NULL),
	(SELECT min(l.started_at) FROM cron_run_logs l WHERE l.job_id = cron_jobs.id AND l.finished_at IS NULL AND l.state = 'running')`
)

// jobInsertSQL adds a job; jobUpdateSQL writes all columns of the job whose id comes first.
func jobInsertSQL() string {
	return `INSERT INTO cron_jobs (` + jobColumns + `) VALUES (` + placeholders(jobColumns) + `)`
}

func jobUpdateSQL() string {
	return `UPDATE cron_jobs SET (` + jobColumns + `) = (` + placeholders(jobColumns) + `) WHERE id = $1`
}

// placeholders are as many parameters as there are columns.
func placeholders(columns string) string {
	var b strings.Builder
	for i := range strings.Count(columns, ",") + 1 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("$" + strconv.Itoa(i+1))
	}
	return b.String()
}

// jobArgs are the values of jobColumns. Two jobs are the same if their values are.
func jobArgs(j cron.Job) ([]any, error) {
	j.Schedule.At = j.Schedule.At.Truncate(time.Millisecond)
	parts, err := cron.EncodeParts(j)
	if err != nil {
		return nil, err
	}
	var pause cron.Pause
	pausedAt := any(nil)
	if j.Pause != nil {
		pause = *j.Pause
		pausedAt = int64(0)
		if !pause.At.IsZero() {
			pausedAt = pause.At.UnixMilli()
		}
	}
	st := j.State
	return []any{
		j.ID, j.Owner, j.Key, j.KeyDerived, clean(j.Name), clean(j.DisplayName), clean(j.Description), j.Principal, j.Agent, j.AccountID,
		j.Lane, string(j.Schedule.Kind), parts.Schedule, parts.TZ,
		j.JitterMs, millis(j.StartsAt), millis(j.EndsAt), int64(j.MaxRuns), j.Session, j.WakeMode,
		clean(parts.Payload), clean(parts.Delivery), clean(parts.Alert), clean(parts.Policy), j.Enabled, clean(pause.Note), clean(pause.By),
		pausedAt, millis(pause.Until), j.AutoDisabled, clean(j.Invalid), j.Revision, ms(j.CreatedAt), ms(j.UpdatedAt),
		millis(st.Next), millis(st.NextRunAt), millis(st.ActivatedAt), int64(st.Fired),
		st.RunCount, st.ErrorCount, millis(st.LastRunAt), string(st.LastState), clean(st.LastError), clean(st.LastErrorClass),
		st.LastDuration.Milliseconds(), string(st.LastDelivery), clean(st.LastDeliveryError), millis(st.LastAlertAt),
		int64(st.ConsecutiveErrors), int64(st.ConsecutiveSkipped),
		millis(st.DeliveryPause.Since), clean(st.DeliveryPause.Reason), st.DeliveryPause.Channel, st.DeliveryPause.ChatID,
	}, nil
}

// storedJob is one row. Broken is the reason why its texts cannot be decoded although the row is not marked so.
type storedJob struct {
	cron.Job

	broken string
}

// same reports whether storing j would change nothing.
func (old storedJob) same(j cron.Job) (args []any, same bool, err error) {
	if args, err = jobArgs(j); err != nil || old.broken != "" {
		return args, false, err
	}
	before, err := jobArgs(old.Job)
	return args, err == nil && slices.Equal(args, before), err
}

func scanJob(row pgx.CollectableRow) (storedJob, error) {
	return newJobScan(cron.DecodeParts).scan(row)
}

// jobScanner is scanJob for the rows of one statement, by operations that read a job again and again.
func (s *Store) jobScanner() pgx.RowToFunc[storedJob] {
	return newJobScan(s.parts.Decode).scan
}

// jobScan receives rows of jobs, one after the other.
type jobScan struct {
	j      storedJob
	parts  cron.Parts
	pause  cron.Pause
	kind   schedule.Kind
	times  jobTimes
	took   int64
	decode func(cron.Parts, *cron.Job) error

	targets []any
}

func newJobScan(decode func(cron.Parts, *cron.Job) error) *jobScan {
	v := &jobScan{decode: decode}
	j, st, r := &v.j, &v.j.State, &v.times
	v.targets = []any{
		&j.ID, &j.Owner, &j.Key, &j.KeyDerived, &j.Name, &j.DisplayName, &j.Description, &j.Principal, &j.Agent, &j.AccountID,
		&j.Lane, &v.kind, &v.parts.Schedule, &v.parts.TZ,
		&j.JitterMs, &r.starts, &r.ends, &j.MaxRuns, &j.Session, &j.WakeMode,
		&v.parts.Payload, &v.parts.Delivery, &v.parts.Alert, &v.parts.Policy, &j.Enabled, &v.pause.Note, &v.pause.By,
		&r.pausedAt, &r.pausedUntil, &j.AutoDisabled, &j.Invalid, &j.Revision, &r.created, &r.updated,
		&r.nextSlot, &r.nextRun, &r.activated, &st.Fired,
		&st.RunCount, &st.ErrorCount, &r.lastRun, &st.LastState, &st.LastError, &st.LastErrorClass,
		&v.took, &st.LastDelivery, &st.LastDeliveryError, &r.lastAlert,
		&st.ConsecutiveErrors, &st.ConsecutiveSkipped,
		&r.undeliverable, &st.DeliveryPause.Reason, &st.DeliveryPause.Channel, &st.DeliveryPause.ChatID, &st.Queued, &r.running,
	}
	return v
}

func (v *jobScan) scan(row pgx.CollectableRow) (storedJob, error) {
	v.j, v.pause, v.times = storedJob{}, cron.Pause{}, jobTimes{}
	if err := row.Scan(v.targets...); err != nil {
		return storedJob{}, err
	}
	v.j.State.LastDuration = duration(v.took)
	v.times.into(&v.j.Job, v.pause)
	if err := v.decode(v.parts, &v.j.Job); err != nil {
		v.j.Schedule.Kind, v.j.broken = v.kind, err.Error()
		if v.j.Invalid == "" {
			v.j.Invalid = v.j.broken
		}
	}
	return v.j, nil
}

// jobTimes are the columns of a job that are moments.
type jobTimes struct {
	starts, ends, pausedAt, pausedUntil, created, updated     pgtype.Int8
	nextSlot, nextRun, activated, lastRun, lastAlert, running pgtype.Int8
	undeliverable                                             pgtype.Int8
}

func (r jobTimes) into(j *cron.Job, pause cron.Pause) {
	if r.pausedAt.Valid {
		pause.At, pause.Until = moment(r.pausedAt), moment(r.pausedUntil)
		j.Pause = &pause
	}
	j.StartsAt, j.EndsAt, j.CreatedAt, j.UpdatedAt = moment(r.starts), moment(r.ends), moment(r.created), moment(r.updated)
	st := &j.State
	st.Next, st.NextRunAt, st.ActivatedAt = moment(r.nextSlot), moment(r.nextRun), moment(r.activated)
	st.LastRunAt, st.LastAlertAt, st.RunningAt = moment(r.lastRun), moment(r.lastAlert), moment(r.running)
	st.DeliveryPause.Since = moment(r.undeliverable)
}
