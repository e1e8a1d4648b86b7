package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

const (
	jobsMatching = ` FROM cron_jobs WHERE ` + jobsSeen + ` AND ($3 < 0 OR (CASE WHEN ` + jobFires + ` THEN 1 ELSE 0 END) = $3) AND ($4 = '' OR kind = $4)
		AND ($5 = '' OR last_state = CASE WHEN $5 = 'never' THEN '' ELSE $5 END) AND ($6 = '' OR agent = $6)`

	// The conditions of jobs, see cron.JobCondition. %late is replaced by the latest time of a fire that counts as late.
	jobFails   = `consecutive_errors > 0`
	jobPaused  = `paused_at IS NOT NULL`
	jobRuns    = `id IN (SELECT job_id FROM cron_run_logs WHERE finished_at IS NULL AND state = 'running')`
	jobInvalid = `invalid <> ''`
	jobUnsent  = `delivery_paused_at IS NOT NULL`
	jobLate    = `(` + jobFires + ` AND next_run_at <= %late OR id IN (SELECT job_id FROM cron_run_logs
		WHERE finished_at IS NULL AND state = 'queued' AND COALESCE(fire_at, scheduled_for) <= %late))`

	// PostgreSQL searches in SQL. SQLite folds the case of ASCII letters only, so the strings are compared in Go.
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
	if _, err := one(ctx, tx, `SELECT count(*)`+from, into(&p.all), args[:l.args]...); err != nil {
		return p, err
	}
	if l.after != "" {
		from += " AND " + l.after
	}
	n := len(args)
	text := `SELECT id, ` + size + from + l.order.text() + ` {limit $` + strconv.Itoa(n+1) + `} OFFSET $` + strconv.Itoa(n+2)
	args, p.offset = append(slices.Clip(args), l.f.Limit+1, max(l.f.Offset, 0)), 0
	return p, p.read(ctx, tx, text, args...)
}

// countJobs computes the counts in one pass over the jobs.
func countJobs(ctx context.Context, tx Tx, f *cron.JobFilter) (n cron.JobCounts, err error) {
	text := `SELECT count(*), count(*) FILTER (WHERE ` + strings.Join([]string{jobFails, jobPaused, jobRuns, late(jobLate), jobInvalid}, `), count(*) FILTER (WHERE `) + `)`
	_, err = one(ctx, tx, text+` FROM cron_jobs WHERE `+jobsSeen, into(&n.All, &n.Failing, &n.Paused, &n.Running, &n.Late, &n.Invalid), f.Visible, number(f.IncludeSystem))
	return n, err
}

// outcomesOf reads the latest outcomes of jobs. The rows of a job are aggregated into one string. Both engines then use a plan that reads the index of slots
// backwards for each job.
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
