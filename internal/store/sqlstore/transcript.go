package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultEntries is how many entries of a transcript are read without a limit.
const defaultEntries = 200

const (
	entryColumns = `seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, outside, origin, at`

	// transcriptsSQL is a session's current transcript and last number, the owner of the kept transcript $2 (NULL when it was not kept), and the number of branches between the
	// transcript to read and the one with its first entry.
	transcriptsSQL = `SELECT COALESCE((SELECT session_id FROM sessions WHERE key = $1), ''),
		COALESCE((SELECT transcript_seq FROM sessions WHERE key = $1), 0),
		(SELECT principal FROM kept_transcripts WHERE session_key = $1 AND session_id = $2),
		COALESCE((SELECT depth FROM branches WHERE session_key = $1
			AND session_id = CASE WHEN $2 = '' THEN (SELECT session_id FROM sessions WHERE key = $1) ELSE $2 END), 0)`

	// $1 session, $2 transcript, $3 run, '' = all runs.
	entriesFrom     = ` FROM transcript t WHERE t.session_key = $1 AND t.session_id = $2 AND ($3 = '' OR t.run_id = $3)`
	countEntriesSQL = `SELECT count(*), COALESCE(max(t.seq), 0)` + entriesFrom

	// $4 the maximum characters of an entry, 0 = unlimited; $5 limit; $6 a sequence number, or how many entries to skip.
	forwardSQL  = shortEntries + entriesFrom + ` AND t.seq > $6 ORDER BY t.seq {limit $5}) c`
	backwardSQL = shortEntries + entriesFrom + ` ORDER BY t.seq DESC {limit $5} OFFSET $6) c`
	beforeSQL   = shortEntries + entriesFrom + ` AND t.seq < $6 ORDER BY t.seq DESC {limit $5}) c`

	// shortEntries cuts the text of an entry as store.FirstChars does. A string has at least as many bytes as characters.
	shortEntries = `SELECT c.*, octet_length(c.content) AS page_size FROM (SELECT t.seq, t.run_id, t.role,
		CASE WHEN CAST($4 AS bigint) > 0 AND octet_length(t.content) > $4 THEN substr(t.content, 1, CAST($4 AS integer) + 1) ELSE t.content END AS content,
		t.sender, t.tokens, t.stop_reason, t.command, t.from_seq, t.to_seq, t.outside, t.origin, t.at`

	summarySQL    = `SELECT ` + entryColumns + ` FROM transcript WHERE session_key = $1 AND session_id = $2 AND seq = (` + summarySeqSQL + `)`
	summarySeqSQL = `SELECT summary_seq FROM sessions WHERE key = $1 AND session_id = $2 AND summary_id = $2`
)

func scanEntry(r Row) (e chat.TranscriptEntry, err error) {
	err = r.Scan(&e.Seq, &e.RunID, &e.Role, &e.Text, jsonColumn{&e.Sender}, &e.Tokens, &e.StopReason, &e.Command,
		&e.Covers.From, &e.Covers.To, &e.Outside, jsonColumn{&e.Origin}, instant{&e.At})
	return e, err
}

// Transcript reads a piece of a transcript; see store.TranscriptQuery.
func (s Sessions) Transcript(ctx context.Context, q store.TranscriptQuery) (out store.Transcript, err error) {
	view := s.db.List
	if q.NoCount { // its cost is that of a page
		view = s.db.View
	}
	err = view(ctx, "read a transcript", func(ctx context.Context, tx Tx) (err error) {
		out, err = readTranscript(ctx, tx, &q)
		return err
	})
	return out, err
}

func readTranscript(ctx context.Context, tx Tx, q *store.TranscriptQuery) (out store.Transcript, err error) {
	var (
		key   = q.Session.String()
		owner *string
	)
	if _, err := one(ctx, tx, transcriptsSQL, into(&out.SessionID, &out.LastSeq, &owner, &out.Branches), key, q.SessionID); err != nil {
		return out, err
	}
	id := q.Readable(out.SessionID, owner)
	if id == "" {
		out.LastSeq = 0
		return out, nil
	}
	texts := textsFor(out.Branches)
	if !q.NoCount {
		if _, err := one(ctx, tx, texts.count, into(&out.Total, &out.LastSeq), key, id, q.RunID); err != nil {
			return out, err
		}
	}
	rows, place := texts.backward, int64(max(q.Offset, 0))
	forward := q.After > 0 || q.FromStart
	switch {
	case forward:
		rows, place = texts.forward, q.After
	case q.Before > 0:
		rows, place = texts.before, q.Before
	}
	args := []any{key, id, q.RunID, max(q.MaxChars, 0), cmp.Or(q.Limit, defaultEntries), place}
	out.Entries, err = readPage(ctx, tx, page{columns: entryColumns, rows: rows, bytes: q.MaxBytes, args: args}, scanEntry)
	if !forward {
		slices.Reverse(out.Entries)
	}
	if err != nil || !q.Summary {
		return out, err
	}
	_, err = one(ctx, tx, texts.summary, entryInto(&out.Summary), key, id)
	return out, err
}

func entryInto(e *chat.TranscriptEntry) func(Row) error {
	return func(r Row) (err error) { *e, err = scanEntry(r); return err }
}

// runEntries reads the newest n entries of a run, oldest first.
func runEntries(ctx context.Context, tx Tx, session, runID string, n int) ([]chat.TranscriptEntry, error) {
	if n == 0 {
		return nil, nil
	}
	entries, err := all(ctx, tx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = $1
		AND session_id = (SELECT session_id FROM runs WHERE id = $2) AND run_id = $2 ORDER BY seq DESC {limit $3}`, scanEntry, session, runID, n)
	slices.Reverse(entries)
	return entries, err
}
