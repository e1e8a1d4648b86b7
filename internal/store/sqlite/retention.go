package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// joinedAhead is how far behind its run a message may lie that joined it. One that lies further is deleted a moment later on its own.
const joinedAhead = 1000

// oldMessage is a row of the inbox that is to go.
type oldMessage struct {
	session string
	seq     int64
	run     string
}

// PruneInbox deletes messages that are over with their runs; see the port. They are looked for beside the writer, in the order of the
// table, where the old ones stand first: an index on the end would have to follow every turn.
func (s *Store) PruneInbox(ctx context.Context, p store.PruneParams) (int, error) {
	var old []oldMessage
	err := s.view(ctx, "look for old messages", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT session_key, seq, coalesce(run_id, '') FROM inbox WHERE ended_at < ? AND state = 'done' LIMIT +?`, millis(p.Before), p.Most())
		old, err = collect(rows, err, func(row scanner) (m oldMessage, err error) {
			err = row.Scan(&m.session, &m.seq, &m.run)
			return m, err
		})
		return err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return result(ctx, s.write, ordinary("delete old messages"), func(ctx context.Context, t *tx) (n int, err error) {
		for _, m := range old {
			gone, err := t.pruneMessage(ctx, m)
			if err != nil {
				return 0, err
			}
			n += gone
		}
		return n, nil
	})
}

// pruneMessage deletes one message, or with its run everything that ran in it. A run that is still active keeps them all.
func (t *tx) pruneMessage(ctx context.Context, m oldMessage) (int, error) {
	var from, to int64
	var active bool
	err := t.one(ctx, `SELECT seq_from, seq_to, state IN ('running', 'stopping', 'yielded') FROM runs WHERE id = ?`, m.run).Scan(&from, &to, &active)
	switch {
	case none(err):
		n, err := t.exec(ctx, `DELETE FROM inbox WHERE session_key = ? AND seq = ? AND state = 'done'`, m.session, m.seq)
		return int(n), err
	case err != nil || active:
		return 0, err
	}
	n, err := t.exec(ctx, `DELETE FROM inbox WHERE session_key = ? AND seq BETWEEN ? AND ? AND run_id = ? AND state = 'done'`, m.session, from, to+joinedAhead, m.run)
	if err != nil {
		return 0, err
	}
	_, err = t.exec(ctx, `DELETE FROM runs WHERE id = ?`, m.run)
	return int(n), err
}

// PruneOutbox deletes outgoing messages that are over; see the port.
func (s *Store) PruneOutbox(ctx context.Context, p store.PruneParams) (int, error) {
	var places []int64
	err := s.view(ctx, "look for old outgoing messages", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT place FROM outbox WHERE done_at < ? LIMIT +?`, millis(p.Before), p.Most())
		places, err = collect(rows, err, func(row scanner) (place int64, err error) {
			err = row.Scan(&place)
			return place, err
		})
		return err
	})
	if err != nil || len(places) == 0 {
		return 0, err
	}
	return result(ctx, s.write, ordinary("delete old outgoing messages"), func(ctx context.Context, t *tx) (n int, err error) {
		for _, place := range places {
			gone, err := t.exec(ctx, `DELETE FROM outbox WHERE place = ? AND done_at IS NOT NULL`, place)
			if err != nil {
				return 0, err
			}
			n += int(gone)
		}
		return n, nil
	})
}

// maxPruneSessions is how many sessions one call of PruneSessions deletes: the writer runs no other operation meanwhile.
const maxPruneSessions = 100

// sideSessions finds the sessions that PruneSessions deletes. ?1 the moment, ?2 a session or empty for all.
const sideSessions = `
	SELECT s.key FROM sessions s WHERE (?2 = '' OR s.key = ?2) AND s.updated_at < ?1 AND s.done_seq = s.last_seq
	AND (s.key GLOB 'agent:' || s.agent || ':task:????????-????-????-????-????????????'
		OR s.key GLOB 'agent:' || s.agent || ':cron:compact:????????-????-????-????-????????????')
	AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.session_key = s.key AND r.seq_from > 0 AND r.state IN ('running', 'stopping', 'yielded'))
	AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.key AND i.seq > 0 AND (i.announce = 1
		OR EXISTS (SELECT 1 FROM runs p WHERE p.id IN (i.parent, i.root) AND p.state IN ('running', 'stopping', 'yielded'))))
	ORDER BY s.key LIMIT +?3`

// PruneSessions deletes old sessions of sub-turns and compactions; see the port. They are looked for beside the writer.
func (s *Store) PruneSessions(ctx context.Context, p store.PruneParams) (int, error) {
	before, limit := millis(p.Before), min(p.Most(), maxPruneSessions)
	var keys []string
	err := s.view(ctx, "look for old sessions", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, sideSessions, before, "", limit)
		keys, err = collect(rows, err, text)
		return err
	})
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return result(ctx, s.write, ordinary("delete old sessions"), func(ctx context.Context, t *tx) (n int, err error) {
		for _, key := range keys {
			if err := t.one(ctx, sideSessions, before, key, 1).Scan(&key); none(err) {
				continue // it went on meanwhile
			} else if err != nil {
				return 0, err
			}
			if err := t.dropSideTurns(ctx, key); err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	})
}

// dropSideTurns deletes a session with everything in it. The conversation of a compaction may be compacted again, so its session leaves a tombstone.
func (t *tx) dropSideTurns(ctx context.Context, key string) error {
	for _, statement := range []string{`DELETE FROM inbox WHERE session_key = ?`, `DELETE FROM runs WHERE session_key = ?`} {
		if _, err := t.exec(ctx, statement, key); err != nil {
			return err
		}
	}
	var last, epoch int64
	if err := t.one(ctx, `SELECT last_seq, epoch FROM sessions WHERE key = ?`, key).Scan(&last, &epoch); err != nil {
		return err
	}
	if err := t.dropSession(ctx, key); err != nil || sessionKey(key).OfTask() {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO tombstones (key, last_seq, epoch) VALUES (?, ?, ?)`, key, last, epoch)
	return err
}

// Upkeep maintains the file: it returns free pages to the disk, 1 MiB at a time so that no turn waits for it, and copies the log into the
// database. It checks ctx between the steps; steps that are done stay done.
//
// It gathers no statistics (ANALYZE, `PRAGMA optimize`). The statements are written for their indexes, most of which have unfinished work
// only; statistics of a quiet moment make the planner read whole tables instead. A test checks the plans after an upkeep.
func (s *Store) Upkeep(ctx context.Context) (string, error) {
	var err error
	pages := 0
	for err == nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		var left bool
		left, err = result(ctx, s.write, ordinary("give free pages back"), func(ctx context.Context, t *tx) (bool, error) {
			var free int
			if err := t.one(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil || free <= slackPages {
				return false, err
			}
			pages += min(free, shrinkPages)
			return true, t.vacuum(ctx)
		})
		if !left {
			break
		}
	}
	if err != nil {
		return "", err
	}
	logged, copied, err := s.checkpoint(ctx)
	return fmt.Sprintf("%d free pages given back, %d of %d pages of the log copied", pages, copied, logged), err
}

// checkpoint copies what it can of the log into the database, on a connection of its own and in the mode that blocks no other connection.
func (s *Store) checkpoint(ctx context.Context) (logged, copied int, err error) {
	db, err := sql.Open("sqlite", dsn(s.path, false))
	if err != nil {
		return 0, 0, fmt.Errorf("open the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var busy int
	if err = db.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &logged, &copied); err != nil {
		return 0, 0, fmt.Errorf("copy the log: %w", err)
	}
	return logged, copied, nil
}

// FilesInUse lists the files that something unfinished names; see the port.
func (s *Store) FilesInUse(ctx context.Context) ([]string, error) {
	var paths []string
	err := s.view(ctx, "look for files in use", func(ctx context.Context, q querier) error {
		for _, text := range []string{
			`SELECT body ->> '$.attachments' FROM inbox WHERE state <> 'done' AND body ->> '$.attachments' IS NOT NULL`,
			`SELECT '[' || file || ']' FROM outbox WHERE state IN ('pending', 'sending') AND file <> ''`,
		} {
			rows, err := q.query(ctx, text)
			lists, err := collect(rows, err, func(row scanner) (files []chat.Attachment, err error) {
				err = row.Scan(jsonColumn{&files})
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
