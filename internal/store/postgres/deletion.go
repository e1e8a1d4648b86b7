package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// DeleteSession removes a session that has no running run, with what belongs to it, see store.Sessions.
func (s *Store) DeleteSession(ctx context.Context, p store.DeleteParams) (out store.Deleted, err error) {
	err = s.within(ctx, "deleting a session", func(ctx context.Context, tx pgx.Tx) error {
		out, err = sqlstore.Idempotent(ctx, s.shared(tx), p.IdempotencyKey, func() (store.Deleted, error) { return s.remove(ctx, tx, p) })
		return err
	})
	if err != nil {
		return store.Deleted{}, err
	}
	return out, nil
}

// keepTranscriptsSQL keeps the transcripts of a session for its principal. Those that an earlier session of the key has left keep their
// owner.
const keepTranscriptsSQL = `
INSERT INTO kept_transcripts (session_key, session_id, principal)
SELECT DISTINCT t.session_key, t.session_id, s.principal FROM transcript t JOIN sessions s ON s.key = t.session_key WHERE t.session_key = $1
ON CONFLICT DO NOTHING`

func (s *Store) remove(ctx context.Context, tx pgx.Tx, p store.DeleteParams) (out store.Deleted, err error) {
	key := p.Session.String()
	// The lock is a statement of its own, so that the checks below see a run that began meanwhile.
	if tag, err := tx.Exec(ctx, lockSQL, key); err != nil || tag.RowsAffected() == 0 {
		return out, err
	}
	var (
		id  string
		now int64
	)
	if err := tx.QueryRow(ctx, `SELECT session_id, `+nowSQL+` FROM sessions WHERE key = $2`, s.clock(), key).Scan(&id, &now); err != nil {
		return out, err
	}
	if p.ExpectID != "" && id != p.ExpectID {
		return out, chat.ErrConflict
	}
	keys, err := store.Deleting(key, func(key string) ([]string, error) {
		rows, err := tx.Query(ctx, store.BelowSQL, key)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	})
	if err != nil {
		return out, err
	}
	for _, key := range keys {
		var active bool
		b := &pgx.Batch{}
		b.Queue(lockSQL, key)
		b.Queue(`SELECT EXISTS (SELECT 1 FROM runs WHERE session_key = $1 AND ended_at IS NULL)`, key).QueryRow(func(row pgx.Row) error { return row.Scan(&active) })
		if err := send(ctx, tx, b); err != nil {
			return out, err
		}
		if active {
			return out, chat.ErrConflict
		}
	}
	if out.Deleted = true; p.KeepTranscript {
		out.Kept = id
	}
	for _, k := range keys {
		if err := s.removeOne(ctx, tx, removal{key: k, below: k != key, keep: p.KeepTranscript && k == key, now: now}, &out); err != nil {
			return out, err
		}
	}
	b := &pgx.Batch{}
	if err := sqlstore.Audit(ctx, s.queued(b), p.Audit.Between(id, ""), ""); err != nil {
		return out, err
	}
	return out, send(ctx, tx, b)
}

// removal is the removal of one session of a deletion. below: it belongs to the one that is deleted, whose transcripts alone may be kept.
type removal struct {
	key         string
	below, keep bool
	now         int64
}

func (s *Store) removeOne(ctx context.Context, tx pgx.Tx, r removal, out *store.Deleted) error {
	var (
		ended  []store.Waiting
		bodies []string
	)
	if err := sqlstore.RemoveToc(ctx, s.shared(tx), r.key); err != nil {
		return err
	}
	if err := sqlstore.Unindex(ctx, s.shared(tx), r.key); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(store.FilesOfSessionSQL, r.key).Query(collect(&bodies, pgx.RowTo[string]))
	b.Queue(`WITH i AS (
		UPDATE inbox SET state = 'done', outcome = 'stopped', reason = 'delete', ended_at = `+nowSQL+`
		WHERE session_key = $2 AND ended_at IS NULL RETURNING *
	) SELECT `+waitingColumns+` FROM i ORDER BY i.seq`, s.clock(), r.key).Query(collect(&ended, scanWaiting))
	if r.keep {
		b.Queue(keepTranscriptsSQL, r.key)
	} else {
		b.Queue(`DELETE FROM kept_transcripts k USING sessions s WHERE s.key = $1 AND k.session_key = s.key AND k.principal = s.principal`, r.key)
		b.Queue(`DELETE FROM transcript t WHERE t.session_key = $1
			AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = $1 AND k.session_id = t.session_id)`, r.key)
	}
	b.Queue(`INSERT INTO tombstones AS g (key, last_seq, epoch) SELECT key, last_seq, epoch FROM sessions WHERE key = $1
		ON CONFLICT (key) DO UPDATE SET last_seq = GREATEST(g.last_seq, excluded.last_seq), epoch = GREATEST(g.epoch, excluded.epoch)`, r.key)
	b.Queue(`DELETE FROM sessions WHERE key = $1`, r.key)
	if err := send(ctx, tx, b); err != nil {
		return err
	}
	ended = store.WithoutContent(ended)
	if err := sqlstore.EndRunsOf(ctx, s.shared(tx), ended); err != nil {
		return err
	}
	out.Ended = append(out.Ended, ended...)
	for _, body := range bodies {
		files, err := store.FilesOf(body)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, files...)
	}
	return send(ctx, tx, clearing(r))
}

// clearing are the statements that both engines have in common.
func clearing(r removal) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(store.EndOutgoingSQL, r.key, r.now)
	statements := store.ClearSQL()
	if r.below && parseKey(r.key).OfTask() {
		statements = append(statements, store.DropSQL()...)
	}
	for _, statement := range statements {
		b.Queue(statement, r.key)
	}
	summaries, of := store.ClearSummariesSQL(parseKey(r.key))
	b.Queue(summaries, of)
	return b
}
