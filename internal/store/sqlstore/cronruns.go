package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// conditions builds a WHERE clause that contains only the conditions in use: a plan for every
// filter at once could not use an index.
type conditions struct {
	list []string
	args []any
}

// add adds a condition with one parameter, written as %s.
func (c *conditions) add(wanted bool, condition string, arg any) {
	if wanted {
		c.list = append(c.list, strings.ReplaceAll(condition, "%s", c.arg(arg)))
	}
}

// arg adds a parameter and returns its placeholder.
func (c *conditions) arg(v any) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args))
}

func asStrings[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// runList is the query of a list of runs.
type runList struct {
	f                       *cron.RunFilter
	c                       conditions
	where, active, finished string // conditions for rows, for active ones and for finished ones; "" = no such rows
}

const (
	// PostgreSQL searches in SQL, see jobsFound.
	runsFound = `(position(%s IN lower(id)) > 0 OR position(%s IN lower(error)) > 0 OR position(%s IN lower(summary)) > 0 OR position(%s IN lower(job_name)) > 0)`
	runTexts  = `, error, summary, job_name`

	// ledgerOwners are the owners of ledger rows. It costs one index lookup per owner.
	ledgerOwners = `(WITH RECURSIVE o(owner) AS (
			(SELECT owner FROM cron_run_logs ORDER BY owner LIMIT 1)
			UNION ALL SELECT (SELECT l.owner FROM cron_run_logs l WHERE l.owner > o.owner ORDER BY l.owner LIMIT 1) FROM o WHERE o.owner IS NOT NULL
		) SELECT owner FROM o WHERE owner IS NOT NULL) o`
)

func newRunList(tx Tx, f *cron.RunFilter) *runList {
	l := &runList{f: f}
	c := &l.c
	c.add(f.Visible != "", "owner = %s", f.Visible)
	c.add(f.JobID != "", "job_id = %s", f.JobID)
	c.add(f.RunID != "", "id = %s", f.RunID)
	c.add(f.Agent != "", "agent = %s", f.Agent)
	c.add(len(f.Deliveries) > 0, "delivery {in %s}", asStrings(f.Deliveries))
	c.add(!f.Since.IsZero(), "scheduled_for >= %s", millis(f.Since))
	c.add(!f.Until.IsZero(), "scheduled_for <= %s", millis(f.Until))
	c.add(f.Query != "" && tx.PerEngine("sql", "") != "", runsFound, strings.ToLower(f.Query))
	if len(c.list) == 0 {
		c.list = append(c.list, "scheduled_for > -9000000000000000") // all rows, by the index of planned times
	}
	l.where = strings.Join(c.list, " AND ")
	var open, over []string
	for _, state := range f.States {
		if state.Active() {
			open = append(open, string(state))
		} else {
			over = append(over, string(state))
		}
	}
	switch {
	case f.IncludeActive:
		l.active = `finished_at IS NULL`
	case len(open) > 0:
		l.active = `finished_at IS NULL AND state {in ` + c.arg(open) + `}`
	}
	switch {
	case len(over) > 0:
		l.finished = `finished_at IS NOT NULL AND state {in ` + c.arg(over) + `}`
	case len(f.States) == 0:
		l.finished = `finished_at IS NOT NULL`
	}
	return l
}

func (l *runList) matching() string {
	switch {
	case l.active == "":
		return l.where + " AND " + l.finished
	case l.finished == "":
		return l.where + " AND " + l.active
	}
	return l.where + " AND (" + l.active + " OR " + l.finished + ")"
}

func (l *runList) order() string {
	direction := " DESC"
	if l.f.Ascending {
		direction = ""
	}
	if l.finished == "" { // the plus keeps SQLite from reading the whole ledger in index order to avoid sorting a few rows
		return " ORDER BY +scheduled_for" + direction + ", id" + direction
	}
	return " ORDER BY scheduled_for" + direction + ", id" + direction
}

// text returns the query for the rows of the list in order: an id, the bytes of the row, and the
// strings that are searched. PostgreSQL has the order in an index per owner, SQLite in one of all
// rows.
func (l *runList) text(tx Tx, texts string) (string, []any) {
	columns := "SELECT id, " + runBytes + texts + " FROM "
	direct := columns + "cron_run_logs WHERE " + l.matching() + l.order()
	f := l.f
	bounded := f.Limit > 0 && texts == ""
	if !bounded {
		return direct, l.c.args
	}
	args := append(slices.Clip(l.c.args), f.Limit, max(f.Offset, 0))
	limit, offset := "$"+strconv.Itoa(len(args)-1), "$"+strconv.Itoa(len(args))
	piece := " {limit " + limit + "} OFFSET " + offset
	if f.JobID != "" || f.RunID != "" || f.Visible != "" || l.finished == "" {
		return direct + piece, args
	}
	return tx.PerEngine(columns+ledgerOwners+" CROSS JOIN LATERAL (SELECT l.* FROM cron_run_logs l WHERE "+l.matching()+" AND l.owner = o.owner"+l.order()+
		" LIMIT CAST("+limit+" AS bigint) + "+offset+") l"+l.order()+piece, direct+piece), args
}

// count counts the rows that match as far as most. When all finished rows match, it counts index
// entries and subtracts the active rows that do not match, so it reads no finished row.
func (l *runList) count(ctx context.Context, tx Tx, most int) (n int, err error) {
	const from = " FROM cron_run_logs WHERE "
	if l.finished != `finished_at IS NOT NULL` {
		return countTo(ctx, tx, from+l.matching(), most, l.c.args...)
	}
	other := 0
	if l.active != `finished_at IS NULL` {
		not := l.where + " AND finished_at IS NULL"
		if l.active != "" {
			not += " AND NOT (" + l.active + ")"
		}
		if _, err := one(ctx, tx, "SELECT count(*)"+from+not, into(&other), l.c.args...); err != nil {
			return 0, err
		}
	}
	n, err = countTo(ctx, tx, from+l.where, most+other, l.c.args...)
	return n - other, err
}

// Runs lists rows of the ledger; see cron.JobStore.
func (s Cron) Runs(ctx context.Context, f cron.RunFilter) (out cron.RunPage, err error) {
	err = s.db.List(ctx, "list runs", func(ctx context.Context, tx Tx) error {
		out = cron.RunPage{}
		l := newRunList(tx, &f)
		texts := ""
		if f.Query != "" {
			texts = tx.PerEngine("", runTexts)
		}
		text, args := l.text(tx, texts)
		p := idPage{limit: f.Limit, texts: strings.Count(texts, ","), find: strings.ToLower(f.Query), offset: f.Offset}
		if f.Limit > 0 {
			p.most = chat.CountTo(f.Count, max(f.Offset, 0)+f.Limit)
			if p.texts == 0 { // the statement has already skipped rows
				p.offset, p.paged = 0, true
				if p.total, err = l.count(ctx, tx, p.most); err != nil {
					return err
				}
			}
		}
		if err := p.read(ctx, tx, text, args...); err != nil {
			return err
		}
		out.Total, out.More = p.counted()
		out.Runs, err = runsNamed(ctx, tx, p.ids)
		return err
	})
	return out, err
}

func runsNamed(ctx context.Context, tx Tx, ids []string) ([]cron.Run, error) {
	rows, err := readRuns(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	var list []cron.Run
	for _, id := range ids {
		if r, ok := rows[id]; ok {
			list = append(list, r.Run)
		}
	}
	return list, nil
}

// logColumns are the columns of a ledger row that logScan reads.
const logColumns = `id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state,
	COALESCE(reason, ''), dst, slot_count, slot_until, fire_at, claimed_at, started_at, finished_at, next_attempt_at,
	duration_ms, attempt, attempts, error, error_class, summary, model, provider, input_tokens, output_tokens,
	delivery, delivery_error, provider_message_id, suppressed_by, node, run_id`

// loggedRun is a row of the ledger with the message of its current attempt; "" when it has none.
type loggedRun struct {
	cron.Run

	message string
}

// logScan receives rows of the ledger, one after the other.
type logScan struct {
	row      loggedRun
	took     int64
	attempts string

	targets []any
}

// logScanner returns a scan function for the rows of one statement. Further columns follow those of
// the ledger.
func logScanner(further ...any) func(Row) (loggedRun, error) {
	v := &logScan{}
	r := &v.row.Run
	v.targets = append([]any{
		&r.ID, &r.JobID, &r.JobName, &r.JobKey, &r.Owner, &r.Agent, &r.Lane, &r.SessionKey,
		instant{&r.ScheduledFor},
		(*string)(&r.Trigger), (*string)(&r.State),
		(*string)(&r.Reason), (*string)(&r.DST), &r.SlotCount,
		instant{&r.SlotUntil},
		instant{&r.FireAt},
		instant{&r.ClaimedAt},
		instant{&r.StartedAt},
		instant{&r.FinishedAt},
		instant{&r.NextAttempt},
		&v.took, &r.Attempt, &v.attempts, &r.Error, &r.ErrorClass, &r.Summary,
		&r.Model, &r.Provider, &r.InputTokens, &r.OutputTokens,
		(*string)(&r.Delivery), &r.DeliveryError, &r.ProviderMessageID, &r.SuppressedBy, &r.Node, &v.row.message,
	}, further...)
	return v.scan
}

func (v *logScan) scan(row Row) (loggedRun, error) {
	v.row = loggedRun{}
	if err := row.Scan(v.targets...); err != nil {
		return loggedRun{}, err
	}
	r := v.row
	r.Duration = lasting(v.took)
	var err error
	if r.Attempts, err = cron.DecodeAttempts(v.attempts); err != nil {
		return r, fmt.Errorf("read run %s: %w", r.ID, err)
	}
	return r, nil
}

// errNotNew means that a run exists, or that another message has the id that the message of a run
// needs. The operation is then repeated with a check of each run, so that one such run does not
// delay the others.
var errNotNew = errors.New("a run or its message is not new")

// addRunsSQL adds rows of runs that wait to start or never run. A row whose run exists is skipped.
const addRunsSQL = `{set id text, job text, name text, key text, owner text, agent text, lane text, session text, slot int, trigger text, state text, reason text,
		dst text, n int, until int, fire int, claimed int, finished int, error text, class text, summary text, delivery text, suppressed text, node text, message text}
	INSERT INTO cron_run_logs (id, job_id, job_name, job_key, owner, agent, lane, session_key, scheduled_for, trigger, state, reason, dst,
		slot_count, slot_until, fire_at, claimed_at, finished_at, error, error_class, summary, delivery, suppressed_by, node, run_id)
	SELECT v.id, v.job, v.name, v.key, v.owner, v.agent, v.lane, v.session, v.slot, v.trigger, v.state, NULLIF(v.reason, ''), v.dst,
		v.n, NULLIF(v.until, 0), NULLIF(v.fire, 0), v.claimed, NULLIF(v.finished, 0), v.error, v.class, v.summary, v.delivery, v.suppressed, v.node, v.message
	{from} WHERE true ON CONFLICT DO NOTHING`

// addRuns adds rows and returns the ids of the new ones. Without each, all of them must be new.
func addRuns(ctx context.Context, tx Tx, rows []loggedRun, each bool) (map[string]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	set := make(Set, len(rows))
	for i := range rows {
		r := &rows[i].Run
		set[i] = []any{
			r.ID, r.JobID, r.JobName, r.JobKey, r.Owner, r.Agent, r.Lane, r.SessionKey, millis(r.ScheduledFor), string(r.Trigger), string(r.State), string(r.Reason),
			string(r.DST), r.SlotCount, millis(r.SlotUntil), millis(r.FireAt), millis(r.ClaimedAt), millis(r.FinishedAt), r.Error, r.ErrorClass, r.Summary,
			string(r.Delivery), r.SuppressedBy, r.Node, rows[i].message,
		}
	}
	fresh := make(map[string]bool, len(rows))
	if each {
		err := tx.Query(ctx, addRunsSQL+` RETURNING id`, func(r Row) error {
			var id string
			err := r.Scan(&id)
			fresh[id] = true
			return err
		}, set)
		return fresh, err
	}
	n, err := tx.Exec(ctx, addRunsSQL, set)
	if err == nil && int(n) != len(rows) {
		err = errNotNew
	}
	for i := range rows {
		fresh[rows[i].ID] = true
	}
	return fresh, err
}

// storeRunsSQL writes the columns that attempts change.
const storeRunsSQL = `{set id text, state text, reason text, started int, finished int, next int, took int, attempt int, attempts text, error text, class text,
		summary text, model text, provider text, input int, output int, delivery text, suppressed text, undelivered text, node text, message text}
	UPDATE cron_run_logs AS l SET state = v.state, reason = NULLIF(v.reason, ''), started_at = NULLIF(v.started, 0), finished_at = NULLIF(v.finished, 0),
		next_attempt_at = NULLIF(v.next, 0), duration_ms = v.took, attempt = v.attempt, attempts = v.attempts, error = v.error, error_class = v.class,
		summary = v.summary, model = v.model, provider = v.provider, input_tokens = v.input, output_tokens = v.output,
		delivery = v.delivery, suppressed_by = v.suppressed, delivery_error = v.undelivered, node = v.node, run_id = v.message
	{from} WHERE l.id = v.id`

// storeRuns writes existing rows. They, or their sessions, are locked.
func storeRuns(ctx context.Context, tx Tx, rows ...loggedRun) error {
	if len(rows) == 0 {
		return nil
	}
	set := make(Set, len(rows))
	for i := range rows {
		r := &rows[i].Run
		attempts, err := cron.EncodeAttempts(r.Attempts)
		if err != nil {
			return err
		}
		set[i] = []any{
			r.ID, string(r.State), string(r.Reason), millis(r.StartedAt), millis(r.FinishedAt), millis(r.NextAttempt), r.Duration.Milliseconds(), int64(r.Attempt),
			attempts, r.Error, r.ErrorClass, r.Summary, r.Model, r.Provider, r.InputTokens, r.OutputTokens, string(r.Delivery), r.SuppressedBy,
			r.DeliveryError, r.Node, rows[i].message,
		}
	}
	return tx.Later(ctx, storeRunsSQL, nil, set)
}

// idIn is a condition for rows with these ids, and its parameter. A single id needs no list.
func idIn(ids []string) (condition string, arg any) {
	if len(ids) == 1 {
		return `id = $1`, ids[0]
	}
	return `id {in $1}`, ids
}

// readRuns reads rows by their ids.
func readRuns(ctx context.Context, tx Tx, ids []string) (map[string]loggedRun, error) {
	found := make(map[string]loggedRun, len(ids))
	scan := logScanner()
	which, arg := idIn(ids)
	err := tx.Query(ctx, `SELECT `+logColumns+` FROM cron_run_logs WHERE `+which, func(row Row) error {
		r, err := scan(row)
		found[r.ID] = r
		return err
	}, arg)
	return found, err
}

// maxPrune is how many rows one call deletes. Each has a message, a run and often a session of its
// own; on SQLite no other operation writes meanwhile.
const maxPrune = 1000

const (
	oldRuns = `SELECT id, attempt, job_id, trigger, scheduled_for, session_key FROM `

	// agedSQL finds finished rows that ended before $1; those that were planned first come first. A
	// row is planned before it ends. PostgreSQL has an index of the planned times of each owner,
	// SQLite one of the ends.
	agedSQL = oldRuns + ledgerOwners + ` CROSS JOIN LATERAL (SELECT l.* FROM cron_run_logs l WHERE l.owner = o.owner AND l.scheduled_for < $1 AND l.finished_at < $1
		ORDER BY l.scheduled_for, l.id LIMIT $2) l ORDER BY scheduled_for, id LIMIT $2`
	agedOnSQLite = oldRuns + `cron_run_logs WHERE finished_at < $1 ORDER BY finished_at {limit $2}`

	// beyondSQL finds the finished rows of a job beyond those that ended last.
	beyondSQL = oldRuns + `cron_run_logs WHERE job_id = $1 AND finished_at IS NOT NULL ORDER BY finished_at DESC, scheduled_for DESC, id DESC {limit $3} OFFSET $2`

	// crowdedSQL finds the next job that has more rows than $2.
	crowdedSQL        = `SELECT job_id FROM cron_run_logs WHERE job_id > $1 GROUP BY job_id HAVING count(*) > $2 ORDER BY job_id LIMIT 1`
	nextJobSQL        = `SELECT job_id FROM cron_run_logs WHERE job_id > $1 ORDER BY job_id LIMIT 1`
	forgottenMessages = `DELETE FROM inbox WHERE message_id {in $1} AND ended_at IS NOT NULL`
	forgottenRuns     = `DELETE FROM runs WHERE id {in $1} AND ended_at IS NOT NULL`
	forgottenSessions = `DELETE FROM sessions WHERE key {in $1} AND done_seq = last_seq
		AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.parent_key = sessions.key)
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = sessions.key AND i.seq > 0) AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_key = sessions.key AND r.seq_from > 0) RETURNING key`
	forgottenLedgerRow = `DELETE FROM cron_run_logs WHERE id {in $1} AND finished_at IS NOT NULL`
)

// oldRun is a row to delete.
type oldRun struct{ cron.Run }

func scanOld(row Row) (r oldRun, err error) {
	err = row.Scan(&r.ID, &r.Attempt, &r.JobID, (*string)(&r.Trigger), instant{&r.ScheduledFor}, &r.SessionKey)
	return r, err
}

// messages are those of the attempts of the run.
func (r oldRun) messages() []string {
	list := []string{r.ID}
	for n := 2; n <= r.Attempt+1; n++ {
		list = append(list, r.ID+"/"+strconv.Itoa(n))
	}
	return list
}

// ownSession reports whether the session was made for the run.
func (r oldRun) ownSession() bool {
	key := parseKey(r.SessionKey)
	return key.Rest == "cron:"+r.JobID+":"+string(r.Trigger)+"-"+strconv.FormatInt(millis(r.ScheduledFor), 10)
}

// ledger deletes old rows of the ledger. With each row it deletes what only this run used: its
// messages, its runs and, unless the conversation was continued, the session that was made for it,
// with its transcript. The rows are selected outside of the transaction that deletes them.
func (s Retention) ledger(ctx context.Context, p store.PruneParams) (int, error) {
	p.Limit = min(p.Most(), maxPrune)
	var old []oldRun
	err := s.db.View(ctx, "find old runs", func(ctx context.Context, tx Tx) (err error) {
		old, err = prunable(ctx, tx, &p)
		return err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	var ids, messages, sessions []string
	for _, r := range old {
		ids, messages = append(ids, r.ID), append(messages, r.messages()...)
		if r.ownSession() {
			sessions = append(sessions, r.SessionKey)
		}
	}
	return result(ctx, s.db.Update, "delete old runs", func(ctx context.Context, tx Tx) (int, error) {
		for _, text := range []string{forgottenMessages, forgottenRuns} {
			if err := tx.Later(ctx, text, nil, messages); err != nil {
				return 0, err
			}
		}
		gone, err := all(ctx, tx, forgottenSessions, scanText, sessions)
		if err != nil {
			return 0, err
		}
		if err := dropTranscripts(ctx, tx, gone); err != nil {
			return 0, err
		}
		n, err := tx.Exec(ctx, forgottenLedgerRow, ids)
		return int(n), err
	})
}

// prunable finds finished rows that are too old, and those beyond the newest ones of their jobs.
func prunable(ctx context.Context, tx Tx, p *store.PruneParams) (old []oldRun, err error) {
	if !p.Before.IsZero() {
		if old, err = all(ctx, tx, tx.PerEngine(agedSQL, agedOnSQLite), scanOld, millis(p.Before), p.Limit); err != nil {
			return nil, err
		}
	}
	if p.Keep <= 0 {
		return old, nil
	}
	have := make(map[string]bool, len(old))
	for _, r := range old {
		have[r.ID] = true
	}
	for job := ""; len(old) < p.Limit; {
		// SQLite visits one job after the other along the index.
		args := []any{job, p.Keep}
		text := tx.PerEngine(crowdedSQL, nextJobSQL)
		if text == nextJobSQL {
			args = args[:1]
		}
		found, err := one(ctx, tx, text, into(&job), args...)
		if err != nil || !found {
			return old, err
		}
		more, err := beyond(ctx, tx, job, p)
		if err != nil {
			return nil, err
		}
		for _, r := range more {
			if !have[r.ID] && len(old) < p.Limit {
				old = append(old, r)
			}
		}
	}
	return old, nil
}

// beyond reads only the index for a job with few rows.
func beyond(ctx context.Context, tx Tx, job string, p *store.PruneParams) ([]oldRun, error) {
	many, err := one(ctx, tx, `SELECT 1 FROM cron_run_logs WHERE job_id = $1 ORDER BY job_id, scheduled_for LIMIT 1 OFFSET $2`, func(Row) error { return nil }, job, p.Keep)
	if err != nil || !many {
		return nil, err
	}
	return all(ctx, tx, beyondSQL, scanOld, job, p.Keep, p.Limit)
}
