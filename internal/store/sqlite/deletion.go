package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// DeleteSession removes a session that does not run, with what belongs to it; see the port.
func (s *Store) DeleteSession(ctx context.Context, p store.DeleteParams) (store.Deleted, error) {
	return result(ctx, s.write, ordinary("delete a session"), func(ctx context.Context, t *tx) (store.Deleted, error) {
		return sqlstore.Idempotent(ctx, t.shared(), p.IdempotencyKey, func() (store.Deleted, error) { return t.remove(ctx, p) })
	})
}

func (t *tx) remove(ctx context.Context, p store.DeleteParams) (out store.Deleted, err error) {
	r, ok, err := t.find(ctx, p.Session)
	if err != nil || !ok {
		return out, err
	}
	if p.ExpectID != "" && r.id != p.ExpectID {
		return out, chat.ErrConflict
	}
	keys, err := store.Deleting(r.key, func(key string) ([]string, error) {
		rows, err := t.query(ctx, store.BelowSQL, key)
		return collect(rows, err, text)
	})
	if err != nil {
		return out, err
	}
	for _, key := range keys {
		var active int
		err = t.one(ctx, `SELECT count(*) FROM runs WHERE session_key = ? AND state IN ('running', 'stopping', 'yielded')`, key).Scan(&active)
		if err != nil {
			return out, err
		}
		if active > 0 {
			return out, chat.ErrConflict
		}
	}
	if out.Deleted = true; p.KeepTranscript {
		out.Kept = r.id
	}
	for _, key := range keys {
		if err := t.removeOne(ctx, key, key != r.key, p.KeepTranscript, &out); err != nil {
			return out, err
		}
	}
	return out, sqlstore.Audit(ctx, t.shared(), p.Audit.Between(r.id, ""), r.key)
}

// removeOne removes one session of a deletion; below: it belongs to the one that is deleted, whose transcripts alone may be kept.
func (t *tx) removeOne(ctx context.Context, key string, below, keep bool, out *store.Deleted) error {
	r, ok, err := t.find(ctx, sessionKey(key))
	if err != nil {
		return err
	}
	rows, err := t.query(ctx, store.FilesOfSessionSQL, key)
	bodies, err := collect(rows, err, text)
	if err != nil {
		return err
	}
	for _, body := range bodies {
		files, err := store.FilesOf(body)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, files...)
	}
	if ok {
		if err := t.removeTranscripts(ctx, r, keep && !below); err != nil {
			return err
		}
		ended, err := t.removeSession(ctx, r)
		if err != nil {
			return err
		}
		out.Ended = append(out.Ended, ended...)
	}
	if _, err := t.exec(ctx, store.EndOutgoingSQL, key, t.now); err != nil {
		return err
	}
	statements := store.ClearSQL()
	if below && sessionKey(key).OfTask() {
		statements = append(statements, store.DropSQL()...)
	}
	for _, statement := range statements {
		if _, err := t.exec(ctx, statement, key); err != nil {
			return err
		}
	}
	statement, arg := store.ClearSummariesSQL(sessionKey(key))
	_, err = t.exec(ctx, statement, arg)
	return err
}

// removeTranscripts removes the summaries of a session, and its transcripts unless they are kept.
func (t *tx) removeTranscripts(ctx context.Context, r *row, keep bool) error {
	if err := sqlstore.RemoveToc(ctx, t.shared(), r.key); err != nil {
		return err
	}
	if keep {
		return t.keep(ctx, r)
	}
	return t.drop(ctx, r)
}

// keep keeps the transcripts of a session for its principal; no search finds them any more. Those that an earlier session of the key has left keep their owner.
func (t *tx) keep(ctx context.Context, r *row) error {
	_, err := t.exec(ctx, `
		INSERT INTO kept_transcripts (session_key, session_id, principal)
		SELECT DISTINCT session_key, session_id, ? FROM transcript WHERE session_key = ? ON CONFLICT DO NOTHING`, r.principal, r.key)
	if err != nil {
		return err
	}
	return sqlstore.Unindex(ctx, t.shared(), r.key)
}

// drop deletes the transcripts of a session, and those that its principal has kept of earlier ones.
func (t *tx) drop(ctx context.Context, r *row) error {
	if _, err := t.exec(ctx, `DELETE FROM kept_transcripts WHERE session_key = ? AND principal = ?`, r.key, r.principal); err != nil {
		return err
	}
	_, err := t.exec(ctx, `
		DELETE FROM transcript WHERE session_key = ? AND session_id NOT IN (SELECT session_id FROM kept_transcripts WHERE session_key = ?)`, r.key, r.key)
	return err
}

// removeSession ends the waiting messages and removes the row of a session. Its tombstone keeps the numbers for a later session of the key.
// It returns the messages without their content.
func (t *tx) removeSession(ctx context.Context, r *row) (ended []store.Waiting, err error) {
	for after := int64(0); ; {
		list, err := queuedWithin(ctx, t, place{r.key, after, unlimited}, store.NewBudget(0))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			break
		}
		after = list[len(list)-1].Seq
		if err := sqlstore.EndDeleted(ctx, t.shared(), r.key, list); err != nil {
			return nil, err
		}
		ended = append(ended, store.WithoutContent(list)...)
	}
	if _, err := t.exec(ctx, `REPLACE INTO tombstones (key, last_seq, epoch) VALUES (?, ?, ?)`, r.key, r.lastSeq, r.epoch); err != nil {
		return nil, err
	}
	_, err = t.exec(ctx, `DELETE FROM sessions WHERE key = ?`, r.key)
	return ended, err
}
