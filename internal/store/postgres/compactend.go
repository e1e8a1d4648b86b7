package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

// runningCompactSQL locks the compact runs that run under their claim, and passes over those that another transaction has locked. Parameters:
// $1 clock, $2 runs, $3 nodes.
const runningCompactSQL = `
SELECT n.i, l.entries, ` + logColumns + `
FROM ` + numbersSQL + ` CROSS JOIN LATERAL (SELECT i, ($2::text[])[i] AS run, ($3::text[])[i] AS node OFFSET 0) n JOIN cron_run_logs l ON l.id = n.run
WHERE l.compact = 1 AND l.state = 'running' AND l.node = n.node
	AND EXISTS (SELECT 1 FROM nodes o WHERE o.id = n.node AND o.lease_until > ` + nowSQL + `)
FOR UPDATE OF l SKIP LOCKED`

// finishCompactGroup ends compact runs that have succeeded: in one statement those whose start is remembered, then the others in one transaction.
func (s *Store) finishCompactGroup(ctx context.Context, list []*finishOp) ([]bool, error) {
	done := make([]bool, len(list))
	if err := s.finishBegun(ctx, list, done); err != nil {
		return done, err
	}
	var (
		rest   []*finishOp
		places []int
	)
	for i, e := range list {
		if !done[i] {
			rest, places = append(rest, e), append(places, i)
		}
	}
	if len(rest) == 0 {
		return done, nil
	}
	a := newFinishCronOps(s, rest)
	a.compact = true
	err := s.readThenWrite(ctx, a.read, a.write)
	for k, i := range places {
		done[i] = a.done[k]
	}
	return done, err
}

func (a *finishCronOps) readCompact(b *pgx.Batch) {
	b.Queue(runningCompactSQL, a.s.clock(), column(a.list, func(e *finishOp) string { return e.p.RunID }),
		column(a.list, func(e *finishOp) string { return e.p.Node })).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				i       int
				entries int64
				v       logRow
			)
			if err := rows.Scan(append([]any{&i, &entries}, v.targets()...)...); err != nil {
				return err
			}
			r, err := v.logged()
			if err != nil {
				return err
			}
			a.held[i-1], a.rows[r.ID], a.list[i-1].opened = true, r, entries
		}
		return rows.Err()
	})
}

// queueCompact queues the outgoing messages of ends, and makes their results, which count when the transaction is committed.
func (a *finishCronOps) queueCompact(b *pgx.Batch, ours []int, list []*finishOp) {
	some := false
	for _, e := range list {
		some = some || len(e.p.Outgoing) > 0
	}
	if some {
		b.Queue(enqueueSQL, a.s.clock(), joined(list, func(e *finishOp) string { return e.outgoing }))
	}
	now := fromMillis(a.nowMs)
	for k, e := range list {
		e.out = store.Finished{EndedAt: now, Released: true, Entries: numbered(e.p.Transcript, e.opened+int64(len(e.p.Transcript)), now)}
		a.done[ours[k]] = true
	}
}

// finishCompact ends a compact run; grouped when it has. After any other result the run is expanded.
func (e *finishOp) finishCompact(ctx context.Context) (how commitResult, err error) {
	if !store.CompactFinish(&e.p) {
		return single, e.s.do(ctx, "expanding a run", func(ctx context.Context) error { return e.s.expandNow(ctx, e.s.turns, e.p.Session) })
	}
	if e.answer, err = store.EncodeCompact(cleaned(e.p.Transcript), true); err != nil {
		return single, err
	}
	if e.fitsGroup() {
		if how, err = e.s.compactFinishes.do(ctx, e); err != nil || how == grouped {
			return how, err
		}
	}
	e.out = store.Finished{}
	return how, e.s.do(ctx, "expanding a run", func(ctx context.Context) error { return e.s.expandNow(ctx, e.s.turns, e.p.Session) })
}
