package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Retention deletes history that is too old. Old rows are selected outside of the transaction that deletes them, on SQLite without occupying the writer.
// Messages and outgoing messages are read in the order of their tables, in which the old ones come first: an index on the end time would cost an update per
// turn.
type Retention struct{ db Engine }

var _ store.Retention = Retention{}

// joinedAhead is how far after the numbers of its run a joined message may lie. A message beyond that is deleted separately, a moment later.
const joinedAhead = 1000

// maxPruneSessions is how many sessions one call deletes: SQLite's writer runs no other operation meanwhile.
const maxPruneSessions = 100

const (
	endedRuns = ` AND ended_at IS NOT NULL AND state NOT IN ('running', 'stopping', 'yielded')`

	// pruneAloneSQL deletes messages without a run.
	pruneAloneSQL = `{set session text, seq int, run text} DELETE FROM inbox WHERE state = 'done'
		AND (session_key, seq) IN (SELECT v.session, v.seq {from} WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = v.run))`

	// pruneTogetherSQL deletes the messages of runs that have ended. $1 the runs, $2 joinedAhead.
	pruneTogetherSQL = `WITH ended AS MATERIALIZED (
			SELECT id, session_key, seq_from, seq_to FROM runs WHERE id {in $1}` + endedRuns + `
		), old AS MATERIALIZED (
			SELECT i.session_key, i.seq FROM ended e CROSS JOIN inbox i
			WHERE i.session_key = e.session_key AND i.seq BETWEEN e.seq_from AND e.seq_to + $2 AND i.run_id = e.id AND i.state = 'done'
		) DELETE FROM inbox WHERE (session_key, seq) IN (SELECT session_key, seq FROM old)`

	// sideSessions finds the sessions of store.PruneSessions. $1 the moment, $2 how many.
	sideSessions = `SELECT s.key FROM sessions s WHERE s.updated_at < $1 AND s.done_seq = s.last_seq
		AND (s.key LIKE 'agent:' || s.agent || ':task:________-____-____-____-____________'
			OR s.key LIKE 'agent:' || s.agent || ':cron:compact:________-____-____-____-____________')` + sideSessionsOver
	sideSessionsOnSQLite = `SELECT s.key FROM sessions s WHERE s.updated_at < $1 AND s.done_seq = s.last_seq
		AND (s.key GLOB 'agent:' || s.agent || ':task:????????-????-????-????-????????????'
			OR s.key GLOB 'agent:' || s.agent || ':cron:compact:????????-????-????-????-????????????')` + sideSessionsOver
	// A message that arrives meanwhile waits for the row lock, or makes the session recent.
	sideSessionsOver = ` AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.parent_key = s.key)
		AND NOT EXISTS (SELECT 1 FROM runs x WHERE x.session_key = s.key AND x.seq_from > 0 AND {running x})
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.key AND i.seq > 0
			AND (i.announce = 1 OR EXISTS (SELECT 1 FROM runs x WHERE x.id IN (i.parent, i.root) AND {running x})))`

	inOrderOfKeys = ` ORDER BY s.key {limit $2}`

	// tombstonesSQL stores the numbers of deleted sessions for later sessions with their keys.
	tombstonesSQL = `INSERT INTO tombstones AS g (key, last_seq, epoch) SELECT key, last_seq, epoch FROM sessions WHERE key {in $1}
		ON CONFLICT (key) DO UPDATE SET last_seq = {greatest}(g.last_seq, excluded.last_seq), epoch = {greatest}(g.epoch, excluded.epoch)`

	filesOfMessagesSQL = `SELECT {json body} ->> 'attachments' FROM inbox WHERE {open} AND {json body} ->> 'attachments' IS NOT NULL`
	filesOfOutgoingSQL = `SELECT '[' || file || ']' FROM outbox WHERE done_at IS NULL AND state IN ('pending', 'sending') AND file <> ''`

	// filesNamedSQL reads the whole inbox.
	filesNamedSQL = `WITH named AS (
			SELECT f ->> 'path' AS path FROM inbox i, json_array_elements(i.body::json -> 'attachments') f WHERE i.body LIKE '%"attachments":%'
			UNION SELECT file::json ->> 'path' FROM outbox WHERE done_at IS NULL AND file <> ''
		) SELECT path FROM named WHERE path = ANY($1::text[])`
	filesNamedOnSQLite = `WITH p AS MATERIALIZED (SELECT value AS path FROM json_each($1))
		SELECT path FROM p WHERE path IN (SELECT f.value ->> 'path' FROM inbox i, json_each(i.body, '$.attachments') f WHERE i.body LIKE '%"attachments":%')
			OR path IN (SELECT file ->> 'path' FROM outbox WHERE state IN ('pending', 'sending') AND file <> '')`
)

// oldMessage is an inbox row to delete.
type oldMessage struct {
	session string
	seq     int64
	run     string
}

// Prune deletes old rows; see store.Retention.
func (s Retention) Prune(ctx context.Context, p store.PruneParams) (int, error) {
	switch p.What {
	case store.PruneMessages:
		return s.messages(ctx, p)
	case store.PruneOutgoing:
		return s.outgoing(ctx, p)
	case store.PruneSessions:
		return s.sessions(ctx, p)
	case store.PruneLedger:
		return s.ledger(ctx, p)
	case store.PruneRecords:
		return s.records(ctx, p)
	}
	return 0, chat.Errorf(chat.CodeInvalid, "there is no history named %q", p.What)
}

// messages deletes ended messages with their runs. A run in progress keeps its messages.
func (s Retention) messages(ctx context.Context, p store.PruneParams) (int, error) {
	old, err := list(ctx, s.db, query{
		"find old messages", `SELECT session_key, seq, COALESCE(run_id, '') FROM inbox WHERE ended_at < $1 AND state = 'done' {limit $2}`,
		[]any{millis(p.Before), p.Most()},
	}, func(r Row) (m oldMessage, err error) {
		err = r.Scan(&m.session, &m.seq, &m.run)
		return m, err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	rows, runs, have := make(Set, len(old)), []string{}, map[string]bool{"": true}
	for i, m := range old {
		if rows[i] = []any{m.session, m.seq, m.run}; !have[m.run] {
			have[m.run], runs = true, append(runs, m.run)
		}
	}
	return result(ctx, s.db.Update, "delete old messages", func(ctx context.Context, tx Tx) (int, error) {
		alone, err := tx.Exec(ctx, pruneAloneSQL, rows)
		if err != nil || len(runs) == 0 {
			return int(alone), err
		}
		together, err := tx.Exec(ctx, pruneTogetherSQL, runs, joinedAhead)
		if err != nil {
			return 0, err
		}
		return int(alone + together), tx.Later(ctx, `DELETE FROM runs WHERE id {in $1}`+endedRuns, nil, runs)
	})
}

// outgoing deletes outgoing messages that have ended.
func (s Retention) outgoing(ctx context.Context, p store.PruneParams) (int, error) {
	old, err := list(ctx, s.db, query{
		"find old outgoing messages", `SELECT id FROM outbox WHERE done_at < $1 {limit $2}`, []any{millis(p.Before), p.Most()},
	}, scanText)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return result(ctx, s.db.Update, "delete old outgoing messages", func(ctx context.Context, tx Tx) (int, error) {
		n, err := tx.Exec(ctx, `DELETE FROM outbox WHERE id {in $1} AND done_at IS NOT NULL`, old)
		return int(n), err
	})
}

// sessions deletes old sessions of sub-turns and compactions. The conversation of a compaction may be compacted again, so its
// session leaves a tombstone.
func (s Retention) sessions(ctx context.Context, p store.PruneParams) (int, error) {
	args := []any{millis(p.Before), min(p.Most(), maxPruneSessions)}
	var found []string
	err := s.db.View(ctx, "find old sessions", func(ctx context.Context, tx Tx) (err error) {
		found, err = all(ctx, tx, tx.PerEngine(sideSessions, sideSessionsOnSQLite)+inOrderOfKeys, scanText, args...)
		return err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return result(ctx, s.db.Update, "delete old sessions", func(ctx context.Context, tx Tx) (int, error) {
		// Some sessions may have continued meanwhile.
		keys, err := all(ctx, tx, tx.PerEngine(sideSessions, sideSessionsOnSQLite)+` AND s.key {in $3}`+inOrderOfKeys+` {skip}`, scanText, append(args, found)...)
		if err != nil || len(keys) == 0 {
			return 0, err
		}
		var again []string
		for _, key := range keys {
			if !parseKey(key).OfTask() {
				again = append(again, key)
			}
		}
		if len(again) > 0 {
			if err := tx.Later(ctx, tombstonesSQL, nil, again); err != nil {
				return 0, err
			}
		}
		if err := dropTranscripts(ctx, tx, keys); err != nil {
			return 0, err
		}
		return len(keys), later(ctx, tx, with(`DELETE FROM inbox WHERE session_key {in $1}`, keys), with(`DELETE FROM runs WHERE session_key {in $1}`, keys),
			with(`DELETE FROM sessions WHERE key {in $1}`, keys))
	})
}

// records deletes the results of calls with an idempotency key.
func (s Retention) records(ctx context.Context, p store.PruneParams) (int, error) {
	return result(ctx, s.db.Update, "prune the answers", func(ctx context.Context, tx Tx) (int, error) {
		done, err := tx.Exec(ctx, `
			WITH old AS MATERIALIZED (SELECT owner, method, key FROM answers WHERE at <= {now} - $1 ORDER BY at {limit $2} {skip})
			DELETE FROM answers WHERE (owner, method, key) IN (SELECT owner, method, key FROM old)`, store.IdempotencyTTL.Milliseconds(), p.Most())
		return int(done), err
	})
}

// FilesInUse lists the files that unfinished work names; see store.Retention.
func (s Retention) FilesInUse(ctx context.Context) (paths []string, err error) {
	err = s.db.View(ctx, "list files in use", func(ctx context.Context, tx Tx) error {
		paths = nil
		for _, text := range []string{filesOfMessagesSQL, filesOfOutgoingSQL} {
			lists, err := all(ctx, tx, text, func(r Row) (files []chat.Attachment, err error) {
				err = r.Scan(jsonColumn{&files})
				return files, err
			})
			if err != nil {
				return err
			}
			paths = append(paths, store.Paths(lists...)...)
		}
		return nil
	})
	return paths, err
}

// FilesNamed returns the paths that messages name; see store.Retention.
func (s Retention) FilesNamed(ctx context.Context, paths []string) (named []string, err error) {
	err = s.db.View(ctx, "find messages that name files", func(ctx context.Context, tx Tx) (err error) {
		named, err = all(ctx, tx, tx.PerEngine(filesNamedSQL, filesNamedOnSQLite), scanText, paths)
		return err
	})
	return named, err
}
