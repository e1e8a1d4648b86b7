package sqlite

import (
	"cmp"
	"context"

	"laneway/internal/store"
)

// defaultSessions is how many sessions a list has without a limit.
const defaultSessions = 50

// Two texts, because a statement cannot take its order as a parameter.
const (
	sessionsMatching = ` FROM sessions WHERE (?2 = '' OR principal = ?2) AND (?3 = '' OR agent = ?3) AND updated_at >= ?1
		AND NOT (?4 AND (key LIKE 'agent:' || agent || ':cron:%:%' OR key LIKE 'agent:' || agent || ':task:%'))`
	// sessionBytes are the bytes of the texts of a row whose length has no other bound.
	sessionBytes = `octet_length(notes) + octet_length(preview) + octet_length(last_error)`
	byUpdate     = ` ORDER BY updated_at DESC, key`
	byMessage    = ` ORDER BY last_message_at DESC, key`
)

// ListSessions lists sessions, the one that changed last first, and returns how many match the filter.
func (s *Store) ListSessions(ctx context.Context, f store.SessionFilter) (list []store.Session, total int, err error) {
	err = s.view(ctx, "list sessions", func(ctx context.Context, q querier) (err error) {
		keys, n, err := matching(ctx, q, &f)
		if err != nil {
			return err
		}
		total = n
		for _, key := range keys {
			one, err := readSession(ctx, q, sessionKey(key))
			if err != nil {
				return err
			}
			list = append(list, one)
		}
		return nil
	})
	return list, total, err
}

// matching finds the keys of one page. A search compares in Go: SQLite folds the case of ASCII letters only.
func matching(ctx context.Context, q querier, f *store.SessionFilter) (keys []string, total int, err error) {
	order := byUpdate
	if f.ByLastMessage {
		order = byMessage
	}
	args := []any{millis(f.ActiveSince), f.Visible, f.Agent, bit(f.NoRuns)}
	limit, offset := cmp.Or(f.Limit, defaultSessions), max(f.Offset, 0)
	if f.Search == "" {
		if err := q.one(ctx, `SELECT count(*)`+sessionsMatching, args...).Scan(&total); err != nil {
			return nil, 0, err
		}
		rows, err := q.query(ctx, `SELECT key, `+sessionBytes+sessionsMatching+order+` LIMIT +?5 OFFSET ?6`, append(args, limit, offset)...)
		keys, err = idsWithin(rows, err, store.NewBudget(0))
		return keys, total, err
	}
	found := page{limit: limit, offset: offset, budget: store.NewBudget(0)}
	rows, err := q.query(ctx, `SELECT key, `+sessionBytes+`, preview`+sessionsMatching+order, args...)
	if err := found.search(rows, err, 1, f.Search); err != nil {
		return nil, 0, err
	}
	return found.ids, found.total, nil
}

// CountNamed counts the sessions of a principal whose keys a client has chosen.
func (s *Store) CountNamed(ctx context.Context, principal string) (n int, err error) {
	err = s.view(ctx, "count the named sessions of a principal", func(ctx context.Context, q querier) error {
		return q.one(ctx, `
			SELECT count(*) FROM (SELECT substr(key, length(agent) + 8) AS rest FROM sessions WHERE principal = ?)
			WHERE rest <> 'main' AND rest NOT GLOB 'cron:*:*' AND rest NOT GLOB 'task:*' AND (rest NOT GLOB 'api:*' OR rest GLOB 'api:*:*')`, principal).Scan(&n)
	})
	return n, err
}
