package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const sessionColumns = `key, session_id, principal, lane, coalesce(owner, ''), epoch, last_seq, taken_seq, done_seq, stop_seq, run_limit, waiting,
	mode, notes, created_at, updated_at, last_message_at, last_run_id, last_state, last_cause, last_error, preview, total_tokens`

func scanSession(row scanner) (s store.Session, err error) {
	err = row.Scan(keyColumn{&s.Key}, &s.SessionID, &s.Principal, &s.Lane, &s.Owner, &s.Epoch, &s.LastSeq, &s.TakenSeq, &s.DoneSeq,
		&s.StopSeq, &s.RunLimit, &s.Waiting, &s.Mode, jsonColumn{&s.Notes}, timeColumn{&s.CreatedAt}, timeColumn{&s.UpdatedAt},
		timeColumn{&s.LastMessageAt}, &s.LastRunID, &s.LastState, &s.LastCause, &s.LastError, &s.Preview, &s.TotalTokens)
	return s, err
}

// readSession reads one session with the ids of its active runs; chat.ErrSessionNotFound.
func readSession(ctx context.Context, q querier, key chat.SessionKey) (store.Session, error) {
	s, err := scanSession(q.one(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE key = ?`, key.String()))
	if none(err) {
		return store.Session{}, chat.ErrSessionNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	return s, addRuns(ctx, q, &s)
}

func addRuns(ctx context.Context, q querier, s *store.Session) error {
	rows, err := q.query(ctx, `
		SELECT id FROM runs INDEXED BY runs_open WHERE session_key = ? AND state IN ('running', 'stopping', 'yielded') ORDER BY seq_from`, s.Key.String())
	s.ActiveRuns, err = collect(rows, err, text)
	return err
}

// Session reads one session that the principal may see.
func (s *Store) Session(ctx context.Context, key chat.SessionKey, visible string) (out store.Session, err error) {
	err = s.view(ctx, "read a session", func(ctx context.Context, q querier) error {
		found, err := readSession(ctx, q, key)
		if err == nil && visible != "" && found.Principal != visible {
			return chat.ErrSessionNotFound
		}
		out = found
		return err
	})
	if err != nil {
		return store.Session{}, err
	}
	return out, nil
}

// change makes a small change to a session, which is created if needed, and returns it.
func (s *Store) change(ctx context.Context, doing string, key chat.SessionKey, principal string, fn func(ctx context.Context, t *tx, r *row) error) (store.Session, error) {
	return result(ctx, s.write, ordinary(doing), func(ctx context.Context, t *tx) (store.Session, error) {
		r, _, err := t.findOrMake(ctx, key, principal)
		if err != nil {
			return store.Session{}, err
		}
		if err := fn(ctx, t, r); err != nil {
			return store.Session{}, err
		}
		return readSession(ctx, t, key)
	})
}

// ResetSession archives the transcript and begins an empty one; see the port. The archive is every entry under another session_id.
func (s *Store) ResetSession(ctx context.Context, p store.ResetParams) (store.Session, error) {
	if p.NewID == "" {
		return store.Session{}, chat.Errorf(chat.CodeInvalid, "a new transcript needs an id")
	}
	return result(ctx, s.write, ordinary("reset a session"), func(ctx context.Context, t *tx) (out store.Session, err error) {
		id, err := sqlstore.Idempotent(ctx, t.shared(), p.IdempotencyKey, func() (string, error) {
			out, err = t.reset(ctx, p)
			return out.SessionID, err
		})
		if out.SessionID == "" {
			out.Key, out.SessionID = p.Session, id
		}
		return out, err
	})
}

func (t *tx) reset(ctx context.Context, p store.ResetParams) (store.Session, error) {
	r, created, err := t.findOrMake(ctx, p.Session, p.Principal)
	if err != nil {
		return store.Session{}, err
	}
	if before := r.id; before != p.NewID {
		if r.id = p.NewID; created {
			before = ""
		}
		if err := t.save(ctx, r); err != nil {
			return store.Session{}, err
		}
		if err := t.audit(ctx, p.Audit.Between(before, p.NewID), r.key); err != nil {
			return store.Session{}, err
		}
	}
	return readSession(ctx, t, p.Session)
}

// SetSessionMode stores the queue mode of a session.
func (s *Store) SetSessionMode(ctx context.Context, key chat.SessionKey, principal string, mode chat.QueueMode) error {
	_, err := s.change(ctx, "set the queue mode", key, principal, func(ctx context.Context, t *tx, r *row) error {
		_, err := t.exec(ctx, `UPDATE sessions SET mode = ?, updated_at = ? WHERE key = ?`, string(mode), t.now, r.key)
		return err
	})
	return err
}

// GiveSession makes another principal the owner of a session; see the port.
func (s *Store) GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error {
	return s.write.do(ctx, ordinary("give a session"), func(ctx context.Context, t *tx) error {
		n, err := t.exec(ctx, `UPDATE sessions SET principal = ?, updated_at = ? WHERE key = ? AND principal = ?`, to, t.now, key.String(), from)
		if err != nil || n == 0 {
			return err
		}
		return t.giveToc(ctx, key.String(), to)
	})
}

// SetNote stores a fact of a session.
func (s *Store) SetNote(ctx context.Context, key chat.SessionKey, principal, name, value string) error {
	_, err := s.change(ctx, "set a note", key, principal, func(ctx context.Context, t *tx, r *row) error {
		if r.notes[name] = value; value == "" {
			delete(r.notes, name)
		}
		text, err := encode(r.notes)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, `UPDATE sessions SET notes = ?, updated_at = ? WHERE key = ?`, text, t.now, r.key)
		return err
	})
	return err
}
