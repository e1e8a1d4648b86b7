package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Locks are taken in this order: the row of a session, its row of toc_progress, the weeks, the months. Who changes parts holds the row of progress, and makes
// what is made of them due in the same transaction; so a week that was begun before does not end with what it has read.
const (
	notKept = ` AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = t.session_key AND k.session_id = t.session_id)`

	// tocBehindSQL finds the first entry of each session that no part stands for. $1 the principal of the gateway's own jobs, $2 the time, $3 how many.
	tocBehindSQL = `
SELECT s.key, s.principal, COALESCE(p.upto, 0), f.at FROM sessions s LEFT JOIN toc_progress p ON p.session_key = s.key
CROSS JOIN LATERAL (
	SELECT t.at FROM transcript t WHERE t.session_key = s.key AND t.seq > COALESCE(p.upto, 0)` + notKept + ` ORDER BY t.seq LIMIT 1
) f
WHERE s.transcript_seq > COALESCE(p.upto, 0) AND s.principal NOT IN ('', $1) AND s.key NOT LIKE 'agent:' || s.agent || ':cron:%:%'
	AND s.key NOT LIKE 'agent:' || s.agent || ':task:%' AND f.at < $2
ORDER BY f.at, s.key LIMIT $3`

	// tocEntriesSQL reads the entries of a session, $1, behind a number, $2. $3 how many, $4 bytes.
	tocEntriesSQL = `SELECT t.*, octet_length(t.content) AS page_size FROM transcript t WHERE t.session_key = $1 AND t.seq > $2` + notKept + ` ORDER BY t.seq LIMIT $3`

	lockTocSQL = `INSERT INTO toc_progress AS p (session_key, upto) VALUES ($1, 0) ON CONFLICT (session_key) DO UPDATE SET upto = p.upto`

	// tocPassSQL passes over entries when they may be added: $1 session, $2 owner, $3 the number before, $4 the last transcript, $5 the last number.
	tocPassSQL = `UPDATE toc_progress SET upto = $5 WHERE session_key = $1 AND upto = $3
		AND EXISTS (SELECT 1 FROM sessions WHERE key = $1 AND principal = $2)
		AND EXISTS (SELECT 1 FROM transcript t WHERE session_key = $1 AND session_id = $4 AND seq = $5` + notKept + `)`

	// tocPartSQL adds to a part. $1 clock, then the columns.
	tocPartSQL = `INSERT INTO toc_parts AS p (session_key, day, owner, week, month, from_seq, to_seq, entries, text, made, made_at)
		VALUES ($2, $3, $4, $5, $6, $7, $8, $9, $10, 1, ` + nowSQL + `)
		ON CONFLICT (session_key, day) DO UPDATE SET owner = excluded.owner, week = excluded.week, month = excluded.month, to_seq = excluded.to_seq,
			entries = p.entries + excluded.entries, text = excluded.text, made = p.made + 1, made_at = excluded.made_at`

	// tocDueSQL makes the weeks and the months of the parts of a session, $1, due. $2: their texts stay. $3 only those of a day; '' = all.
	tocDueSQL = `INSERT INTO toc_nodes AS n (owner, level, period, month)
		SELECT owner, 'week', week, month FROM toc_parts WHERE session_key = $1 AND ($3 = '' OR day = $3)
		UNION SELECT owner, 'month', month, '' FROM toc_parts WHERE session_key = $1 AND ($3 = '' OR day = $3) ORDER BY 2 DESC, 3, 1
		ON CONFLICT (owner, level, period) DO UPDATE SET stale = 1, claim = '', text = CASE WHEN $2::boolean THEN n.text ELSE '' END`

	tocGivenSQL   = `UPDATE toc_parts SET owner = $2 WHERE session_key = $1`
	tocRemovedSQL = `DELETE FROM toc_parts WHERE session_key = $1`
	tocForgetSQL  = `DELETE FROM toc_progress WHERE session_key = $1`

	tocListSQL  = `SELECT owner, level, period FROM toc_nodes WHERE stale = 1 AND level = $1 AND period <= $2 ORDER BY period, owner LIMIT $3`
	tocBeginSQL = `UPDATE toc_nodes SET claim = $5, claimed_at = ` + nowSQL + ` WHERE owner = $2 AND level = $3 AND period = $4 AND stale = 1
		AND (claim = '' OR claimed_at <= ` + nowSQL + ` - $6::bigint)`

	// tocEndSQL stores the text of a node that nothing has changed since it was begun. $1 clock, $2 to $4 the node, $5 claim, $6 text.
	tocEndSQL = `UPDATE toc_nodes SET text = $6, stale = 0, claim = '', made = made + 1, made_at = ` + nowSQL + `
		WHERE owner = $2 AND level = $3 AND period = $4 AND claim = $5 AND claim <> ''`
	tocMonthSQL = `UPDATE toc_nodes SET stale = 1, claim = '' WHERE owner = $1 AND level = 'month'
		AND period = (SELECT month FROM toc_nodes WHERE owner = $1 AND level = 'week' AND period = $2)`
	tocEmptySQL = `DELETE FROM toc_nodes WHERE owner = $1 AND level = $2 AND period = $3`

	// The summaries of days, and of weeks and months: $1 owner, $2 session, $3 and $4 periods, $5 level, $6 how many, $7 how many are passed over.
	tocDaysSQL = `SELECT owner, day AS period, text, made_at, made, 0::bigint AS stale, session_key, from_seq, to_seq, entries, octet_length(text) AS page_size
		FROM toc_parts WHERE ($1 = '' OR owner = $1) AND ($2 = '' OR session_key = $2) AND day >= $3 AND ($4 = '' OR day <= $4) AND $5 = 'day'
		ORDER BY day DESC, owner, session_key LIMIT $6 OFFSET $7`
	tocNodesSQL = `SELECT owner, period, text, made_at, made, stale, '' AS session_key, 0::bigint AS from_seq, 0::bigint AS to_seq, 0::bigint AS entries,
		octet_length(text) AS page_size
		FROM toc_nodes WHERE ($1 = '' OR owner = $1) AND $2 = '' AND period >= $3 AND ($4 = '' OR period <= $4) AND level = $5 AND text <> ''
		ORDER BY period DESC, owner LIMIT $6 OFFSET $7`
	tocColumns = `owner, period, text, made_at, made, stale = 1, session_key, from_seq, to_seq, entries`
)

// TocBehind lists sessions with entries that no part stands for, see store.Toc.
func (s *Store) TocBehind(ctx context.Context, before time.Time, limit int) (list []store.TocBehind, err error) {
	err = s.do(ctx, "looking for what is in no summary", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, tocBehindSQL, cron.SystemOwner, ms(before), max(limit, 0))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b store.TocBehind, err error) {
			var (
				key string
				at  int64
			)
			err = row.Scan(&key, &b.Owner, &b.After, &at)
			b.Session, b.At = parseKey(key), fromMillis(at)
			return b, err
		})
		return err
	})
	return list, err
}

// TocEntries reads entries of all transcripts of a session, see store.Toc.
func (s *Store) TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) (list []store.TocEntry, err error) {
	if maxBytes <= 0 {
		maxBytes = store.ReadBytes
	}
	err = s.do(ctx, "reading what is in no summary", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT t.session_id, `+entryReadColumns+` FROM `+within(tocEntriesSQL, "$4::bigint")+` t ORDER BY page_n`,
			key.String(), after, max(limit, 0), maxBytes)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e store.TocEntry, err error) {
			e.TranscriptEntry, err = scanEntry(behindColumns{row, []any{&e.SessionID}})
			return e, err
		})
		return err
	})
	return list, err
}

// PutTocPart adds entries to the part of their day, see store.Toc.
func (s *Store) PutTocPart(ctx context.Context, p store.TocPart) (added bool, err error) {
	key := p.Session.String()
	err = s.within(ctx, "storing a summary of a day", func(ctx context.Context, tx pgx.Tx) error {
		added = false
		if _, err := tx.Exec(ctx, lockTocSQL, key); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, tocPassSQL, key, p.Owner, p.After, p.LastID, p.To)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		added = true
		if p.Text == "" {
			return nil
		}
		b := &pgx.Batch{}
		b.Queue(tocPartSQL, s.clock(), key, p.Day, p.Owner, p.Week, p.Month, p.From, p.To, p.Entries, clean(p.Text))
		b.Queue(tocDueSQL, key, true, p.Day)
		return send(ctx, tx, b)
	})
	return added && err == nil, err
}

// TocDue lists what is to be made, see store.Toc.
func (s *Store) TocDue(ctx context.Context, level store.TocLevel, upto string, limit int) (list []store.TocRef, err error) {
	err = s.do(ctx, "looking for summaries that are due", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, tocListSQL, string(level), upto, max(limit, 0))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r store.TocRef, err error) {
			return r, row.Scan(&r.Owner, &r.Level, &r.Period)
		})
		return err
	})
	return list, err
}

// BeginTocNode notes that a week or a month is being made, see store.Toc.
func (s *Store) BeginTocNode(ctx context.Context, ref store.TocRef, claim string) (ok bool, err error) {
	err = s.do(ctx, "beginning a summary", func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, tocBeginSQL, s.clock(), ref.Owner, string(ref.Level), ref.Period, claim, store.TocClaimTime.Milliseconds())
		ok = tag.RowsAffected() == 1
		return err
	})
	return ok, err
}

// EndTocNode stores the text of a week or a month, see store.Toc.
func (s *Store) EndTocNode(ctx context.Context, ref store.TocRef, claim, text string) (ok bool, err error) {
	err = s.within(ctx, "storing a summary", func(ctx context.Context, tx pgx.Tx) error {
		ok = false
		tag, err := tx.Exec(ctx, tocEndSQL, s.clock(), ref.Owner, string(ref.Level), ref.Period, claim, clean(text))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		ok = true
		b := &pgx.Batch{}
		if ref.Level == store.TocWeek {
			b.Queue(tocMonthSQL, ref.Owner, ref.Period)
		}
		if text == "" {
			b.Queue(tocEmptySQL, ref.Owner, string(ref.Level), ref.Period)
		}
		if b.Len() == 0 {
			return nil
		}
		return send(ctx, tx, b)
	})
	return ok && err == nil, err
}

// Toc reads summaries, see store.Toc.
func (s *Store) Toc(ctx context.Context, q store.TocQuery) (list []store.TocNode, err error) {
	sql, key := tocNodesSQL, ""
	if q.Level == store.TocDay {
		sql = tocDaysSQL
	}
	if !q.Session.IsZero() {
		key = q.Session.String()
	}
	err = s.do(ctx, "reading summaries", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT `+tocColumns+` FROM `+within(sql, readBytes())+` t ORDER BY page_n`,
			q.Visible, key, q.From, q.To, string(q.Level), q.Most(), max(q.Offset, 0))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n store.TocNode, err error) {
			var (
				session string
				at      int64
			)
			n.Level = q.Level
			err = row.Scan(&n.Owner, &n.Period, &n.Text, &at, &n.Made, &n.Stale, &session, &n.From, &n.To, &n.Entries)
			if n.MadeAt = fromMillis(at); session != "" {
				n.Session = parseKey(session)
			}
			return n, err
		})
		return err
	})
	return list, err
}

// removeToc queues the removal of what a session was about. The texts that were made of it go, and what they were made of besides it makes them due.
func removeToc(b *pgx.Batch, key string) {
	b.Queue(lockTocSQL, key)
	b.Queue(tocDueSQL, key, false, "")
	b.Queue(tocRemovedSQL, key)
	b.Queue(tocForgetSQL, key)
}

// giveToc queues that what a session was about becomes a part of what another owner has.
func giveToc(b *pgx.Batch, key, to string) {
	b.Queue(lockTocSQL, key)
	b.Queue(tocDueSQL, key, false, "")
	b.Queue(tocGivenSQL, key, to)
	b.Queue(tocDueSQL, key, true, "")
}
