package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

const (
	// tocBehindSQL finds the first entry of each session that no part stands for. ?1 the principal of the gateway's own jobs, ?2 the time, ?3 how many.
	tocBehindSQL = `
WITH behind AS (
	SELECT s.key, s.principal, coalesce(p.upto, 0) AS upto FROM sessions s LEFT JOIN toc_progress p ON p.session_key = s.key
	WHERE s.transcript_seq > coalesce(p.upto, 0) AND s.principal NOT IN ('', ?1) AND s.key NOT LIKE 'agent:' || s.agent || ':cron:%:%'
		AND s.key NOT LIKE 'agent:' || s.agent || ':task:%'
), first AS (
	SELECT b.*, (SELECT t.at FROM transcript t WHERE t.session_key = b.key AND t.seq > b.upto` + notKept + ` ORDER BY t.seq LIMIT 1) AS at FROM behind b
)
SELECT key, principal, upto, at FROM first WHERE at < ?2 ORDER BY at, key LIMIT +?3`

	tocEntriesSQL = `SELECT session_id, ` + entryColumns + ` FROM transcript t WHERE session_key = ? AND seq > ?` + notKept + ` ORDER BY seq LIMIT +?`

	notKept = ` AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)`

	// tocIsSQL reports whether a part may be added: ?1 session, ?2 owner, ?3 the number before, ?4 the last transcript and ?5 the last number.
	tocIsSQL = `SELECT EXISTS (SELECT 1 FROM sessions WHERE key = ?1 AND principal = ?2)
		AND coalesce((SELECT upto FROM toc_progress WHERE session_key = ?1), 0) = ?3
		AND EXISTS (SELECT 1 FROM transcript t WHERE session_key = ?1 AND session_id = ?4 AND seq = ?5` + notKept + `)`

	tocPartSQL = `INSERT INTO toc_parts (session_key, day, owner, week, month, from_seq, to_seq, entries, text, made, made_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?)
		ON CONFLICT DO UPDATE SET owner = excluded.owner, week = excluded.week, month = excluded.month, to_seq = excluded.to_seq,
			entries = entries + excluded.entries, text = excluded.text, made = made + 1, made_at = excluded.made_at`

	// tocDueSQL makes the weeks and the months of the parts of a session due. ?2: their texts stay.
	tocDueSQL = `INSERT INTO toc_nodes (owner, level, period, month)
		SELECT owner, 'week', week, month FROM toc_parts WHERE session_key = ?1 AND (?3 = '' OR day = ?3)
		UNION SELECT owner, 'month', month, '' FROM toc_parts WHERE session_key = ?1 AND (?3 = '' OR day = ?3)
		ON CONFLICT DO UPDATE SET stale = 1, claim = '', text = iif(?2, text, '')`

	tocMonthSQL = `UPDATE toc_nodes SET stale = 1, claim = '' WHERE owner = ?1 AND level = 'month'
		AND period = (SELECT month FROM toc_nodes WHERE owner = ?1 AND level = 'week' AND period = ?2)`

	tocDaysSQL = `SELECT owner, day, text, made_at, made, 0, session_key, from_seq, to_seq, entries FROM toc_parts
		WHERE (?1 = '' OR owner = ?1) AND (?2 = '' OR session_key = ?2) AND day >= ?3 AND (?4 = '' OR day <= ?4) AND ?5 = 'day'
		ORDER BY day DESC, owner, session_key LIMIT +?6 OFFSET ?7`

	tocNodesSQL = `SELECT owner, period, text, made_at, made, stale, '', 0, 0, 0 FROM toc_nodes
		WHERE (?1 = '' OR owner = ?1) AND ?2 = '' AND period >= ?3 AND (?4 = '' OR period <= ?4) AND level = ?5 AND text <> ''
		ORDER BY period DESC, owner LIMIT +?6 OFFSET ?7`
)

// TocBehind lists sessions with entries that no part stands for; see the port.
func (s *Store) TocBehind(ctx context.Context, before time.Time, limit int) (list []store.TocBehind, err error) {
	err = s.view(ctx, "look for what is in no summary", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, tocBehindSQL, cron.SystemOwner, millis(before), max(limit, 0))
		list, err = collect(rows, err, func(row scanner) (b store.TocBehind, err error) {
			return b, row.Scan(keyColumn{&b.Session}, &b.Owner, &b.After, timeColumn{&b.At})
		})
		return err
	})
	return list, err
}

// TocEntries reads entries of all transcripts of a session; see the port.
func (s *Store) TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) (list []store.TocEntry, err error) {
	err = s.view(ctx, "read what is in no summary", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, tocEntriesSQL, key.String(), after, max(limit, 0))
		list, err = collectWithin(rows, err, scanTocEntry, store.NewBudget(maxBytes), func(e store.TocEntry) int { return len(e.Text) })
		return err
	})
	return list, err
}

func scanTocEntry(row scanner) (e store.TocEntry, err error) {
	e.TranscriptEntry, err = scanEntry(behind{row, &e.SessionID})
	return e, err
}

// behind is a row with one more column in front of those that are read.
type behind struct {
	scanner

	first any
}

// Scan reads the column in front, too.
func (b behind) Scan(dest ...any) error { return b.scanner.Scan(append([]any{b.first}, dest...)...) }

// PutTocPart adds entries to the part of their day; see the port.
func (s *Store) PutTocPart(ctx context.Context, p store.TocPart) (bool, error) {
	return result(ctx, s.write, ordinary("store a summary of a day"), func(ctx context.Context, t *tx) (is bool, err error) {
		key := p.Session.String()
		if err := t.one(ctx, tocIsSQL, key, p.Owner, p.After, p.LastID, p.To).Scan(&is); err != nil || !is {
			return false, err
		}
		if _, err := t.exec(ctx, `REPLACE INTO toc_progress (session_key, upto) VALUES (?, ?)`, key, p.To); err != nil || p.Text == "" {
			return err == nil, err
		}
		if _, err := t.exec(ctx, tocPartSQL, key, p.Day, p.Owner, p.Week, p.Month, p.From, p.To, p.Entries, p.Text, t.now); err != nil {
			return false, err
		}
		_, err = t.exec(ctx, tocDueSQL, key, true, p.Day)
		return err == nil, err
	})
}

// TocDue lists what is to be made; see the port.
func (s *Store) TocDue(ctx context.Context, level store.TocLevel, upto string, limit int) (list []store.TocRef, err error) {
	err = s.view(ctx, "look for summaries that are due", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT owner, level, period FROM toc_nodes WHERE stale = 1 AND level = ? AND period <= ? ORDER BY period, owner LIMIT +?`,
			level, upto, max(limit, 0))
		list, err = collect(rows, err, func(row scanner) (r store.TocRef, err error) { return r, row.Scan(&r.Owner, &r.Level, &r.Period) })
		return err
	})
	return list, err
}

// BeginTocNode notes that a week or a month is being made; see the port.
func (s *Store) BeginTocNode(ctx context.Context, ref store.TocRef, claim string) (bool, error) {
	return result(ctx, s.write, ordinary("begin a summary"), func(ctx context.Context, t *tx) (bool, error) {
		n, err := t.exec(ctx, `UPDATE toc_nodes SET claim = ?, claimed_at = ? WHERE owner = ? AND level = ? AND period = ? AND stale = 1
			AND (claim = '' OR claimed_at <= ?)`, claim, t.now, ref.Owner, ref.Level, ref.Period, t.now-store.TocClaimTime.Milliseconds())
		return n == 1, err
	})
}

// EndTocNode stores the text of a week or a month; see the port.
func (s *Store) EndTocNode(ctx context.Context, ref store.TocRef, claim, text string) (bool, error) {
	return result(ctx, s.write, ordinary("store a summary"), func(ctx context.Context, t *tx) (bool, error) {
		n, err := t.exec(ctx, `UPDATE toc_nodes SET text = ?, stale = 0, claim = '', made = made + 1, made_at = ?
			WHERE owner = ? AND level = ? AND period = ? AND claim = ? AND claim <> ''`, text, t.now, ref.Owner, ref.Level, ref.Period, claim)
		if err != nil || n == 0 {
			return false, err
		}
		if ref.Level == store.TocWeek {
			if _, err := t.exec(ctx, tocMonthSQL, ref.Owner, ref.Period); err != nil {
				return false, err
			}
		}
		if text == "" {
			_, err = t.exec(ctx, `DELETE FROM toc_nodes WHERE owner = ? AND level = ? AND period = ?`, ref.Owner, ref.Level, ref.Period)
		}
		return err == nil, err
	})
}

// Toc reads summaries; see the port.
func (s *Store) Toc(ctx context.Context, q store.TocQuery) (list []store.TocNode, err error) {
	sql, key := tocNodesSQL, ""
	if q.Level == store.TocDay {
		sql = tocDaysSQL
	}
	if !q.Session.IsZero() {
		key = q.Session.String()
	}
	err = s.view(ctx, "read summaries", func(ctx context.Context, r querier) error {
		rows, err := r.query(ctx, sql, q.Visible, key, q.From, q.To, q.Level, q.Most(), max(q.Offset, 0))
		read := func(row scanner) (n store.TocNode, err error) {
			n.Level = q.Level
			return n, row.Scan(&n.Owner, &n.Period, &n.Text, timeColumn{&n.MadeAt}, &n.Made, &n.Stale, keyColumn{&n.Session}, &n.From, &n.To, &n.Entries)
		}
		list, err = collectWithin(rows, err, read, store.NewBudget(0), func(n store.TocNode) int { return len(n.Text) })
		return err
	})
	return list, err
}

// removeToc removes what a session was about. The texts that were made of it go, and what they were made of besides it makes them due.
func (t *tx) removeToc(ctx context.Context, key string) error {
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{tocDueSQL, []any{key, false, ""}},
		{`DELETE FROM toc_parts WHERE session_key = ?`, []any{key}},
		{`DELETE FROM toc_progress WHERE session_key = ?`, []any{key}},
	} {
		if _, err := t.exec(ctx, step.sql, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// giveToc makes what a session was about a part of what another owner has.
func (t *tx) giveToc(ctx context.Context, key, to string) error {
	if _, err := t.exec(ctx, tocDueSQL, key, false, ""); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `UPDATE toc_parts SET owner = ? WHERE session_key = ?`, to, key); err != nil {
		return err
	}
	_, err := t.exec(ctx, tocDueSQL, key, true, "")
	return err
}
