package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultEntries is how many transcript entries are read without a limit.
const defaultEntries = 200

const entryReadColumns = `t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.from_seq, t.to_seq, t.at`

func scanEntry(row pgx.CollectableRow) (chat.TranscriptEntry, error) {
	var (
		e      chat.TranscriptEntry
		sender string
		at     int64
	)
	err := row.Scan(&e.Seq, &e.RunID, &e.Role, &e.Text, &sender, &e.Tokens, &e.StopReason, &e.Command, &e.Covers.From, &e.Covers.To, &at)
	if err != nil {
		return e, err
	}
	e.At = fromMillis(at)
	if sender == "" {
		return e, nil
	}
	if err := json.Unmarshal([]byte(sender), &e.Sender); err != nil {
		return e, fmt.Errorf("reading the sender of transcript entry %d: %w", e.Seq, err)
	}
	return e, nil
}

// appendSQL adds entries to the current transcript. Numbers grow over all transcripts of a session, so that a late entry of an archived one
// has its own, too. $3 number of entries, $4 the entries.
const appendSQL = `
WITH s AS (
	UPDATE sessions SET transcript_seq = transcript_seq + $3::bigint, updated_at = ` + nowSQL + ` WHERE key = $2
	RETURNING session_id, transcript_seq, updated_at AS now
), appended AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, s.session_id, s.transcript_seq - $3::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s, ` + entriesFrom + `($4::json)` + entriesAs + `
)
SELECT transcript_seq, now FROM s`

// AppendTranscript adds entries outside of a run, see store.Sessions.
func (s *Store) AppendTranscript(
	ctx context.Context, key chat.SessionKey, principal string, entries []chat.TranscriptEntry,
) ([]chat.TranscriptEntry, error) {
	entriesJSON, err := encodeEntries(entries, "")
	if err != nil {
		return nil, err
	}
	var last, now int64
	err = s.withSession(ctx, "appending to a transcript", key, principal, func(b *pgx.Batch) {
		b.Queue(appendSQL, s.clock(), key.String(), len(entries), entriesJSON).
			QueryRow(func(row pgx.Row) error { return row.Scan(&last, &now) })
	})
	if err != nil {
		return nil, err
	}
	return numbered(entries, last, fromMillis(now)), nil
}

// AppendSummary adds a summary, see store.Sessions. One round trip.
func (s *Store) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	e = p.Entry()
	e.Text = clean(e.Text)
	var at int64
	err = s.do(ctx, "appending a summary", func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, appendSummarySQL, s.clock(), p.Session.String(), p.SessionID, p.RunID, e.Text, p.Tokens, p.Covers.From, p.Covers.To).
			Scan(&e.Seq, &at)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return chat.TranscriptEntry{}, false, nil
	}
	e.At = fromMillis(at)
	return e, err == nil, err
}

// appendReplySQL adds one entry unless the reply exists, and returns its number, its time and the session's principal. It returns nothing
// when the session belongs to another principal and $6 is set. $3 the entry, $4 id of the reply, $5 principal, $6 whether the session must
// be theirs.
const appendReplySQL = `
WITH had AS (
	SELECT seq, at FROM transcript WHERE session_key = $2 AND reply_id = $4 AND reply_id <> ''
), s AS (
	UPDATE sessions SET transcript_seq = transcript_seq + 1, updated_at = ` + nowSQL + `
	WHERE key = $2 AND (principal = $5 OR NOT $6::boolean) AND NOT EXISTS (SELECT 1 FROM had)
	RETURNING session_id, principal, transcript_seq, updated_at AS now
), appended AS (
	INSERT INTO transcript (` + entryColumns + `, reply_id)
	SELECT $2, s.session_id, s.transcript_seq, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now, $4
	FROM s, ` + entriesFrom + `($3::json)` + entriesAs + `
)
SELECT transcript_seq, now, principal FROM s
UNION ALL SELECT had.seq, had.at, o.principal FROM had JOIN sessions o ON o.key = $2 AND (o.principal = $5 OR NOT $6::boolean)`

// AppendReply adds one entry as the delivery of a reply, see store.Sessions. Of two concurrent deliveries of one reply a unique index
// refuses the second, which then finds the first one's entry.
func (s *Store) AppendReply(ctx context.Context, p store.ReplyParams) (store.Replied, error) {
	list := []chat.TranscriptEntry{p.Entry}
	entriesJSON, err := encodeEntries(list, "")
	if err != nil {
		return store.Replied{}, err
	}
	var (
		seq, at int64
		out     store.Replied
	)
	err = s.withSession(ctx, "delivering a reply into a transcript", p.Session, p.Principal, func(b *pgx.Batch) {
		b.Queue(appendReplySQL, s.clock(), p.Session.String(), entriesJSON, p.ID, p.Principal, p.Own).
			QueryRow(func(row pgx.Row) error { return row.Scan(&seq, &at, &out.Principal) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return store.Replied{}, chat.ErrSessionNotFound
	}
	if err != nil {
		return store.Replied{}, err
	}
	out.Entry = numbered(list, seq, fromMillis(at))[0]
	return out, nil
}

const (
	// appendSummarySQL adds a summary unless one stands for the row already. The condition is read again when another writer was first. $3 transcript, $4
	// run, $5 text, $6 tokens, $7 first row, $8 last row. A run whose summary is the newest one gets it again: its commit was not answered.
	appendSummarySQL = `
WITH s AS (
	UPDATE sessions SET transcript_seq = transcript_seq + 1, summary_id = session_id, summary_seq = transcript_seq + 1, summary_to = $8::bigint,
		updated_at = ` + nowSQL + `
	WHERE key = $2 AND session_id = $3 AND NOT (summary_id = session_id AND summary_to >= $8::bigint)
	RETURNING session_id, transcript_seq, updated_at AS now
), appended AS (
	INSERT INTO transcript (` + entryColumns + `, from_seq, to_seq)
	SELECT $2, s.session_id, s.transcript_seq, $4, '` + chat.RoleSystem + `', $5, '', $6::bigint, '` + store.StopSummary + `', false, s.now, $7::bigint, $8::bigint FROM s
)
SELECT transcript_seq, now FROM s
UNION ALL SELECT t.seq, t.at FROM sessions x JOIN transcript t ON t.session_key = x.key AND t.session_id = x.session_id AND t.seq = x.summary_seq
WHERE x.key = $2 AND x.session_id = $3 AND x.summary_id = $3 AND t.run_id = $4 AND NOT EXISTS (SELECT 1 FROM s)`

	// summarySQL reads the newest summary of a session's current transcript. $1 session, $2 transcript, '' = the current one.
	summarySQL = `
SELECT ` + entryReadColumns + ` FROM sessions s
JOIN transcript t ON t.session_key = s.key AND t.session_id = s.summary_id AND t.seq = s.summary_seq
WHERE s.key = $1 AND s.summary_id = s.session_id AND $2 IN ('', s.session_id)`

	currentSQL = `SELECT session_id FROM sessions WHERE key = $1`

	// The transcript to read and the selected part of it: $2, or the session's current one. A transcript that a deletion kept is for its
	// owner ($4, '' = for all), every other one belongs to the session.
	entriesWhere = `
FROM transcript t
WHERE t.session_key = $1 AND t.session_id = (SELECT CASE WHEN $2 = '' THEN (SELECT session_id FROM sessions WHERE key = $1) ELSE $2 END)
  AND ($3 = '' OR t.run_id = $3)
  AND (SELECT CASE WHEN $2 = '' OR EXISTS (SELECT 1 FROM sessions WHERE key = $1 AND session_id = $2) THEN true
	WHEN EXISTS (SELECT 1 FROM kept_transcripts WHERE session_key = $1 AND session_id = $2)
	THEN EXISTS (SELECT 1 FROM kept_transcripts WHERE session_key = $1 AND session_id = $2 AND ($4 = '' OR principal = $4))
	ELSE EXISTS (SELECT 1 FROM sessions WHERE key = $1) END)`

	countEntriesSQL = `SELECT count(*), COALESCE(max(t.seq), 0)` + entriesWhere

	// $5 how many characters a text may have, 0 = all it has; $6 bytes of all texts; $7 limit; $8 a sequence number, or how many entries are passed over.
	forwardSQL  = `SELECT t.* ` + entriesWhere + ` AND t.seq > $8 ORDER BY t.seq LIMIT $7`
	backwardSQL = `SELECT t.* ` + entriesWhere + ` ORDER BY t.seq DESC LIMIT $7 OFFSET $8`

	// cutSQL is the text of an entry, cut as store.FirstChars does. A text has at least as many bytes as characters.
	cutSQL = `CASE WHEN $5::bigint > 0 AND octet_length(t.content) > $5::bigint THEN left(t.content, $5::integer + 1) ELSE t.content END`
)

// pageOf is the statement that reads the entries of one of the queries above.
func pageOf(query string) string {
	cut := `SELECT c.*, octet_length(c.content) AS page_size FROM (
		SELECT t.seq, t.run_id, t.role, ` + cutSQL + ` AS content, t.sender, t.tokens, t.stop_reason, t.command, t.from_seq, t.to_seq, t.at FROM (` + query + `) t OFFSET 0) c`
	return `SELECT ` + entryReadColumns + ` FROM ` + within(cut, "$6::bigint") + ` t ORDER BY page_n`
}

// Transcript reads a piece of a transcript, see store.TranscriptQuery.
func (s *Store) Transcript(ctx context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	var out store.Transcript
	forward := q.After > 0 || q.FromStart
	page, place := pageOf(backwardSQL), int64(max(q.Offset, 0))
	if forward {
		page, place = pageOf(forwardSQL), q.After
	}
	key := q.Session.String()
	err := s.do(ctx, "reading a transcript", func(ctx context.Context) error {
		out = store.Transcript{}
		args := []any{key, q.SessionID, q.RunID, q.Visible}
		b := &pgx.Batch{}
		b.Queue(currentSQL, key).QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&out.SessionID); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
		if q.Summary {
			b.Queue(summarySQL, key, q.SessionID).Query(func(rows pgx.Rows) error {
				list, err := pgx.CollectRows(rows, scanEntry)
				if len(list) > 0 {
					out.Summary = list[0]
				}
				return err
			})
		}
		b.Queue(countEntriesSQL, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Total, &out.LastSeq) })
		b.Queue(page, append(args, max(q.MaxChars, 0), cmp.Or(q.MaxBytes, store.ReadBytes), cmp.Or(q.Limit, defaultEntries), place)...).
			Query(collect(&out.Entries, scanEntry))
		return send(ctx, s.pool, b)
	})
	if !forward {
		slices.Reverse(out.Entries)
	}
	return out, err
}

// runEntries reads the newest n entries of a run, oldest first.
func (s *Store) runEntries(ctx context.Context, key chat.SessionKey, runID string, n int) ([]chat.TranscriptEntry, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+entryReadColumns+` FROM transcript t
		WHERE t.session_key = $1 AND t.session_id = (SELECT session_id FROM runs WHERE id = $2) AND t.run_id = $2
		ORDER BY t.seq DESC LIMIT $3`, key.String(), runID, n)
	if err != nil {
		return nil, err
	}
	entries, err := pgx.CollectRows(rows, scanEntry)
	slices.Reverse(entries)
	return entries, err
}
