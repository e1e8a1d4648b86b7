package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// defaultSessions is how many sessions a list returns without a limit.
const defaultSessions = 50

// sessionColumns are what scanSession reads, of a table named s.
const sessionColumns = `s.key, s.session_id, s.principal, s.lane, COALESCE(s.owner, ''), s.epoch, s.last_seq, s.taken_seq, s.done_seq,
	s.stop_seq, s.run_limit, s.waiting, s.mode, s.notes, s.created_at, s.updated_at, s.last_message_at, s.last_run_id, s.last_state,
	s.last_cause, s.last_error, s.preview, s.total_tokens,
	ARRAY(SELECT r.id FROM runs r WHERE r.session_key = s.key AND r.ended_at IS NULL AND r.state IN ('running', 'yielded') ORDER BY r.seq_from)`

func scanSession(row pgx.CollectableRow) (store.Session, error) {
	var (
		v                            store.Session
		key, notes                   string
		created, updated, lastSpoken int64
	)
	err := row.Scan(&key, &v.SessionID, &v.Principal, &v.Lane, &v.Owner, &v.Epoch, &v.LastSeq, &v.TakenSeq, &v.DoneSeq,
		&v.StopSeq, &v.RunLimit, &v.Waiting, &v.Mode, &notes, &created, &updated, &lastSpoken, &v.LastRunID, &v.LastState,
		&v.LastCause, &v.LastError, &v.Preview, &v.TotalTokens, &v.ActiveRuns)
	if err != nil {
		return v, err
	}
	v.Key = parseKey(key)
	v.CreatedAt, v.UpdatedAt, v.LastMessageAt = fromMillis(created), fromMillis(updated), fromMillis(lastSpoken)
	if err := json.Unmarshal([]byte(notes), &v.Notes); err != nil {
		return v, fmt.Errorf("reading the notes of %s: %w", key, err)
	}
	return v, nil
}

// Session reads one session that the principal may see.
func (s *Store) Session(ctx context.Context, key chat.SessionKey, visible string) (store.Session, error) {
	var out store.Session
	err := s.do(ctx, "reading a session", func(ctx context.Context) (err error) {
		out, err = one(ctx, s, scanSession,
			`SELECT `+sessionColumns+` FROM sessions s WHERE s.key = $1 AND ($2 = '' OR s.principal = $2)`, key.String(), visible)
		return orNone(err, chat.ErrSessionNotFound)
	})
	return out, err
}

// ListSessions lists sessions, the one that changed last first, and returns how many match the filter.
func (s *Store) ListSessions(ctx context.Context, f store.SessionFilter) ([]store.Session, int, error) {
	const from = ` FROM sessions s WHERE ($1 = '' OR s.principal = $1) AND ($2 = '' OR s.agent = $2) AND s.updated_at >= $3
		AND ($4 = '' OR position($4 IN lower(s.key)) > 0 OR position($4 IN lower(s.preview)) > 0)
		AND NOT ($5 AND (s.key LIKE 'agent:' || s.agent || ':cron:%:%' OR s.key LIKE 'agent:' || s.agent || ':task:%'))`
	order := ` ORDER BY s.updated_at DESC, s.key`
	if f.ByLastMessage {
		order = ` ORDER BY s.last_message_at DESC, s.key`
	}
	since := int64(0)
	if !f.ActiveSince.IsZero() {
		since = f.ActiveSince.UnixMilli()
	}
	args := []any{f.Visible, f.Agent, since, strings.ToLower(clean(f.Search)), f.NoRuns}
	var (
		out   []store.Session
		total int
	)
	err := s.do(ctx, "listing sessions", func(ctx context.Context) error {
		out = nil
		b := &pgx.Batch{}
		b.Queue(`SELECT count(*)`+from, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&total) })
		page := within(`SELECT s.*, octet_length(s.notes) + octet_length(s.preview) + octet_length(s.last_error) AS page_size`+from+order+` LIMIT $6 OFFSET $7`, readBytes())
		b.Queue(`SELECT `+sessionColumns+` FROM `+page+` s ORDER BY page_n`,
			append(slices.Clip(args), cmp.Or(f.Limit, defaultSessions), max(f.Offset, 0))...).Query(collect(&out, scanSession))
		return send(ctx, s.pool, b)
	})
	return out, total, err
}

// CountNamed counts the sessions of a principal whose keys a client has chosen.
func (s *Store) CountNamed(ctx context.Context, principal string) (int, error) {
	var n int
	err := s.do(ctx, "counting the named sessions of a principal", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `
			SELECT count(*) FROM (SELECT substr(key, length(agent) + 8) AS rest FROM sessions WHERE principal = $1) s
			WHERE rest <> 'main' AND rest NOT LIKE 'cron:%:%' AND rest NOT LIKE 'task:%' AND (rest NOT LIKE 'api:%' OR rest LIKE 'api:%:%')`, clean(principal)).Scan(&n)
	})
	return n, err
}

// makeSQL makes a session unless it exists. $1 clock, $2 key, $3 agent, $4 principal, $5 transcript id.
const makeSQL = `
INSERT INTO sessions (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, created_at, updated_at)
SELECT $2, $3, $4, $5, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), now, now
FROM (SELECT ` + nowSQL + ` AS now) t LEFT JOIN tombstones g ON g.key = $2
ON CONFLICT (key) DO NOTHING`

// withSession runs the statements that queue adds, behind one that makes the session if needed.
func (s *Store) withSession(ctx context.Context, op string, key chat.SessionKey, principal string, queue func(*pgx.Batch)) error {
	id, err := newID()
	if err != nil {
		return err
	}
	return s.do(ctx, op, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(makeSQL, s.clock(), key.String(), key.Agent, principal, id)
		queue(b)
		return send(ctx, s.pool, b)
	})
}

// SetSessionMode stores the queue mode of a session, which is made if needed.
func (s *Store) SetSessionMode(ctx context.Context, key chat.SessionKey, principal string, mode chat.QueueMode) error {
	return s.withSession(ctx, "storing the queue mode of a session", key, principal, func(b *pgx.Batch) {
		b.Queue(`UPDATE sessions SET mode = $3, updated_at = `+nowSQL+` WHERE key = $2`, s.clock(), key.String(), string(mode))
	})
}

// GiveSession makes another principal the owner of a session, see store.Sessions.
func (s *Store) GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error {
	return s.within(ctx, "giving a session", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE sessions SET principal = $4, updated_at = `+nowSQL+` WHERE key = $2 AND principal = $3`,
			s.clock(), key.String(), from, to)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		b := &pgx.Batch{}
		giveToc(b, key.String(), to)
		return send(ctx, tx, b)
	})
}

// SetNote stores a fact of a session, which is made if needed; "" removes it.
func (s *Store) SetNote(ctx context.Context, key chat.SessionKey, principal, name, value string) error {
	return s.withSession(ctx, "storing a note of a session", key, principal, func(b *pgx.Batch) {
		b.Queue(`UPDATE sessions SET updated_at = `+nowSQL+`, notes = CASE WHEN $4 = '' THEN notes::jsonb - $3
			ELSE notes::jsonb || jsonb_build_object($3::text, $4::text) END WHERE key = $2`,
			s.clock(), key.String(), clean(name), clean(value))
	})
}

// ResetSession archives the transcript and begins an empty one, see store.Sessions.
func (s *Store) ResetSession(ctx context.Context, p store.ResetParams) (out store.Session, err error) {
	if p.NewID == "" {
		return out, chat.Errorf(chat.CodeInvalid, "a new transcript needs an id")
	}
	err = s.within(ctx, "resetting a session", func(ctx context.Context, tx pgx.Tx) error {
		out = store.Session{}
		id, err := sqlstore.Idempotent(ctx, s.shared(tx), p.IdempotencyKey, func() (string, error) {
			out, err = s.reset(ctx, tx, p)
			return out.SessionID, err
		})
		if out.SessionID == "" {
			out.Key, out.SessionID = p.Session, id
		}
		return err
	})
	if err != nil {
		return store.Session{}, err
	}
	return out, nil
}

func (s *Store) reset(ctx context.Context, tx pgx.Tx, p store.ResetParams) (store.Session, error) {
	first, err := newID()
	if err != nil {
		return store.Session{}, err
	}
	key, before := p.Session.String(), ""
	b := &pgx.Batch{}
	b.Queue(makeSQL, s.clock(), key, p.Session.Agent, p.Principal, first)
	b.Queue(`SELECT session_id FROM sessions WHERE key = $1 FOR UPDATE`, key).QueryRow(func(row pgx.Row) error { return row.Scan(&before) })
	if err := send(ctx, tx, b); err != nil {
		return store.Session{}, err
	}
	var list []store.Session
	b = &pgx.Batch{}
	if before != p.NewID {
		b.Queue(`UPDATE sessions SET session_id = $3, updated_at = `+nowSQL+` WHERE key = $2`, s.clock(), key, p.NewID)
		if before == first { // it was made for this
			before = ""
		}
		if err := s.audit(b, p.Audit.Between(before, p.NewID)); err != nil {
			return store.Session{}, err
		}
	}
	b.Queue(`SELECT `+sessionColumns+` FROM sessions s WHERE s.key = $1`, key).Query(collect(&list, scanSession))
	if err := send(ctx, tx, b); err != nil || len(list) == 0 {
		return store.Session{}, err
	}
	return list[0], nil
}
