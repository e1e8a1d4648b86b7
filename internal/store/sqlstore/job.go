package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

const (
	// jobColumns are the columns of a job that jobArgs writes and jobRow reads, in this order; the
	// id comes before them.
	jobColumns = `owner, key, key_derived, name, display_name, description, principal, agent, account_id, lane, kind, schedule, tz,
		jitter_ms, starts_at, ends_at, max_runs, session, wake_mode, payload, delivery, alert, policy, enabled, paused_note, paused_by,
		paused_at, paused_until, auto_disabled, invalid, revision, created_at, updated_at, next_slot, next_run_at, next_wall, zone_release, activated_at, fired,
		run_count, error_count, last_run_at, last_state, last_error, last_error_class, last_duration_ms, last_delivery,
		last_delivery_error, last_alert_at, consecutive_errors, consecutive_skipped,
		delivery_paused_at, delivery_paused_why, delivery_paused_channel, delivery_paused_chat`

	// jobActive is derived from the ledger: the number of active runs, and the earliest start of
	// the running ones.
	jobActive = `(SELECT count(*) FROM cron_run_logs l WHERE l.job_id = cron_jobs.id AND l.finished_at IS NULL),
		(SELECT min(l.started_at) FROM cron_run_logs l WHERE l.job_id = cron_jobs.id AND l.finished_at IS NULL AND l.state = 'running')`

	// readJob reads jobs with the values derived from the ledger, and the clock; readJobAlone omits
	// these values.
	readJob      = `SELECT id, ` + jobColumns + `, ` + jobActive + `, {now} FROM cron_jobs WHERE `
	readJobAlone = `SELECT id, ` + jobColumns + `, 0, NULL, {now} FROM cron_jobs WHERE `

	// jobPlanned is the condition of the index of jobs that may become due, to fire or to resume.
	jobPlanned = `{true enabled} AND next_run_at IS NOT NULL AND invalid = '' AND (paused_at IS NULL OR paused_until IS NOT NULL)`

	// olderRulesSQL reads jobs that fire and whose slot older zone rules have planned. A paused job
	// is planned again when it is resumed.
	olderRulesSQL = readJobAlone + `zone_release <> '' AND zone_release < $1 AND (zone_release, id) > ($2, $3) AND {true enabled} AND next_slot IS NOT NULL
		AND invalid = '' AND paused_at IS NULL ORDER BY zone_release, id {limit $4} {skip}`
)

// storedJob is a row of a job. Columns that cannot be decoded must survive a change of another
// column; broken is the decoding error.
type storedJob struct {
	cron.Job

	parts  cron.Parts
	broken string
	now    time.Time // the time of the read
}

// jobScan receives rows of jobs, one after the other.
type jobScan struct {
	row      storedJob
	pause    cron.Pause
	pausedAt *int64
	took     int64
	kind     schedule.Kind
	decode   func(cron.Parts, *cron.Job) error

	targets []any
}

// scanner returns a scan function for the rows of one statement.
func (s Cron) scanner() func(Row) (storedJob, error) {
	v := &jobScan{decode: s.parts.Decode}
	j, st := &v.row.Job, &v.row.State
	v.targets = []any{
		&j.ID, &j.Owner, &j.Key, &j.KeyDerived, &j.Name, &j.DisplayName, &j.Description, &j.Principal, &j.Agent, &j.AccountID, &j.Lane, (*string)(&v.kind),
		&v.row.parts.Schedule, &v.row.parts.TZ, &j.JitterMs,
		instant{&j.StartsAt},
		instant{&j.EndsAt},
		&j.MaxRuns, &j.Session, &j.WakeMode,
		&v.row.parts.Payload, &v.row.parts.Delivery, &v.row.parts.Alert, &v.row.parts.Policy, &j.Enabled, &v.pause.Note, &v.pause.By,
		&v.pausedAt,
		instant{&v.pause.Until},
		&j.AutoDisabled, &j.Invalid, &j.Revision,
		instant{&j.CreatedAt},
		instant{&j.UpdatedAt},
		instant{&st.Next},
		instant{&st.NextRunAt},
		instant{&st.NextWall},
		&st.ZoneRelease,
		instant{&st.ActivatedAt},
		&st.Fired, &st.RunCount, &st.ErrorCount,
		instant{&st.LastRunAt},
		(*string)(&st.LastState), &st.LastError, &st.LastErrorClass, &v.took, (*string)(&st.LastDelivery),
		&st.LastDeliveryError,
		instant{&st.LastAlertAt},
		&st.ConsecutiveErrors, &st.ConsecutiveSkipped,
		instant{&st.DeliveryPause.Since},
		&st.DeliveryPause.Reason, &st.DeliveryPause.Channel, &st.DeliveryPause.ChatID,
		&st.Queued,
		instant{&st.RunningAt},
		instant{&v.row.now},
	}
	return v.scan
}

// scan reads a row. A row whose columns cannot be decoded still yields a job, with the reason in
// Invalid.
func (v *jobScan) scan(row Row) (storedJob, error) {
	v.row, v.pause = storedJob{}, cron.Pause{}
	if err := row.Scan(v.targets...); err != nil {
		return storedJob{}, err
	}
	j := &v.row
	j.State.LastDuration = lasting(v.took)
	if v.pausedAt != nil {
		pause := v.pause
		pause.At = fromMillis(*v.pausedAt)
		j.Pause = &pause
	}
	if err := v.decode(j.parts, &j.Job); err != nil {
		j.Schedule.Kind, j.broken = v.kind, err.Error()
		j.Invalid = cmp.Or(j.Invalid, j.broken)
	}
	return *j, nil
}

// lasting is a stored duration.
func lasting(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// jobArgs are the values of jobColumns. Two jobs are equal if these values are equal.
func jobArgs(j cron.Job, parts cron.Parts) []any {
	var (
		pause    cron.Pause
		pausedAt any
	)
	if j.Pause != nil {
		pause, pausedAt = *j.Pause, millis(j.Pause.At)
	}
	st := &j.State
	return []any{
		j.Owner, j.Key, j.KeyDerived, j.Name, j.DisplayName, j.Description, j.Principal, j.Agent, j.AccountID, j.Lane, string(j.Schedule.Kind),
		parts.Schedule, parts.TZ, j.JitterMs, orNull(j.StartsAt), orNull(j.EndsAt), int64(j.MaxRuns), j.Session, j.WakeMode,
		parts.Payload, parts.Delivery, parts.Alert, parts.Policy, j.Enabled, pause.Note, pause.By,
		pausedAt, orNull(pause.Until), j.AutoDisabled, j.Invalid, j.Revision, millis(j.CreatedAt), millis(j.UpdatedAt),
		orNull(st.Next), orNull(st.NextRunAt), orNull(st.NextWall), st.ZoneRelease, orNull(st.ActivatedAt), int64(st.Fired), st.RunCount, st.ErrorCount, orNull(st.LastRunAt),
		string(st.LastState), st.LastError, st.LastErrorClass, st.LastDuration.Milliseconds(), string(st.LastDelivery), st.LastDeliveryError,
		orNull(st.LastAlertAt), int64(st.ConsecutiveErrors), int64(st.ConsecutiveSkipped),
		orNull(st.DeliveryPause.Since), st.DeliveryPause.Reason, st.DeliveryPause.Channel, st.DeliveryPause.ChatID,
	}
}

// orNull is a time; the zero time is stored as NULL.
func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// encodeJob is jobArgs of a job from a caller.
func encodeJob(j cron.Job) (parts cron.Parts, args []any, err error) {
	j.Schedule.At = fromMillis(millis(j.Schedule.At))
	if parts, err = cron.EncodeParts(j); err != nil {
		return parts, nil, chat.Errorf(chat.CodeInvalid, "the job cannot be stored: %v", err)
	}
	return parts, jobArgs(j, parts), nil
}

// replacement is the new row for j, nil when it equals the old row. Columns that cannot be decoded
// stay unless the change writes new ones.
func (old storedJob) replacement(j cron.Job) ([]any, error) {
	parts, args, err := encodeJob(j)
	if err != nil {
		return nil, err
	}
	was, before, err := encodeJob(old.Job)
	if err == nil && slices.Equal(args, before) {
		return nil, nil
	}
	if err == nil && old.broken != "" && was == parts {
		args = jobArgs(j, old.parts)
	}
	return args, nil
}

// marks are the placeholders of as many columns, starting with number from.
func marks(columns string, from int) string {
	var b strings.Builder
	for i := range strings.Count(columns, ",") + 1 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("$" + strconv.Itoa(from+i))
	}
	return b.String()
}

// Lists of jobs have a revision: the sum of list_mark. A new job starts with a unique number, and
// each change of a user's settings adds one.
func insertJobSQL() string {
	return `INSERT INTO cron_jobs (id, list_mark, ` + jobColumns + `) VALUES ($1, $2, ` + marks(jobColumns, 3) + `) ON CONFLICT DO NOTHING`
}

func updateJobSQL() string {
	return `UPDATE cron_jobs SET list_mark = list_mark + 1, (` + jobColumns + `) = (` + marks(jobColumns, 2) + `) WHERE id = $1`
}

const (
	// nameSQL makes a holder name a session; a name keeps its first time.
	nameSQL = `INSERT INTO session_names (session_key, holder, principal, named_at, seen_at) VALUES ($1, $2, $3, {now}, {now})
		ON CONFLICT (session_key, holder) DO UPDATE SET seen_at = excluded.seen_at`

	// released are the sessions that a holder, $1, names and that are not in $2.
	released = `(SELECT n.session_key FROM session_names n WHERE n.holder = $1 AND NOT (n.session_key {in $2}))`

	// dropReservedSQL deletes sessions without an entry that no other holder names, and
	// giveReservedSQL gives the others to the principal that names them first.
	dropReservedSQL = `DELETE FROM sessions WHERE updated_at = 0 AND key IN ` + released + `
		AND NOT EXISTS (SELECT 1 FROM session_names o WHERE o.session_key = sessions.key AND o.holder <> $1)`
	giveReservedSQL = `UPDATE sessions SET principal = (SELECT o.principal FROM session_names o WHERE o.session_key = sessions.key AND o.holder <> $1
		ORDER BY o.named_at, o.holder LIMIT 1) WHERE updated_at = 0 AND key IN ` + released

	// takenNamesSQL finds sessions that another principal has made since a holder names them, after
	// a deletion: they get nothing from the holder. The hooks of a configuration share the sessions
	// that they name. Each row of the set is the key of a session and a holder.
	takenNamesSQL = `{set key text, holder text} SELECT s.key, n.holder FROM (SELECT 1 AS one) x {and} JOIN sessions s ON s.key = v.key
			JOIN session_names n ON n.session_key = v.key AND n.holder = v.holder
		WHERE s.principal <> n.principal AND s.created_at > n.named_at AND NOT (n.holder LIKE 'hook:%'
			AND EXISTS (SELECT 1 FROM session_names o WHERE o.session_key = s.key AND o.holder = s.principal AND o.holder LIKE 'hook:%'))`
)

// nameSession makes a holder name a session. A session that does not exist is created for the
// principal, and is not listed before its first entry.
func nameSession(ctx context.Context, tx Tx, key chat.SessionKey, holder, principal string) error {
	// Locked, so that a holder that releases the session meanwhile finds this name.
	if err := tx.Later(ctx, lockSessionsSQL, func(Row) error { return nil }, []string{key.String()}); err != nil {
		return err
	}
	first, err := makeSession(ctx, tx, key, principal)
	if err != nil {
		return err
	}
	return later(ctx, tx,
		with(`UPDATE sessions SET updated_at = 0 WHERE key = $1 AND session_id = $2`, key.String(), first), // an existing session has another transcript
		with(nameSQL, key.String(), holder, principal))
}

// nameSessions makes a job name its sessions, and only these.
func nameSessions(ctx context.Context, tx Tx, j *cron.Job) error {
	keys := j.Names()
	if err := releaseNames(ctx, tx, j.ID, keys...); err != nil {
		return err
	}
	for _, key := range keys {
		if err := nameSession(ctx, tx, key, j.ID, j.Owner); err != nil {
			return err
		}
	}
	return nil
}

// releaseNames ends that a holder names sessions, except those that it keeps.
func releaseNames(ctx context.Context, tx Tx, holder string, keep ...chat.SessionKey) error {
	kept := make([]string, len(keep))
	for i, key := range keep {
		kept[i] = key.String()
	}
	if err := tx.Later(ctx, `SELECT 1 FROM sessions WHERE key IN `+released+` ORDER BY key {lock}`, func(Row) error { return nil }, holder, kept); err != nil {
		return err
	}
	return later(ctx, tx, with(dropReservedSQL, holder, kept), with(giveReservedSQL, holder, kept),
		with(`DELETE FROM session_names WHERE holder = $1 AND session_key IN `+released, holder, kept))
}

// takenNames are such sessions among those of a list of keys and holders. Only keys without an
// identity can be named.
type takenNames struct {
	asked Set
	found map[[2]string]bool // of a key and a holder
}

func (t *takenNames) ask(key chat.SessionKey, principal, holder string) {
	if holder != "" && key.RightOf(principal) == chat.RightFree {
		t.asked = append(t.asked, []any{key.String(), holder})
	}
}

func (t *takenNames) read(ctx context.Context, tx Tx) error {
	if len(t.asked) == 0 {
		return nil
	}
	t.found = map[[2]string]bool{}
	return tx.Query(ctx, takenNamesSQL, func(r Row) error {
		var key, holder string
		err := r.Scan(&key, &holder)
		t.found[[2]string{key, holder}] = true
		return err
	}, t.asked)
}

func (t *takenNames) has(key chat.SessionKey, holder string) bool {
	return t.found[[2]string{key.String(), holder}]
}

// insertJob adds a job; fresh is false when its id or its key is taken.
func insertJob(ctx context.Context, tx Tx, j cron.Job) (fresh bool, err error) {
	_, args, err := encodeJob(j)
	if err != nil {
		return false, err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(j.ID))
	n, err := tx.Exec(ctx, insertJobSQL(), append([]any{j.ID, int64(h.Sum32())}, args...)...)
	if err != nil || n == 0 || len(j.Names()) == 0 {
		return n == 1, err
	}
	return true, nameSessions(ctx, tx, &j)
}

// storeJob replaces the old row, which is locked, by j and reports whether anything changed. The id
// and the owner of a job never change.
func storeJob(ctx context.Context, tx Tx, old storedJob, j cron.Job) (changed bool, err error) {
	if j.ID != old.ID || j.Owner != old.Owner {
		return false, chat.Errorf(chat.CodeInvalid, "the id and the owner of a job never change")
	}
	args, err := old.replacement(j)
	if err != nil || args == nil {
		return false, err
	}
	if j.Key != old.Key {
		if err := keyIsFree(ctx, tx, j); err != nil {
			return false, err
		}
	}
	if !slices.Equal(old.Names(), j.Names()) {
		if err := nameSessions(ctx, tx, &j); err != nil {
			return false, err
		}
	}
	return true, tx.Later(ctx, updateJobSQL(), nil, append([]any{old.ID}, args...)...)
}

func keyIsFree(ctx context.Context, tx Tx, j cron.Job) error {
	if err := lockName(ctx, tx, "cron_jobs", ""); err != nil {
		return err
	}
	taken, err := one(ctx, tx, `SELECT 1 FROM cron_jobs WHERE owner = $1 AND key = $2`, func(Row) error { return nil }, j.Owner, j.Key)
	if err == nil && (taken || j.Key == "") {
		err = chat.Errorf(chat.CodeConflict, "another job has the key %q: choose another name or schedule", j.Key)
	}
	return err
}

// countersSQL writes the columns that the end of a run usually changes. SQLite rewrites the indexes
// of every column that a statement sets, even to the same value; so this one sets no indexed
// column.
const countersSQL = `{set id text, runs int, errors int, at int, state text, error text, class text, took int, delivery text, undelivered text, alert int, failed int, skipped int}
	UPDATE cron_jobs AS j SET run_count = v.runs, error_count = v.errors, last_run_at = NULLIF(v.at, 0), last_state = v.state, last_error = v.error,
		last_error_class = v.class, last_duration_ms = v.took, last_delivery = v.delivery, last_delivery_error = v.undelivered,
		last_alert_at = NULLIF(v.alert, 0), consecutive_errors = v.failed, consecutive_skipped = v.skipped
	{from} WHERE j.id = v.id`

func counters(j *cron.Job) []any {
	st := &j.State
	return []any{
		j.ID, st.RunCount, st.ErrorCount, millis(st.LastRunAt), string(st.LastState), st.LastError, st.LastErrorClass, st.LastDuration.Milliseconds(),
		string(st.LastDelivery), st.LastDeliveryError, millis(st.LastAlertAt), int64(st.ConsecutiveErrors), int64(st.ConsecutiveSkipped),
	}
}

// findJob reads a job that visible may see; chat.ErrNotFound.
func (s Cron) findJob(ctx context.Context, tx Tx, id, visible string) (j storedJob, err error) {
	scan := s.scanner()
	found, err := one(ctx, tx, readJob+`id = $1 AND ($2 = '' OR owner = $2)`, func(r Row) (err error) {
		j, err = scan(r)
		return err
	}, id, visible)
	if err == nil && !found {
		err = chat.ErrNotFound
	}
	return j, err
}

// lockJob locks a job and then reads it with the clock. The lock is a separate statement: the
// following read begins after it, and so sees the commits that the lock has waited for.
func (s Cron) lockJob(ctx context.Context, tx Tx, where string, args ...any) (j storedJob, found bool, err error) {
	locked := true
	if text := tx.PerEngine(`SELECT id FROM cron_jobs WHERE `+where+` FOR UPDATE`, ""); text != "" {
		locked = false
		err := tx.Later(ctx, text, func(Row) error {
			locked = true
			return nil
		}, args...)
		if err != nil {
			return j, false, err
		}
	}
	scan := s.scanner()
	found, err = one(ctx, tx, readJob+where, func(r Row) (err error) {
		j, err = scan(r)
		return err
	}, args...)
	if err != nil {
		return j, false, fmt.Errorf("read a job: %w", err)
	}
	return j, found && locked, nil // a job that was created between the statements is not locked
}

// Replan recomputes the slots that older zone rules have planned; see cron.JobStore.
func (s Cron) Replan(ctx context.Context, p cron.ReplanParams) (cron.Replanned, error) {
	return result(ctx, s.db.Update, "plan jobs by newer zone rules", func(ctx context.Context, tx Tx) (out cron.Replanned, err error) {
		var (
			set  Set
			scan = s.scanner()
			read = 0
		)
		out.Last = p.After
		err = tx.Query(ctx, olderRulesSQL, func(r Row) error {
			j, err := scan(r)
			if err != nil {
				return err
			}
			read++
			out.Last = cron.PlanPlace{Release: j.State.ZoneRelease, ID: j.ID}
			plan, changed := p.Replan(j.Job, j.now)
			if j.broken != "" || !changed {
				return nil
			}
			j.State.Plan = plan
			st := &j.State
			set = append(set, []any{j.ID, millis(st.Next), millis(st.NextRunAt), millis(st.NextWall), st.ZoneRelease, int64(st.Fired), int64(st.ConsecutiveSkipped)})
			out.Jobs = append(out.Jobs, j.Job)
			return nil
		}, p.Release, p.After.Release, p.After.ID, p.Limit)
		out.More = read >= p.Limit
		if err != nil || len(set) == 0 {
			return out, err
		}
		return out, tx.Later(ctx, advanceSQL, nil, set)
	})
}
