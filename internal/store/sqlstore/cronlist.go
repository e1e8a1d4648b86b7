package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	// jobFires is the condition for jobs with planned fires. jobsSeen is the condition for jobs
	// that $1 may see; $2 = 1 includes the gateway's own ones.
	jobFires = `({true enabled} AND paused_at IS NULL AND invalid = '')`
	jobsSeen = `($2 = 1 OR owner <> 'system') AND ($1 = '' OR owner = $1)`

	// jobBytes and runBytes are the bytes of the text columns of a row, for a job without its
	// payload.
	jobBytes = `octet_length(delivery) + octet_length(alert) + octet_length(policy) + octet_length(schedule)
		+ octet_length(description) + octet_length(invalid) + octet_length(last_error) + octet_length(last_delivery_error)`
	runBytes = `octet_length(attempts) + octet_length(error) + octet_length(summary) + octet_length(delivery_error)`
)

// Jobs lists jobs; see cron.JobStore.
func (s Cron) Jobs(ctx context.Context, f cron.JobFilter) (out cron.JobPage, err error) {
	return result(ctx, s.db.List, "list jobs", func(ctx context.Context, tx Tx) (out cron.JobPage, err error) {
		var jobs, changes int64
		if _, err := one(ctx, tx, `SELECT count(*), CAST(COALESCE(sum(list_mark), 0) AS bigint) FROM cron_jobs WHERE `+jobsSeen, into(&jobs, &changes), f.Visible, number(f.IncludeSystem)); err != nil {
			return out, err
		}
		out.Revision = "r" + strconv.FormatInt(jobs, 36) + "." + strconv.FormatInt(changes, 36)
		l, err := newJobList(tx, &f)
		if err != nil {
			return out, err
		}
		p, err := l.read(ctx, tx)
		if err != nil {
			return out, err
		}
		out.Total, out.More = p.counted()
		if out.Jobs, err = s.jobsNamed(ctx, tx, p.ids, f.WithoutPayload); err != nil {
			return out, err
		}
		if n := len(out.Jobs); p.more && n > 0 {
			out.Next = f.PlaceOf(&out.Jobs[n-1])
		}
		if f.Counts {
			if out.Counts, err = countJobs(ctx, tx, &f); err != nil {
				return out, err
			}
		}
		if f.Outcomes > 0 {
			out.Outcomes, err = outcomesOf(ctx, tx, p.ids, min(f.Outcomes, cron.MaxOutcomes))
		}
		return out, err
	})
}

// number is a boolean as a number.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s Cron) jobsNamed(ctx context.Context, tx Tx, ids []string, withoutPayload bool) ([]cron.Job, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	text := readJob + `id {in $1}`
	if withoutPayload {
		text = strings.Replace(text, " payload,", " '"+cron.PayloadLeftOut+"',", 1)
	}
	scan := s.scanner()
	list, err := all(ctx, tx, text, func(r Row) (cron.Job, error) {
		j, err := scan(r)
		return j.Job, err
	}, ids)
	return inOrder(list, ids, func(j *cron.Job) string { return j.ID }), err
}

// inOrder sorts rows that were read by id into the order of ids.
func inOrder[T any](list []T, ids []string, id func(*T) string) []T {
	at := make(map[string]int, len(ids))
	for i, v := range ids {
		at[v] = i
	}
	slices.SortFunc(list, func(a, b T) int { return at[id(&a)] - at[id(&b)] })
	return list
}

// idPage is one page of a list. It holds only the rows that it returns, within its limit and the
// byte bound of a read.
type idPage struct {
	limit, offset int  // 0 = no limit
	paged         bool // the query returns only the page
	texts         int  // the number of further columns that are searched for find
	find          string
	most          int // how far rows are counted; 0 = all

	total int // at most most + 1; set by the caller when the query returns only the page
	ids   []string
	more  bool // more rows follow the page
}

// counted returns how many rows the list has, and whether there are more.
func (p *idPage) counted() (total int, more bool) {
	if p.most > 0 && p.total > p.most {
		return p.most, true
	}
	return p.total, false
}

// read reads the rows of a query: an id, the bytes of the row (negative for a row before the page),
// and the strings that are searched.
func (p *idPage) read(ctx context.Context, tx Tx, text string, args ...any) error {
	var (
		id     string
		size   int
		full   bool
		passed int
		budget = store.NewBudget(0)
		texts  = make([]string, p.texts)
		dest   = []any{&id, &size}
	)
	for i := range texts {
		dest = append(dest, &texts[i])
	}
	return tx.Query(ctx, text, func(r Row) error {
		if err := r.Scan(dest...); err != nil {
			return err
		}
		if p.texts > 0 && !strings.Contains(strings.ToLower(id+"\x00"+strings.Join(texts, "\x00")), p.find) {
			return nil
		}
		if counted := p.total; !p.paged {
			if p.total++; p.most > 0 && counted >= p.most {
				return ErrEnough
			}
		}
		if passed < max(p.offset, 0) || size < 0 {
			passed++
			return nil
		}
		if full = full || p.limit > 0 && len(p.ids) >= p.limit || !budget.Take(size); full {
			p.more = true
			return nil
		}
		p.ids = append(p.ids, id)
		return nil
	}, args...)
}

// Summary counts for status pages; see cron.JobStore.
func (s Cron) Summary(ctx context.Context, visible string) (out cron.Summary, err error) {
	const (
		jobs   = `(SELECT count(*) FROM cron_jobs WHERE owner <> 'system' AND ($1 = '' OR owner = $1)`
		due    = ` FROM cron_jobs WHERE ` + jobPlanned + ` AND next_run_at <= {now} AND paused_at IS NULL AND ($1 = '' OR owner = $1))`
		active = ` FROM cron_run_logs WHERE finished_at IS NULL AND ($1 = '' OR owner = $1)`
		waits  = active + ` AND state = 'queued' AND COALESCE(fire_at, scheduled_for) <= {now})`
	)
	err = s.db.View(ctx, "count jobs", func(ctx context.Context, tx Tx) error {
		var (
			ready, waiting  int
			oldest, longest time.Time
			now             time.Time
		)
		out = cron.Summary{OldestDue: -1}
		_, err := one(ctx, tx, `SELECT `+jobs+`), `+jobs+` AND paused_at IS NOT NULL), (SELECT count(*)`+active+` AND state = 'running'),
			(SELECT count(*)`+waits+`, (SELECT min(COALESCE(fire_at, scheduled_for))`+waits,
			into(&out.Jobs, &out.Paused, &out.Running, &waiting, instant{&longest}), visible)
		if err != nil {
			return err
		}
		_, err = one(ctx, tx, `SELECT (SELECT count(*)`+due+`, (SELECT min(next_run_at)`+due+`, {now}, `+firstDue(jobPlanned+` AND ($1 = '' OR owner = $1)`, `($1 = '' OR owner = $1)`),
			into(&ready, instant{&oldest}, instant{&now}, instant{&out.NextWake}), visible)
		out.Backlog = ready + waiting
		if first := cron.Earlier(oldest, longest); !first.IsZero() {
			out.OldestDue = now.Sub(first)
		}
		return err
	})
	return out, err
}

// firstDue is the earliest time at which a job or a retry becomes due. Each half reads the first
// entry of an index.
func firstDue(jobs, runs string) string {
	return `(SELECT min(at) FROM (
		SELECT at FROM (SELECT next_run_at AS at FROM cron_jobs WHERE ` + jobs + ` ORDER BY next_run_at, id LIMIT 1) job
		UNION ALL SELECT at FROM (SELECT next_attempt_at AS at FROM cron_run_logs WHERE next_attempt_at IS NOT NULL AND ` + runs + ` ORDER BY next_attempt_at LIMIT 1) retry) first)`
}

// Run reads one row of the ledger; chat.ErrNotFound.
func (s Cron) Run(ctx context.Context, id, visible string) (out cron.Run, err error) {
	err = s.db.View(ctx, "read a run", func(ctx context.Context, tx Tx) error {
		rows, err := readRuns(ctx, tx, []string{id})
		if err != nil {
			return err
		}
		r, known := rows[id]
		if !known || visible != "" && r.Owner != visible {
			return chat.ErrNotFound
		}
		out = r.Run
		return nil
	})
	return out, err
}

const (
	jobsMatching = ` FROM cron_jobs WHERE ` + jobsSeen + ` AND ($3 < 0 OR (CASE WHEN ` + jobFires + ` THEN 1 ELSE 0 END) = $3) AND ($4 = '' OR kind = $4)
		AND ($5 = '' OR last_state = CASE WHEN $5 = 'never' THEN '' ELSE $5 END) AND ($6 = '' OR agent = $6)`

	// The conditions of jobs, see cron.JobCondition. %late is replaced by the latest time of a fire
	// that counts as late.
	jobFails   = `consecutive_errors > 0`
	jobPaused  = `paused_at IS NOT NULL`
	jobRuns    = `id IN (SELECT job_id FROM cron_run_logs WHERE finished_at IS NULL AND state = 'running')`
	jobInvalid = `invalid <> ''`
	jobUnsent  = `delivery_paused_at IS NOT NULL`
	jobLate    = `(` + jobFires + ` AND next_run_at <= %late OR id IN (SELECT job_id FROM cron_run_logs
		WHERE finished_at IS NULL AND state = 'queued' AND COALESCE(fire_at, scheduled_for) <= %late))`

	// PostgreSQL searches in SQL. SQLite folds the case of ASCII letters only, so the strings are
	// compared in Go.
	jobsFound = `(position(%s IN lower(id)) > 0 OR position(%s IN lower(name)) > 0 OR position(%s IN lower(display_name)) > 0
		OR position(%s IN lower(key)) > 0 OR position(%s IN lower(description)) > 0)`
	jobTexts = `, name, display_name, key, description`
)

// late replaces %late in a condition by the time before which a fire is late.
func late(condition string) string {
	return strings.ReplaceAll(condition, "%late", `({now} - `+strconv.FormatInt(cron.LateAfter.Milliseconds(), 10)+`)`)
}

// jobList is the query of a list of jobs.
type jobList struct {
	f     *cron.JobFilter
	c     conditions
	order listOrder
	texts string // further columns that are searched in Go
	after string // the condition for rows after the given place; "" = all rows
	args  int    // the number of parameters before those of after
}

func newJobList(tx Tx, f *cron.JobFilter) (*jobList, error) {
	fires := -1
	if f.Enabled != nil {
		fires = number(*f.Enabled)
	}
	l := &jobList{f: f, order: jobOrder(tx, f)}
	c := &l.c
	c.args = []any{f.Visible, number(f.IncludeSystem), fires, string(f.Kind), f.LastStateWord(), f.Agent}
	c.add(len(f.IDs) > 0, "id {in %s}", f.IDs)
	if f.Target != "" {
		to, chatID := f.TargetTexts()
		has := tx.PerEngine("position(%s IN delivery) > 0", "instr(delivery, %s) > 0")
		c.list = append(c.list, "("+strings.ReplaceAll(has, "%s", c.arg(to))+" OR "+strings.ReplaceAll(has, "%s", c.arg(chatID))+")")
	}
	condition, known := map[cron.JobCondition]string{
		"": "", cron.JobsFailing: jobFails, cron.JobsPaused: jobPaused, cron.JobsRunning: jobRuns, cron.JobsLate: late(jobLate), cron.JobsInvalid: jobInvalid,
		cron.JobsUnsent: jobUnsent,
	}[f.Condition]
	if !known {
		return nil, chat.Errorf(chat.CodeInvalid, "jobs have no condition %q", f.Condition)
	}
	if condition != "" {
		c.list = append(c.list, condition)
	}
	if f.Query != "" {
		l.texts = tx.PerEngine("", jobTexts)
		c.add(l.texts == "", jobsFound, strings.ToLower(f.Query))
	}
	if l.args = len(c.args); f.After == "" {
		return l, nil
	}
	at, err := f.Place()
	if err != nil {
		return nil, err
	}
	l.after, err = l.order.beyond(c, at)
	return l, err
}

func (l *jobList) from() string {
	return strings.Join(append([]string{jobsMatching}, l.c.list...), " AND ")
}

// read reads the ids of the page, and counts the list.
func (l *jobList) read(ctx context.Context, tx Tx) (p idPage, err error) {
	p = idPage{limit: l.f.Limit, offset: l.f.Offset, texts: strings.Count(l.texts, ","), find: strings.ToLower(l.f.Query)}
	if l.f.Limit > 0 {
		p.most = chat.CountTo(0, max(l.f.Offset, 0)+l.f.Limit)
	}
	size, from, args := jobBytes, l.from(), l.c.args
	if !l.f.WithoutPayload {
		size = `octet_length(payload) + ` + jobBytes
	}
	if l.texts != "" || l.f.Limit <= 0 {
		if l.after != "" {
			size = `CASE WHEN ` + l.after + ` THEN ` + size + ` ELSE -1 END`
		}
		return p, p.read(ctx, tx, `SELECT id, `+size+l.texts+from+l.order.text(), args...)
	}
	if p.total, err = countTo(ctx, tx, from, p.most, args[:l.args]...); err != nil {
		return p, err
	}
	if l.after != "" {
		from += " AND " + l.after
	}
	n := len(args)
	text := `SELECT id, ` + size + from + l.order.text() + ` {limit $` + strconv.Itoa(n+1) + `} OFFSET $` + strconv.Itoa(n+2)
	args, p.offset, p.paged = append(slices.Clip(args), l.f.Limit+1, max(l.f.Offset, 0)), 0, true
	return p, p.read(ctx, tx, text, args...)
}

// countJobs computes the counts in one pass over the jobs.
func countJobs(ctx context.Context, tx Tx, f *cron.JobFilter) (n cron.JobCounts, err error) {
	text := `SELECT count(*), count(*) FILTER (WHERE ` + strings.Join([]string{jobFails, jobPaused, jobRuns, late(jobLate), jobInvalid}, `), count(*) FILTER (WHERE `) + `)`
	_, err = one(ctx, tx, text+` FROM cron_jobs WHERE `+jobsSeen, into(&n.All, &n.Failing, &n.Paused, &n.Running, &n.Late, &n.Invalid), f.Visible, number(f.IncludeSystem))
	return n, err
}

// outcomesOf reads the latest outcomes of jobs. The rows of a job are aggregated into one string.
// Both engines then use a plan that reads the index of slots backwards for each job.
func outcomesOf(ctx context.Context, tx Tx, ids []string, most int) (map[string][]cron.RunOutcome, error) {
	const text = `SELECT id, (SELECT string_agg(row_text, ',' ORDER BY slot DESC) FROM (
			SELECT scheduled_for AS slot, scheduled_for || ' ' || state || ' ' || duration_ms || ' ' || COALESCE(reason, '') AS row_text FROM cron_run_logs l
			WHERE l.job_id = cron_jobs.id AND l.finished_at IS NOT NULL ORDER BY l.scheduled_for DESC, l.trigger DESC {limit $2}) latest)
		FROM cron_jobs WHERE id {in $1}`
	out := make(map[string][]cron.RunOutcome, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	return out, tx.Query(ctx, text, func(r Row) error {
		var id string
		var rows *string
		if err := r.Scan(&id, &rows); err != nil || rows == nil {
			return err
		}
		for row := range strings.SplitSeq(*rows, ",") {
			var slot, took int64
			var o cron.RunOutcome
			part := strings.SplitN(row, " ", 4)
			if _, err := fmt.Sscan(part[0]+" "+part[2], &slot, &took); err != nil {
				return fmt.Errorf("an outcome of a job: %w", err)
			}
			o.Slot, o.State, o.Duration, o.Reason = fromMillis(slot), cron.RunState(part[1]), lasting(took), cron.Reason(part[3])
			out[id] = append(out[id], o)
		}
		return nil
	}, ids, most)
}

// listOrder is the order of a list: by a value, with rows without a value last, then by id.
type listOrder struct {
	value  string // never NULL; "" = by id alone
	absent string // the condition that a row has no value
	number bool   // the value is a number
	down   bool
}

// jobOrder is the order of a list of jobs.
func jobOrder(tx Tx, f *cron.JobFilter) listOrder {
	numbers := map[string]string{"updatedAt": "updated_at", "lastRunAt": "last_run_at", "failing": "consecutive_errors"}
	switch column := cmp.Or(numbers[f.SortBy], "next_run_at"); f.SortBy {
	case "name":
		return listOrder{value: tx.PerEngine(`name COLLATE "C"`, `name`), absent: `name = ''`, down: f.Descending}
	case "id":
		return listOrder{down: f.Descending}
	default:
		return listOrder{value: `COALESCE(` + column + `, 0)`, absent: `COALESCE(` + column + `, 0) = 0`, number: true, down: f.Descending}
	}
}

func (o listOrder) text() string {
	direction := ""
	if o.down {
		direction = " DESC"
	}
	if o.value == "" {
		return ` ORDER BY id` + direction
	}
	return ` ORDER BY CASE WHEN ` + o.absent + ` THEN 1 ELSE 0 END, ` + o.value + direction + `, id`
}

// beyond is the condition for the rows after a place.
func (o listOrder) beyond(c *conditions, at cron.JobPlace) (string, error) {
	than := " > "
	if o.down {
		than = " < "
	}
	id := c.arg(at.ID)
	if o.value == "" {
		return "id" + than + id, nil
	}
	if at.Absent {
		return "(" + o.absent + " AND id > " + id + ")", nil
	}
	var value any = at.Value
	if o.number {
		n, err := strconv.ParseInt(at.Value, 10, 64)
		if err != nil {
			return "", chat.Errorf(chat.CodeInvalid, "the cursor cannot be read: begin at the first page")
		}
		value = n
	}
	v := c.arg(value)
	return "(" + o.absent + " OR " + o.value + than + v + " OR " + o.value + " = " + v + " AND id > " + id + ")", nil
}
