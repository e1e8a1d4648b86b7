package sqlstore

import (
	"context"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Sessions are conversations and their transcripts.
type Sessions struct{ db Engine }

var _ store.Sessions = Sessions{}

const (
	selectSessions = `SELECT key, session_id, principal, lane, COALESCE(owner, ''), epoch, last_seq, taken_seq, done_seq, stop_seq, run_limit, waiting,
		mode, notes, created_at, updated_at, last_message_at, last_run_id, last_state, last_cause, last_error, preview, total_tokens
		FROM sessions WHERE key {in $1}`

	// $1 since when, $2 principal, $3 agent, $4 excludes the sessions of single runs and of sub-turns.
	// A session that a job has named has no time of change while nothing was said or set in it, and is not listed.
	sessionsMatching = ` FROM sessions WHERE updated_at > 0 AND updated_at >= $1 AND ($2 = '' OR principal = $2) AND ($3 = '' OR agent = $3)
		AND NOT (CAST($4 AS boolean) AND (key LIKE 'agent:' || agent || ':cron:%:%' OR key LIKE 'agent:' || agent || ':task:%'))`
	// sessionBytes are the bytes of the text columns of a row that have no other bound.
	sessionBytes = `octet_length(notes) + octet_length(preview) + octet_length(last_error) AS page_size`

	// The keys that a client has chosen, see chat.SessionKey.Named; LIKE ignores the case on SQLite.
	keyRest   = `substr(key, length(agent) + 8)`
	namedLike = ` AND ` + keyRest + ` <> 'main' AND ` + keyRest + ` NOT LIKE 'cron:%:%' AND ` + keyRest + ` NOT LIKE 'task:%' AND (` + keyRest + ` NOT LIKE 'api:%' OR ` + keyRest + ` LIKE 'api:%:%'` + orBranch
	namedGlob = ` AND ` + keyRest + ` <> 'main' AND ` + keyRest + ` NOT GLOB 'cron:*:*' AND ` + keyRest + ` NOT GLOB 'task:*' AND (` + keyRest + ` NOT GLOB 'api:*' OR ` + keyRest + ` GLOB 'api:*:*'` + orBranch
	orBranch  = ` OR EXISTS (SELECT 1 FROM branches b WHERE b.session_key = sessions.key))`
)

func scanSession(r Row) (v store.Session, err error) {
	err = r.Scan(keyColumn{&v.Key}, &v.SessionID, &v.Principal, &v.Lane, &v.Owner, &v.Epoch, &v.LastSeq, &v.TakenSeq, &v.DoneSeq, &v.StopSeq, &v.RunLimit, &v.Waiting,
		&v.Mode, jsonColumn{&v.Notes}, instant{&v.CreatedAt}, instant{&v.UpdatedAt}, instant{&v.LastMessageAt}, &v.LastRunID, &v.LastState, &v.LastCause,
		&v.LastError, &v.Preview, &v.TotalTokens)
	return v, err
}

// readSessions reads sessions with their active runs, in the order of the keys; missing sessions are skipped.
func readSessions(ctx context.Context, tx Tx, keys ...string) ([]store.Session, error) {
	found := make(map[string]*store.Session, len(keys))
	err := tx.Query(ctx, selectSessions, func(r Row) error {
		v, err := scanSession(r)
		found[v.Key.String()] = &v
		return err
	}, keys)
	if err != nil {
		return nil, err
	}
	var key, id string
	err = tx.Query(ctx, `SELECT session_key, id FROM runs {by runs_open} WHERE {running} AND session_key {in $1} ORDER BY session_key, seq_from`, func(r Row) error {
		err := r.Scan(&key, &id)
		if v := found[key]; v != nil {
			v.ActiveRuns = append(v.ActiveRuns, id)
		}
		return err
	}, keys)
	list := make([]store.Session, 0, len(found))
	for _, key := range keys {
		if v := found[key]; v != nil {
			list = append(list, *v)
		}
	}
	return list, err
}

// readSession reads one session; chat.ErrSessionNotFound.
func readSession(ctx context.Context, tx Tx, key chat.SessionKey) (store.Session, error) {
	list, err := readSessions(ctx, tx, key.String())
	if err == nil && len(list) == 0 {
		err = chat.ErrSessionNotFound
	}
	if err != nil {
		return store.Session{}, err
	}
	return list[0], nil
}

// Session reads one session that the principal may see; see store.Sessions.
func (s Sessions) Session(ctx context.Context, key chat.SessionKey, visible string) (v store.Session, err error) {
	err = s.db.View(ctx, "read a session", func(ctx context.Context, tx Tx) (err error) {
		v, err = readSession(ctx, tx, key)
		if err == nil && visible != "" && v.Principal != visible {
			v, err = store.Session{}, chat.ErrSessionNotFound
		}
		return err
	})
	return v, err
}

// ListSessions lists sessions and returns how many match the filter; see store.Sessions.
func (s Sessions) ListSessions(ctx context.Context, f store.SessionFilter) (list []store.Session, total int, err error) {
	err = s.db.List(ctx, "list sessions", func(ctx context.Context, tx Tx) (err error) {
		var keys []string
		if keys, total, err = matching(ctx, tx, &f); err != nil || len(keys) == 0 {
			return err
		}
		list, err = readSessions(ctx, tx, keys...)
		return err
	})
	return list, total, err
}

// matching finds the keys of one page, and how many sessions match. A search compares in Go, so that it folds the case of all letters on both engines; it holds
// only the keys that it returns.
func matching(ctx context.Context, tx Tx, f *store.SessionFilter) (keys []string, total int, err error) {
	order := ` ORDER BY updated_at DESC, key`
	if f.ByLastMessage {
		order = ` ORDER BY last_message_at DESC, key`
	}
	from, args := sessionsMatching, []any{millis(f.ActiveSince), f.Visible, f.Agent, f.NoRuns}
	if f.Named {
		from += tx.PerEngine(namedLike, namedGlob)
	}
	limit, offset, most := f.Bounds()
	if f.Search == "" {
		if _, err = one(ctx, tx, `SELECT count(*) FROM (SELECT 1`+from+` {limit $5}) n`, into(&total), append(slices.Clip(args), most+1)...); err != nil {
			return nil, 0, err
		}
		p := page{columns: `key`, rows: `SELECT key, ` + sessionBytes + from + order + ` {limit $5} OFFSET $6`, args: append(args, limit, offset)}
		keys, err = readPage(ctx, tx, p, scanText)
		return keys, total, err
	}
	var (
		key, preview string
		size         int
		budget       = store.NewBudget(0)
		full         bool
		search       = strings.ToLower(f.Search)
	)
	err = tx.Query(ctx, `SELECT key, preview, `+sessionBytes+from+order, func(r Row) error {
		if err := r.Scan(&key, &preview, &size); err != nil || !strings.Contains(strings.ToLower(key+"\x00"+preview), search) {
			return err
		}
		total = min(total, most) + 1
		if full || total <= offset {
			return nil
		}
		if full = len(keys) >= limit || !budget.Take(size); !full {
			keys = append(keys, key)
		}
		return nil
	}, args...)
	return keys, total, err
}

func scanText(r Row) (text string, err error) {
	err = r.Scan(&text)
	return text, err
}

// SetSession changes the choices of persons for a session, which is created if needed; see store.Sessions.
func (s Sessions) SetSession(ctx context.Context, key chat.SessionKey, principal string, set store.SessionSettings) error {
	return s.db.Update(ctx, "change a session", func(ctx context.Context, tx Tx) error {
		if _, err := makeSession(ctx, tx, key, principal); err != nil {
			return err
		}
		var (
			mode  chat.QueueMode
			notes map[string]string
		)
		if _, err := one(ctx, tx, `SELECT mode, notes FROM sessions WHERE key = $1 {lock}`, into((*string)(&mode), jsonColumn{&notes}), key.String()); err != nil {
			return err
		}
		if set.Mode != nil {
			mode = *set.Mode
		}
		for name, value := range set.Notes {
			name, value = chat.CleanText(name), chat.CleanText(value)
			if notes[name] = value; value == "" {
				delete(notes, name)
			}
		}
		text, err := encode(notes)
		if err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE sessions SET mode = $2, notes = $3, updated_at = {now} WHERE key = $1`, nil, key.String(), string(mode), text)
	})
}

// GiveSession makes another principal the owner of a session; see store.Sessions.
func (s Sessions) GiveSession(ctx context.Context, key chat.SessionKey, from, to string) error {
	return s.db.Update(ctx, "give a session", func(ctx context.Context, tx Tx) error {
		n, err := tx.Exec(ctx, `UPDATE sessions SET principal = $3, updated_at = {now} WHERE key = $1 AND principal = $2`, key.String(), from, to)
		if err != nil || n == 0 {
			return err
		}
		return giveToc(ctx, tx, key.String(), to)
	})
}

// ResetSession archives the transcript and begins an empty one; see store.Sessions. The archive is every entry under another session_id.
func (s Sessions) ResetSession(ctx context.Context, p store.ResetParams) (store.Session, error) {
	if p.NewID == "" {
		return store.Session{}, chat.Errorf(chat.CodeInvalid, "a new transcript needs an id")
	}
	return result(ctx, s.db.Update, "reset a session", func(ctx context.Context, tx Tx) (out store.Session, err error) {
		id, err := idempotent(ctx, tx, p.IdempotencyKey, func() (string, error) {
			out, err = reset(ctx, tx, p)
			return out.SessionID, err
		})
		if out.SessionID == "" {
			out.Key, out.SessionID = p.Session, id
		}
		return out, err
	})
}

func reset(ctx context.Context, tx Tx, p store.ResetParams) (store.Session, error) {
	first, err := makeSession(ctx, tx, p.Session, p.Principal)
	if err != nil {
		return store.Session{}, err
	}
	before := ""
	if _, err := one(ctx, tx, `SELECT session_id FROM sessions WHERE key = $1 {lock}`, into(&before), p.Session.String()); err != nil {
		return store.Session{}, err
	}
	if before != p.NewID {
		if err := tx.Later(ctx, `UPDATE sessions SET session_id = $2, updated_at = {now} WHERE key = $1`, nil, p.Session.String(), p.NewID); err != nil {
			return store.Session{}, err
		}
		if before == first { // it was created by this call
			before = ""
		}
		if err := audit(ctx, tx, p.Audit.Between(before, p.NewID), p.Session.String()); err != nil {
			return store.Session{}, err
		}
	}
	return readSession(ctx, tx, p.Session)
}
