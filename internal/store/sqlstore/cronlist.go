package sqlstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	// jobFires is the condition for jobs with planned fires. jobsSeen is the condition for jobs that $1 may see; $2 = 1 includes the gateway's own ones.
	jobFires = `({true enabled} AND paused_at IS NULL AND invalid = '')`
	jobsSeen = `($2 = 1 OR owner <> 'system') AND ($1 = '' OR owner = $1)`

	// jobBytes and runBytes are the bytes of the text columns of a row, for a job without its payload.
	jobBytes = `octet_length(delivery) + octet_length(alert) + octet_length(policy) + octet_length(schedule)
		+ octet_length(description) + octet_length(invalid) + octet_length(last_error) + octet_length(last_delivery_error)`
	runBytes = `octet_length(attempts) + octet_length(error) + octet_length(summary) + octet_length(delivery_error)`

	// mostCounted bounds the count of ledger rows: counting millions would make every list slow.
	mostCounted = 100_000
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
		out.Total = max(p.all, p.total)
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

// idPage is one page of a list. It holds only the rows that it returns, within its limit and the byte bound of a read.
type idPage struct {
	limit, offset int // 0 = no limit
	texts         int // the number of further columns that are searched for find
	find          string
	most          int // counted rows; 0 = all

	total int
	ids   []string
	more  bool // more rows follow the page
	all   int  // as counted by another statement
}

// read reads the rows of a query: an id, the bytes of the row (negative for a row before the page), and the strings that are searched.
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
		p.total++
		if p.most > 0 && p.total >= p.most {
			return ErrEnough
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

// firstDue is the earliest time at which a job or a retry becomes due. Each half reads the first entry of an index.
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
