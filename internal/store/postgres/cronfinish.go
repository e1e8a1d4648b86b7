package postgres

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	// runningSQL returns the numbers of the proved claims whose run is running under the claim. Parameters: $1 runs, $2 sessions, $3 nodes,
	// $4 epochs.
	runningSQL = `
SELECT n.i FROM ` + numbersSQL + ` CROSS JOIN LATERAL (SELECT i, ($1::text[])[i] AS run OFFSET 0) n JOIN runs r ON r.id = n.run
WHERE n.i = ANY (` + heldSQL + `) AND r.state = 'running'
	AND r.session_key = ($2::text[])[n.i] AND r.owner = ($3::text[])[n.i] AND r.epoch = ($4::bigint[])[n.i]`

	// narrowSQL sets the numbers of the claims that the next statement reads with heldSQL.
	narrowSQL = `SELECT set_config('laneway.held', $1, true)`
)

// queueBegins queues the ledger updates of starts, and reads their jobs: in a group that costs one statement for all of them.
func (s *Store) queueBegins(ctx context.Context, tx sqlstore.Tx, list []*startOp) error {
	return s.Cron.BeginAttempts(ctx, tx, column(list, func(g *startOp) store.StartParams { return g.p }), func(i int, j cron.Job) { list[i].out.Job = &j })
}

// furtherAttempt reports whether a start continues a row of the ledger, which has to be read.
func (g *startOp) furtherAttempt() bool { return g.p.Cron != nil && g.p.Cron.Attempt > 1 }

// finishCronOps are ends of attempts that share a transaction of two round trips: the first reads jobs and ledger rows, the second writes
// the results. A group leaves out an attempt whose job is locked by another transaction or is the job of another attempt of the group.
type finishCronOps struct {
	s    *Store
	list []*finishOp
	ends *sqlstore.Ends
	held []bool // the ends whose claim holds and whose run is running
	done []bool
}

// finishCronGroup is one transaction for attempts of different sessions and jobs.
func (s *Store) finishCronGroup(ctx context.Context, list []*finishOp) ([]bool, error) {
	a := finishCronOps{s: s, list: list, held: make([]bool, len(list)), done: make([]bool, len(list))}
	err := s.readThenWrite(ctx, func(b *pgx.Batch) error { return a.read(ctx, b) }, func(b *pgx.Batch) error { return a.write(ctx, b) })
	return a.done, err
}

func (a *finishCronOps) read(ctx context.Context, b *pgx.Batch) (err error) {
	tx := a.s.queued(b)
	if a.ends, err = a.s.Cron.LockEnds(ctx, tx, column(a.list, func(e *finishOp) *cron.AttemptEnd { return e.p.Cron }), false); err != nil {
		return err
	}
	claims := column(a.list, func(e *finishOp) store.Claim { return e.p.Claim })
	a.s.holdAll(b, claims)
	b.Queue(runningSQL, column(a.list, func(e *finishOp) string { return e.p.RunID }), column(claims, func(c store.Claim) string { return c.Session.String() }),
		column(claims, func(c store.Claim) string { return c.Node }), column(claims, func(c store.Claim) int64 { return c.Epoch })).
		Query(func(rows pgx.Rows) error {
			var i int
			_, err := pgx.ForEachRow(rows, []any{&i}, func() error {
				a.held[i-1] = true
				return nil
			})
			return err
		})
	return a.ends.Read(ctx, tx)
}

func (a *finishCronOps) write(ctx context.Context, b *pgx.Batch) error {
	var (
		list  []*finishOp
		ours  []int
		nodes = map[int]string{}
	)
	for i, ready := range a.ends.Ready(a.held) {
		if ready {
			list, ours = append(list, a.list[i]), append(ours, i)
			nodes[i] = a.list[i].p.Node
		}
	}
	if len(list) == 0 {
		return nil
	}
	sql := finishOneSQL
	if len(list) > 1 {
		sql = finishManySQL
		numbers := make([]string, len(list))
		for i := range list {
			numbers[i] = strconv.Itoa(i + 1)
		}
		b.Queue(narrowSQL, strings.Join(numbers, ","))
	}
	b.Queue(sql, a.s.finishArgs(list)...).Query(func(rows pgx.Rows) error {
		ended := make([]bool, len(list))
		err := scanResults(rows, list, ended, (*finishOp).scan)
		for i, n := range ours {
			a.done[n] = ended[i]
		}
		return err
	})
	return a.ends.Write(ctx, a.s.queued(b), nodes)
}

// attempt ends the attempt of a cron run alone.
func (e *finishOp) attempt(ctx context.Context) error {
	var ends *sqlstore.Ends
	read := func(b *pgx.Batch) (err error) {
		tx := e.s.queued(b)
		if ends, err = e.s.Cron.LockEnds(ctx, tx, []*cron.AttemptEnd{e.p.Cron}, true); err != nil {
			return err
		}
		e.s.fence(b, e.p.Claim)
		return ends.Read(ctx, tx)
	}
	write := func(b *pgx.Batch) error {
		e.queue(b)
		return ends.Write(ctx, e.s.queued(b), map[int]string{0: e.p.Node})
	}
	return e.s.readThenWrite(ctx, read, write)
}

// requeueAttempt lets the ledger row wait again with its message, when the caller did not name the attempt.
func (e *finishOp) requeueAttempt(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	e.s.fence(b, e.p.Claim)
	e.queue(b)
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	return sqlstore.WaitAgain(ctx, e.s.shared(tx), []string{e.p.RunID})
}

// fitsGroup reports whether an end may join a group: a large one would delay the others.
func (e *finishOp) fitsGroup() bool {
	n := len(e.outgoing) + len(e.transcript)
	if e.p.Cron != nil {
		n += min(len(e.p.Cron.Summary), cron.MaxSummary) + len(e.p.Cron.Error)
	}
	return n <= sqlstore.MaxGrouped
}
