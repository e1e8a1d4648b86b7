package sqlstore

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Contents is the table of contents of conversations.
//
// Locks are taken in this order: the row of a session, its row of toc_progress, the weeks, the
// months. A transaction that changes parts holds the row of toc_progress and makes the weeks and
// months of these parts due. So a week that was begun before cannot be stored from outdated parts.
type Contents struct{ db Engine }

const (
	notKept = ` AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)`

	// tocBehindSQL finds the first entry of each session that no part covers. $1 the principal of
	// the gateway's own jobs, $2 the time, $3 how many.
	tocBehindSQL = `WITH uncovered AS (
			SELECT s.key, s.principal, COALESCE(p.upto, 0) AS upto FROM sessions s LEFT JOIN toc_progress p ON p.session_key = s.key
			WHERE s.transcript_seq > COALESCE(p.upto, 0) AND s.principal NOT IN ('', $1) AND s.key NOT LIKE 'agent:' || s.agent || ':cron:%:%'
				AND s.key NOT LIKE 'agent:' || s.agent || ':task:%'
		), first AS (
			SELECT b.*, (SELECT t.at FROM transcript t WHERE t.session_key = b.key AND t.seq > b.upto` + notKept + ` ORDER BY t.seq LIMIT 1) AS at FROM uncovered b
		)
		SELECT key, principal, upto, at FROM first WHERE at < $2 ORDER BY at, key {limit $3}`

	// tocEntriesSQL reads the entries of a session, $1, after a number, $2. $3 how many.
	tocEntriesSQL = `SELECT t.*, octet_length(t.content) AS page_size FROM transcript t WHERE t.session_key = $1 AND t.seq > $2` + notKept + ` ORDER BY t.seq {limit $3}`

	lockTocSQL = `INSERT INTO toc_progress AS p (session_key, upto) SELECT key, 0 FROM sessions WHERE key = $1
		ON CONFLICT (session_key) DO UPDATE SET upto = p.upto`

	// tocPassSQL moves the progress past entries when they may be added: $1 session, $2 owner, $3
	// the previous number, $4 the last transcript, $5 the last number.
	tocPassSQL = `UPDATE toc_progress SET upto = $5 WHERE session_key = $1 AND upto = $3
		AND EXISTS (SELECT 1 FROM sessions WHERE key = $1 AND principal = $2)
		AND EXISTS (SELECT 1 FROM transcript t WHERE session_key = $1 AND session_id = $4 AND seq = $5` + notKept + `)`

	tocPartSQL = `INSERT INTO toc_parts AS p (session_key, day, owner, week, month, from_seq, to_seq, entries, text, made, made_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, {now})
		ON CONFLICT (session_key, day) DO UPDATE SET owner = excluded.owner, week = excluded.week, month = excluded.month, to_seq = excluded.to_seq,
			entries = p.entries + excluded.entries, text = excluded.text, made = p.made + 1, made_at = excluded.made_at`

	// tocDueSQL makes the weeks and the months of the parts of a session, $1, due. With $2 they
	// keep their text. $3 restricts to one day; '' = all.
	tocDueSQL = `INSERT INTO toc_nodes AS n (owner, level, period, month)
		SELECT owner, 'week', week, month FROM toc_parts WHERE session_key = $1 AND ($3 = '' OR day = $3)
		UNION SELECT owner, 'month', month, '' FROM toc_parts WHERE session_key = $1 AND ($3 = '' OR day = $3) ORDER BY 2 DESC, 3, 1
		ON CONFLICT (owner, level, period) DO UPDATE SET stale = 1, claim = '', text = CASE WHEN CAST($2 AS boolean) THEN n.text ELSE '' END`

	tocBeginSQL = `UPDATE toc_nodes SET claim = $4, claimed_at = {now} WHERE owner = $1 AND level = $2 AND period = $3 AND stale = 1
		AND (claim = '' OR claimed_at <= {now} - $5)`

	// tocEndSQL stores the text of a node that has not changed since it was begun. $1 to $3 the
	// node, $4 claim, $5 text.
	tocEndSQL = `UPDATE toc_nodes SET text = $5, stale = 0, claim = '', made = made + 1, made_at = {now}
		WHERE owner = $1 AND level = $2 AND period = $3 AND claim = $4 AND claim <> ''`

	tocMonthSQL = `UPDATE toc_nodes SET stale = 1, claim = '' WHERE owner = $1 AND level = 'month'
		AND period = (SELECT month FROM toc_nodes WHERE owner = $1 AND level = 'week' AND period = $2)`

	// The summaries of days, and of weeks and months: $1 owner, $2 session, $3 and $4 periods, $5
	// level, $6 limit, $7 offset.
	tocDaysSQL = `SELECT owner, day AS period, text, made_at, made, 0 AS stale, session_key, from_seq, to_seq, entries, octet_length(text) AS page_size
		FROM toc_parts WHERE ($1 = '' OR owner = $1) AND ($2 = '' OR session_key = $2) AND day >= $3 AND ($4 = '' OR day <= $4) AND $5 = 'day'
		ORDER BY day DESC, owner, session_key {limit $6} OFFSET $7`
	tocNodesSQL = `SELECT owner, period, text, made_at, made, stale, '' AS session_key, 0 AS from_seq, 0 AS to_seq, 0 AS entries, octet_length(text) AS page_size
		FROM toc_nodes WHERE ($1 = '' OR owner = $1) AND $2 = '' AND period >= $3 AND ($4 = '' OR period <= $4) AND level = $5 AND text <> ''
		ORDER BY period DESC, owner {limit $6} OFFSET $7`
	tocColumns = `owner, period, text, made_at, made, stale = 1, session_key, from_seq, to_seq, entries`
)

// TocBehind lists sessions with entries that no part covers; see store.Store.
func (s Contents) TocBehind(ctx context.Context, before time.Time, limit int) ([]store.TocBehind, error) {
	return list(ctx, s.db, query{"find entries without a summary", tocBehindSQL, []any{cron.SystemOwner, millis(before), max(limit, 0)}},
		func(r Row) (b store.TocBehind, err error) {
			err = r.Scan(keyColumn{&b.Session}, &b.Owner, &b.After, instant{&b.At})
			return b, err
		})
}

// TocEntries reads entries of all transcripts of a session; see store.Store.
func (s Contents) TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) (list []store.TocEntry, err error) {
	p := page{columns: `session_id, ` + entryColumns, rows: tocEntriesSQL, bytes: maxBytes, args: []any{key.String(), after, max(limit, 0)}}
	err = s.db.View(ctx, "read what is in no summary", func(ctx context.Context, tx Tx) (err error) {
		list, err = readPage(ctx, tx, p, func(r Row) (e store.TocEntry, err error) {
			e.TranscriptEntry, err = scanEntry(prefixed{r, []any{&e.SessionID}})
			return e, err
		})
		return err
	})
	return list, err
}

// PutTocPart adds entries to the part of their day; see store.Store.
func (s Contents) PutTocPart(ctx context.Context, p store.TocPart) (added bool, err error) {
	return result(ctx, s.db.Update, "store a summary of a day", func(ctx context.Context, tx Tx) (added bool, err error) {
		key := p.Session.String()
		if err := tx.Later(ctx, lockTocSQL, nil, key); err != nil {
			return false, err
		}
		n, err := tx.Exec(ctx, tocPassSQL, key, p.Owner, p.After, p.LastID, p.To)
		if err != nil || n == 0 || p.Text == "" {
			return n > 0, err
		}
		if err := tx.Later(ctx, tocPartSQL, nil, key, p.Day, p.Owner, p.Week, p.Month, p.From, p.To, p.Entries, p.Text); err != nil {
			return false, err
		}
		return true, tx.Later(ctx, tocDueSQL, nil, key, true, p.Day)
	})
}

// TocDue lists due summaries; see store.Store.
func (s Contents) TocDue(ctx context.Context, level store.TocLevel, upto string, limit int) ([]store.TocRef, error) {
	return list(ctx, s.db, query{
		"find due summaries",
		`SELECT owner, level, period FROM toc_nodes WHERE stale = 1 AND level = $1 AND period <= $2 ORDER BY period, owner {limit $3}`,
		[]any{string(level), upto, max(limit, 0)},
	}, func(r Row) (ref store.TocRef, err error) {
		err = r.Scan(&ref.Owner, &ref.Level, &ref.Period)
		return ref, err
	})
}

// BeginTocNode records that the summary of a week or a month is being made; see store.Store.
func (s Contents) BeginTocNode(ctx context.Context, ref store.TocRef, claim string) (ok bool, err error) {
	return result(ctx, s.db.Update, "begin a summary", func(ctx context.Context, tx Tx) (bool, error) {
		n, err := tx.Exec(ctx, tocBeginSQL, ref.Owner, string(ref.Level), ref.Period, claim, store.TocClaimTime.Milliseconds())
		return n == 1, err
	})
}

// EndTocNode stores the summary of a week or a month; see store.Store.
func (s Contents) EndTocNode(ctx context.Context, ref store.TocRef, claim, text string) (ok bool, err error) {
	return result(ctx, s.db.Update, "store a summary", func(ctx context.Context, tx Tx) (bool, error) {
		n, err := tx.Exec(ctx, tocEndSQL, ref.Owner, string(ref.Level), ref.Period, claim, text)
		if err == nil && n > 0 && ref.Level == store.TocWeek {
			err = tx.Later(ctx, tocMonthSQL, nil, ref.Owner, ref.Period)
		}
		if err == nil && n > 0 && text == "" {
			err = tx.Later(ctx, `DELETE FROM toc_nodes WHERE owner = $1 AND level = $2 AND period = $3`, nil, ref.Owner, string(ref.Level), ref.Period)
		}
		return n > 0, err
	})
}

// Toc reads summaries; see store.Store.
func (s Contents) Toc(ctx context.Context, q store.TocQuery) (list []store.TocNode, err error) {
	rows, key := tocNodesSQL, ""
	if q.Level == store.TocDay {
		rows = tocDaysSQL
	}
	if !q.Session.IsZero() {
		key = q.Session.String()
	}
	p := page{columns: tocColumns, rows: rows, args: []any{q.Visible, key, q.From, q.To, string(q.Level), q.Most(), max(q.Offset, 0)}}
	err = s.db.List(ctx, "read summaries", func(ctx context.Context, tx Tx) (err error) {
		list, err = readPage(ctx, tx, p, func(r Row) (n store.TocNode, err error) {
			n.Level = q.Level
			err = r.Scan(&n.Owner, &n.Period, &n.Text, instant{&n.MadeAt}, &n.Made, &n.Stale, keyColumn{&n.Session}, &n.From, &n.To, &n.Entries)
			return n, err
		})
		return err
	})
	return list, err
}

// removeToc removes the parts of a session. The summaries that include them lose their text and are
// due again.
func removeToc(ctx context.Context, tx Tx, key string) error {
	return later(ctx, tx, with(lockTocSQL, key), with(tocDueSQL, key, false, ""),
		with(`DELETE FROM toc_parts WHERE session_key = $1`, key), with(`DELETE FROM toc_progress WHERE session_key = $1`, key))
}

// giveToc moves the parts of a session to another owner.
func giveToc(ctx context.Context, tx Tx, key, to string) error {
	return later(ctx, tx, with(lockTocSQL, key), with(tocDueSQL, key, false, ""),
		with(`UPDATE toc_parts SET owner = $2 WHERE session_key = $1`, key, to), with(tocDueSQL, key, true, ""))
}
