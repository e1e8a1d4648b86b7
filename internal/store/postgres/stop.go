package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// stopRunsSQL asks the runs that a stop selects; the first requester stays recorded. $1 session, $2 scope, $3 message id, $4 requester. A
// message that a run has taken selects the run.
const stopRunsSQL = `
WITH v AS (
	SELECT id FROM runs
	WHERE session_key = $1 AND ended_at IS NULL AND state IN ('running', 'yielded') AND CASE $2::text
		WHEN 'all' THEN true
		WHEN 'run' THEN id = COALESCE((
			SELECT run_id FROM inbox WHERE message_id = $3 AND session_key = $1 AND state = 'running'), $3)
		ELSE stop_by = '' END
	ORDER BY seq_from LIMIT CASE WHEN $2 = 'one' THEN 1 END
), r AS (
	UPDATE runs SET stop_by = CASE WHEN stop_by = '' THEN $4 ELSE stop_by END
	WHERE id IN (SELECT id FROM v) RETURNING id, owner, seq_from
)
SELECT id, owner FROM r ORDER BY seq_from`

// endStoppedSQL ends the waiting messages that a stop selects; $8 scope, $9 message id, $10 whether no run was selected: scope one selects
// a waiting message only then.
const endStoppedSQL = `WITH v AS (
	SELECT seq FROM inbox
	WHERE session_key = $2 AND ended_at IS NULL AND state IN ('held', 'waiting') AND CASE $8::text
		WHEN 'all' THEN true
		WHEN 'run' THEN message_id = $9
		ELSE $10::boolean END
	ORDER BY seq LIMIT CASE WHEN $8 = 'one' THEN 1 END` + endTail

// Stop records a stop, see store.Inbox. It uses a control connection: no pooled connection, however busy, delays it.
func (s *Store) Stop(ctx context.Context, p store.StopParams) (store.Stopped, error) {
	args, err := s.endArgs(store.EndParams{Session: p.Session, Outcome: chat.OutcomeStopped, Reason: p.Reason})
	if err != nil {
		return store.Stopped{}, err
	}
	var out store.Stopped
	err = s.control(ctx, "stopping", s.ctrl, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			out = store.Stopped{}
			return s.stop(ctx, tx, p, args, &out)
		})
	})
	return out, err
}

// stop takes two round trips, because whether a waiting message is selected depends on whether a run was.
func (s *Store) stop(ctx context.Context, tx pgx.Tx, p store.StopParams, args []any, out *store.Stopped) error {
	key, scope := p.Session.String(), string(p.Scope)
	b := &pgx.Batch{}
	b.Queue(lockSQL, key)
	b.Queue(stopRunsSQL, key, scope, p.MessageID, clean(p.By)).Query(collect(&out.Running, scanRunningRun))
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(endStoppedSQL, append(slices.Clip(args), scope, p.MessageID, len(out.Running) == 0)...).
		Query(collect(&out.Waiting, scanWaiting))
	b.Queue(settleSQL, s.clock(), key, p.Scope == store.StopAll).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&out.Cutoff); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	if p.Scope != store.StopAll {
		out.Cutoff = 0
	}
	return sqlstore.EndRunsOf(ctx, s.shared(tx), out.Waiting)
}

func scanRunningRun(row pgx.CollectableRow) (store.RunningRun, error) {
	var r store.RunningRun
	err := row.Scan(&r.RunID, &r.Node)
	return r, err
}
