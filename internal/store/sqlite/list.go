package sqlite

import (
	"cmp"
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultSessions is how many sessions a list has that does not say.
const defaultSessions = 50

// Two texts, because a statement cannot take its order as a parameter.
const (
	sessionsMatching = ` FROM sessions WHERE (? = '' OR principal = ?) AND (? = '' OR agent = ?) AND updated_at >= ?
		AND NOT (? AND key LIKE 'agent:' || agent || ':cron:%:%')`
	byUpdate  = ` ORDER BY updated_at DESC, key`
	byMessage = ` ORDER BY last_message_at DESC, key`
)

// ListSessions lists sessions, the one that changed last first, and says how many fit the filter.
func (s *Store) ListSessions(ctx context.Context, f store.SessionFilter) (list []store.Session, total int, err error) {
	err = s.view(ctx, "list sessions", func(ctx context.Context, q querier) (err error) {
		keys, n, err := matching(ctx, q, &f)
		if err != nil {
			return err
		}
		total = n
		for _, key := range keys {
			one, err := readSession(ctx, q, key)
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
func matching(ctx context.Context, q querier, f *store.SessionFilter) (page []chat.SessionKey, total int, err error) {
	order := byUpdate
	if f.ByLastMessage {
		order = byMessage
	}
	args := []any{f.Visible, f.Visible, f.Agent, f.Agent, millis(f.ActiveSince), bit(f.NoCronRuns)}
	limit, offset := cmp.Or(f.Limit, defaultSessions), max(f.Offset, 0)
	if f.Search == "" {
		if err := q.one(ctx, `SELECT count(*)`+sessionsMatching, args...).Scan(&total); err != nil {
			return nil, 0, err
		}
		rows, err := q.query(ctx, `SELECT key, ''`+sessionsMatching+order+` LIMIT ? OFFSET ?`, append(args, limit, offset)...)
		page, err = keysOf(collect(rows, err, scanShown))
		return page, total, err
	}
	rows, err := q.query(ctx, `SELECT key, preview`+sessionsMatching+order, args...)
	all, err := collect(rows, err, scanShown)
	if err != nil {
		return nil, 0, err
	}
	found := search(all, f.Search)
	from := min(offset, len(found))
	page, err = keysOf(found[from:min(from+limit, len(found))], nil)
	return page, len(found), err
}

// shown is what a search looks at.
type shown struct {
	key     chat.SessionKey
	preview string
}

func scanShown(row scanner) (v shown, err error) {
	err = row.Scan(keyColumn{&v.key}, &v.preview)
	return v, err
}

func search(all []shown, text string) []shown {
	text = strings.ToLower(text)
	var found []shown
	for _, v := range all {
		if strings.Contains(strings.ToLower(v.key.String()), text) || strings.Contains(strings.ToLower(v.preview), text) {
			found = append(found, v)
		}
	}
	return found
}

func keysOf(list []shown, err error) ([]chat.SessionKey, error) {
	keys := make([]chat.SessionKey, 0, len(list))
	for _, v := range list {
		keys = append(keys, v.key)
	}
	return keys, err
}
