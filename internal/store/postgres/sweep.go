package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// keepDeadNode is how long the row of a dead node is kept. The row distinguishes a crash from a clean stop, which deletes it.
const keepDeadNode = 10 * time.Minute

// ownerlessSQL is the condition that no live node owns a session s. While the server itself has been up for less than a lease, no node
// counts as dead: owners could not extend their leases while the server was down. (An injected clock has no server start.)
const ownerlessSQL = `NOT EXISTS (
	SELECT 1 FROM nodes n WHERE n.id = s.owner AND (n.lease_until > ` + nowSQL + ` OR $1::bigint IS NULL
		AND n.lease_until > (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint - n.lease_ms
		AND now() < pg_postmaster_start_time() + n.lease_ms * interval '1 millisecond'))`

const (
	// orphansSQL locks sessions to be taken over, the longest waiting first. Rows that another sweeper has locked are passed over.
	orphansSQL = `
WITH w AS (
	SELECT session_key, min(accepted_at) AS since, sum(octet_length(body)) AS size FROM inbox WHERE ended_at IS NULL GROUP BY session_key
)
SELECT s.key, w.size FROM sessions s JOIN w ON w.session_key = s.key
WHERE s.debounce_until <= ` + nowSQL + ` AND ` + ownerlessSQL + ` AND ` + store.NotHeld + `
	AND ($3::text[] IS NULL OR s.principal = '` + cron.SystemOwner + `' OR s.agent = ANY($3))
ORDER BY w.since, s.key LIMIT $2 FOR UPDATE OF s SKIP LOCKED`

	// takeSQL checks again, now that the rows are locked, and takes the sessions that still have no live owner.
	takeSQL = `
UPDATE sessions s SET owner = $2, epoch = s.epoch + 1, updated_at = ` + nowSQL + `
WHERE s.key = ANY($3::text[]) AND s.done_seq < s.last_seq AND ` + ownerlessSQL + `
RETURNING s.key`

	// interruptSQL ends what ran under the old owners. Their messages are held, because they have a place already. It counts as a crash
	// unless the owner's row is missing: a clean stop deletes it.
	interruptSQL = `
WITH r AS (
	UPDATE runs r SET state = CASE WHEN r.state = 'stopping' THEN 'stopped' ELSE 'interrupted' END, ended_at = ` + nowSQL + `,
		crashes = r.crashes + CASE WHEN r.state = 'running' AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = r.owner) THEN 1 ELSE 0 END
	WHERE r.session_key = ANY($2::text[]) AND r.ended_at IS NULL
), i AS (
	UPDATE inbox SET state = 'held'
	WHERE session_key = ANY($2::text[]) AND ended_at IS NULL AND state = 'running'
	RETURNING session_key
)
UPDATE sessions s SET waiting = s.waiting + c.n
FROM (SELECT session_key, count(*) AS n FROM i GROUP BY session_key) c WHERE s.key = c.session_key`

	takenSessionsSQL = `
SELECT s.key, COALESCE(s.owner, ''), s.epoch, s.run_limit, s.mode, s.principal, s.stop_seq, s.last_seq FROM sessions s
WHERE s.key = ANY($1::text[])
ORDER BY (SELECT min(i.accepted_at) FROM inbox i WHERE i.session_key = s.key AND i.ended_at IS NULL), s.key`

	takenMessagesSQL = `
SELECT ` + waitingColumns + ` FROM inbox i
WHERE i.session_key = ANY($1::text[]) AND i.ended_at IS NULL ORDER BY i.session_key, i.seq`

	takenRunsSQL = `
SELECT ` + runColumns + ` FROM runs r
WHERE r.id IN (SELECT i.run_id FROM inbox i WHERE i.session_key = ANY($1::text[]) AND i.ended_at IS NULL)`

	// forgetSQL deletes the rows of nodes that died long ago, unless they still have work: without its row the takeover would look like one
	// after a clean stop.
	forgetSQL = `
DELETE FROM nodes n WHERE n.lease_until <= ` + nowSQL + ` - $2::bigint
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.owner = n.id AND r.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE i.ended_at IS NULL AND s.owner = n.id)`
)

// Sweep takes over sessions that no live node owns, see store.Inbox. It takes one round trip when there is nothing to do. A dead node gets
// chat.ErrFenced.
func (s *Store) Sweep(ctx context.Context, p store.SweepParams) ([]store.Taken, error) {
	var taken []store.Taken
	err := s.do(ctx, "sweeping", func(ctx context.Context) error {
		taken = nil
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			taken, err = s.sweep(ctx, tx, p)
			return err
		})
	})
	return taken, err
}

func (s *Store) sweep(ctx context.Context, tx pgx.Tx, p store.SweepParams) ([]store.Taken, error) {
	var (
		orphans, keys []string
		waiting       []sized
	)
	b := &pgx.Batch{}
	b.Queue(aliveSQL, s.clock(), p.Node)
	b.Queue(endStoppingOfDeadSQL, s.clock())
	b.Queue(forgetSQL, s.clock(), keepDeadNode.Milliseconds())
	b.Queue(orphansSQL, s.clock(), p.Limit, p.Agents).Query(collect(&waiting, pgx.RowToStructByPos[sized]))
	if err := send(ctx, tx, b); err != nil || len(waiting) == 0 {
		return nil, err
	}
	for budget, i := store.NewBudget(0), 0; i < len(waiting) && budget.Take(waiting[i].Bytes); i++ {
		orphans = append(orphans, waiting[i].Key)
	}
	b = &pgx.Batch{}
	b.Queue(takeSQL, s.clock(), p.Node, orphans).Query(collect(&keys, scanText))
	if err := send(ctx, tx, b); err != nil || len(keys) == 0 {
		return nil, err
	}
	b = &pgx.Batch{}
	b.Queue(interruptSQL, s.clock(), keys)
	var (
		r takenRows
	)
	r.queue(b, keys)
	b.Queue(forgetSQL, s.clock(), keepDeadNode.Milliseconds()) // whose last work this was
	if err := send(ctx, tx, b); err != nil {
		return nil, err
	}
	return r.assemble(), sqlstore.WaitAgain(ctx, s.shared(tx), column(r.messages, func(m store.Waiting) string { return m.MessageID }))
}

// sized is a session with the bytes of its unfinished messages.
type sized struct {
	Key   string
	Bytes int
}

// takenRows are the rows behind a list of store.Taken.
type takenRows struct {
	sessions []store.Taken
	messages []store.Waiting
	runs     []store.Run
}

func (r *takenRows) queue(b *pgx.Batch, keys []string) {
	b.Queue(takenSessionsSQL, keys).Query(collect(&r.sessions, scanTaken))
	b.Queue(takenMessagesSQL, keys).Query(collect(&r.messages, scanWaiting))
	b.Queue(takenRunsSQL, keys).Query(collect(&r.runs, scanRun))
}

// assemble gives each session its messages and runs; sessions without messages are left out.
func (r *takenRows) assemble() []store.Taken {
	messages := map[chat.SessionKey][]store.Waiting{}
	for _, m := range r.messages {
		messages[m.Session] = append(messages[m.Session], m)
	}
	runs := map[string]store.Run{}
	for _, run := range r.runs {
		runs[run.ID] = run
	}
	var list []store.Taken
	for _, t := range r.sessions {
		t.Messages, t.Runs = messages[t.Session], map[string]store.Run{}
		for _, m := range t.Messages {
			if run, ok := runs[m.RunID]; ok {
				t.Runs[run.ID] = run
			}
		}
		if len(t.Messages) > 0 {
			list = append(list, t)
		}
	}
	return list
}

func scanTaken(row pgx.CollectableRow) (store.Taken, error) {
	var (
		t   store.Taken
		key string
	)
	err := row.Scan(&key, &t.Node, &t.Epoch, &t.RunLimit, &t.Mode, &t.Principal, &t.Cutoff, &t.LastSeq)
	t.Session = parseKey(key)
	return t, err
}

// hintedSQL finds messages that other nodes accepted for sessions of this one, the longest waiting session first.
func hintedSQL() string {
	return `
SELECT ` + waitingColumns + ` FROM ` + within(`
SELECT i.*, octet_length(i.body) AS page_size FROM inbox i
JOIN sessions s ON s.key = i.session_key AND s.owner = $2
WHERE i.ended_at IS NULL AND i.state IN ('held', 'waiting') AND i.node <> $2
  AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $2 AND n.lease_until > `+nowSQL+`)
ORDER BY (SELECT min(o.accepted_at) FROM inbox o WHERE o.session_key = i.session_key AND o.ended_at IS NULL), i.session_key, i.seq
LIMIT $3`, readBytes()) + ` i ORDER BY page_n`
}

// Hinted returns what other nodes accepted for sessions of this one, see store.Inbox.
func (s *Store) Hinted(ctx context.Context, nodeID string, limit int) ([]store.Taken, error) {
	var taken []store.Taken
	err := s.do(ctx, "looking for hinted messages", func(ctx context.Context) error {
		taken = nil
		rows, err := s.pool.Query(ctx, hintedSQL(), s.clock(), nodeID, max(limit, 0))
		if err != nil {
			return err
		}
		var r takenRows
		if r.messages, err = pgx.CollectRows(rows, scanWaiting); err != nil || len(r.messages) == 0 {
			return err
		}
		taken, err = s.hinted(ctx, nodeID, r)
		return err
	})
	return taken, err
}

// hinted adds sessions and runs. A session that has moved to another owner meanwhile is left out.
func (s *Store) hinted(ctx context.Context, nodeID string, r takenRows) ([]store.Taken, error) {
	keys := map[string]bool{}
	for _, m := range r.messages {
		keys[m.Session.String()] = true
	}
	list := make([]string, 0, len(keys))
	for key := range keys {
		list = append(list, key)
	}
	b := &pgx.Batch{}
	var all []store.Taken
	b.Queue(takenSessionsSQL, list).Query(collect(&all, scanTaken))
	b.Queue(takenRunsSQL, list).Query(collect(&r.runs, scanRun))
	if err := send(ctx, s.pool, b); err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Node == nodeID {
			r.sessions = append(r.sessions, t)
		}
	}
	return r.assemble(), nil
}
