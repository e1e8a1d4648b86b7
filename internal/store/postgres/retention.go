package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// joinedAhead is how far behind its run a message may lie that joined it. One that lies further is deleted a moment later on its own.
	joinedAhead = 1000

	// pruneInboxSQL searches in the order of the table, where the old rows come first: an index on ended_at would cost every end of a turn
	// an entry. Parameters: $1 the moment, $2 how many, $3 joinedAhead.
	pruneInboxSQL = `
WITH old AS MATERIALIZED (
	SELECT session_key, seq, run_id FROM inbox WHERE ended_at < $1 LIMIT $2
), ended AS MATERIALIZED (
	SELECT DISTINCT r.id, r.session_key, r.seq_from, r.seq_to FROM old o JOIN runs r ON r.id = o.run_id WHERE r.ended_at IS NOT NULL
), gone AS (
	DELETE FROM runs r USING ended e WHERE r.id = e.id
), together AS (
	DELETE FROM inbox i USING ended e WHERE i.session_key = e.session_key AND i.seq BETWEEN e.seq_from AND e.seq_to + $3::bigint
		AND i.run_id = e.id AND i.ended_at IS NOT NULL RETURNING 1
), alone AS (
	DELETE FROM inbox i USING old o WHERE i.session_key = o.session_key AND i.seq = o.seq
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = o.run_id) RETURNING 1
)
SELECT (SELECT count(*) FROM together) + (SELECT count(*) FROM alone)`

	pruneOutboxSQL = `DELETE FROM outbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM outbox WHERE done_at < $1 LIMIT $2))`
)

// pruneSessionsSQL deletes old sessions of sub-turns and compactions. The conversation of a compaction may be compacted again, so its session leaves a tombstone. A message that comes into one meanwhile waits for the row, or makes it young. $1 the
// moment, $2 how many.
const pruneSessionsSQL = `
WITH old AS MATERIALIZED (
	SELECT s.key FROM sessions s WHERE s.updated_at < $1 AND s.done_seq = s.last_seq
	AND (s.key LIKE 'agent:' || s.agent || ':task:________-____-____-____-____________'
		OR s.key LIKE 'agent:' || s.agent || ':cron:compact:________-____-____-____-____________')
	AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_key = s.key AND r.ended_at IS NULL)
	AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.key AND (i.announce = 1
		OR EXISTS (SELECT 1 FROM runs p WHERE p.id IN (i.parent, i.root) AND p.ended_at IS NULL)))
	ORDER BY s.key LIMIT $2 FOR UPDATE OF s SKIP LOCKED
), s AS (
	DELETE FROM sessions s USING old WHERE s.key = old.key RETURNING s.key, s.last_seq, s.epoch
), left_behind AS (
	INSERT INTO tombstones AS g (key, last_seq, epoch) SELECT key, last_seq, epoch FROM s WHERE key LIKE '%:cron:compact:%'
	ON CONFLICT (key) DO UPDATE SET last_seq = GREATEST(g.last_seq, excluded.last_seq), epoch = GREATEST(g.epoch, excluded.epoch)
), messages AS (
	DELETE FROM inbox i USING s WHERE i.session_key = s.key
), turns AS (
	DELETE FROM runs r USING s WHERE r.session_key = s.key
), ` + dropTranscriptsSQL + `
SELECT count(*) FROM s`

// PruneSessions deletes old sessions of sub-turns and compactions; see the port.
func (s *Store) PruneSessions(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "pruning sessions", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, pruneSessionsSQL, ms(p.Before), p.Most()).Scan(&n)
	})
	return n, err
}

// PruneInbox deletes messages that are over with their runs; see the port.
func (s *Store) PruneInbox(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "pruning the inbox", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, pruneInboxSQL, ms(p.Before), p.Most(), joinedAhead).Scan(&n)
	})
	return n, err
}

// PruneOutbox deletes outgoing messages that are over; see the port.
func (s *Store) PruneOutbox(ctx context.Context, p store.PruneParams) (n int, err error) {
	err = s.do(ctx, "pruning the outbox", func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, pruneOutboxSQL, ms(p.Before), p.Most())
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// filesInUseSQL reads the lists of attachments of what is unfinished.
const filesInUseSQL = `
SELECT body::json ->> 'attachments' FROM inbox WHERE ended_at IS NULL AND body::json ->> 'attachments' IS NOT NULL
UNION ALL
SELECT '[' || file || ']' FROM outbox WHERE done_at IS NULL AND file <> ''`

// FilesInUse lists the files that something unfinished names; see the port.
func (s *Store) FilesInUse(ctx context.Context) ([]string, error) {
	var lists [][]chat.Attachment
	err := s.do(ctx, "looking for files in use", func(ctx context.Context) error {
		lists = nil
		b := &pgx.Batch{}
		b.Queue(filesInUseSQL).Query(collect(&lists, func(row pgx.CollectableRow) (files []chat.Attachment, err error) {
			var text string
			if err = row.Scan(&text); err == nil {
				err = json.Unmarshal([]byte(text), &files)
			}
			return files, err
		}))
		return send(ctx, s.pool, b)
	})
	return store.Paths(lists...), err
}
