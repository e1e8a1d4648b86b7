package sqlstore

import (
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// makeSessionSQL creates a session unless it exists. A session whose predecessor was deleted continues with its numbers, so that no message, claim or run
	// from before the deletion matches the new session.
	makeSessionSQL = `INSERT INTO sessions (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, created_at, updated_at)
		SELECT $1, $2, $3, $4, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), c.now, c.now
		FROM (SELECT {now} AS now) c LEFT JOIN tombstones g ON g.key = $1 WHERE true ON CONFLICT (key) DO NOTHING`

	numberEntriesSQL = `UPDATE sessions SET transcript_seq = transcript_seq + $2, updated_at = {now} WHERE key = $1 RETURNING session_id, transcript_seq, updated_at`

	insertEntriesSQL = `{set session text, transcript text, seq int, run text, role text, content text, sender text, tokens int, reason text, command bool,
			from_seq int, to_seq int, outside bool, reply text, origin text, at int}
		INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, outside, reply_id, origin, at)
		SELECT v.session, v.transcript, v.seq, v.run, v.role, v.content, v.sender, v.tokens, v.reason, v.command, v.from_seq, v.to_seq, v.outside, v.reply, v.origin, v.at {from} WHERE true`

	// numberSummarySQL allocates a number for a summary unless a summary already covers the row. $2 transcript, $3 last row.
	numberSummarySQL = `UPDATE sessions SET transcript_seq = transcript_seq + 1, summary_id = session_id, summary_seq = transcript_seq + 1, summary_to = $3,
		updated_at = {now} WHERE key = $1 AND session_id = $2 AND NOT (summary_id = session_id AND summary_to >= $3) RETURNING transcript_seq, updated_at`
)

// makeSession creates a session unless it exists. first is the transcript that a new session gets.
func makeSession(ctx context.Context, tx Tx, key chat.SessionKey, principal string) (first string, err error) {
	if first, err = newID(); err != nil {
		return "", err
	}
	return first, tx.Later(ctx, makeSessionSQL, nil, key.String(), key.Agent, principal, first)
}

// addition is where entries are added: to the current or an archived transcript of a session, after the newest number of the session. Numbers grow over all
// transcripts of a session, so that a late entry of an archived one gets a unique number.
type addition struct {
	Session, Transcript string
	After, At           int64
	Reply               string // the id of the outgoing message that the entry shows; '' for other entries
}

// insertEntries adds entries and returns them as stored. The caller has already reserved their numbers in the session's row.
func insertEntries(ctx context.Context, tx Tx, to addition, entries []chat.TranscriptEntry) ([]chat.TranscriptEntry, error) {
	added, rows, err := to.rows(entries)
	if err != nil {
		return nil, err
	}
	return added, addEntries(ctx, tx, rows)
}

// rows are the entries as stored, and as a row set.
func (to addition) rows(entries []chat.TranscriptEntry) ([]chat.TranscriptEntry, Set, error) {
	added, rows := slices.Clone(entries), make(Set, 0, len(entries))
	for i := range added {
		e, sender := &added[i], ""
		if e.Sender != (chat.Sender{}) {
			var err error
			if sender, err = encode(e.Sender); err != nil {
				return nil, nil, err
			}
		}
		origin, err := encodePart(e.Origin)
		if err != nil {
			return nil, nil, err
		}
		e.Seq, e.At, e.Text, e.StopReason = to.After+1+int64(i), fromMillis(to.At), chat.CleanText(e.Text), chat.CleanText(e.StopReason)
		rows = append(rows, []any{
			to.Session, to.Transcript, e.Seq, e.RunID, e.Role, e.Text, sender, e.Tokens, e.StopReason, e.Command, e.Covers.From, e.Covers.To, e.Outside, to.Reply, origin, to.At,
		})
	}
	return added, rows, nil
}

// addEntries adds the rows of entries.
func addEntries(ctx context.Context, tx Tx, rows Set) error {
	if len(rows) == 0 {
		return nil
	}
	return tx.Later(ctx, insertEntriesSQL, nil, rows)
}

// appendEntries adds entries to the current transcript of an existing session. reply is as in addition.
func appendEntries(ctx context.Context, tx Tx, key chat.SessionKey, entries []chat.TranscriptEntry, reply string) ([]chat.TranscriptEntry, error) {
	to := addition{Session: key.String(), Reply: reply}
	if _, err := one(ctx, tx, numberEntriesSQL, into(&to.Transcript, &to.After, &to.At), to.Session, len(entries)); err != nil {
		return nil, err
	}
	to.After -= int64(len(entries))
	return insertEntries(ctx, tx, to, entries)
}

// AppendTranscript adds entries outside of a run; see store.Sessions.
func (s Sessions) AppendTranscript(
	ctx context.Context, key chat.SessionKey, principal string, entries []chat.TranscriptEntry,
) ([]chat.TranscriptEntry, error) {
	return result(ctx, s.db.Update, "append to a transcript", func(ctx context.Context, tx Tx) ([]chat.TranscriptEntry, error) {
		if _, err := makeSession(ctx, tx, key, principal); err != nil {
			return nil, err
		}
		return appendEntries(ctx, tx, key, entries, "")
	})
}

// AppendSummary adds a summary; see store.Sessions.
func (s Sessions) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	e, err = result(ctx, s.db.Update, "append a summary", func(ctx context.Context, tx Tx) (e chat.TranscriptEntry, err error) {
		to := addition{Session: p.Session.String(), Transcript: p.SessionID}
		ok, err := one(ctx, tx, numberSummarySQL, into(&to.After, &to.At), to.Session, p.SessionID, p.Covers.To)
		switch {
		case err != nil:
			return e, err
		case !ok: // a run whose summary is the newest one receives it again: the result of its commit was lost
			_, err = one(ctx, tx, summarySQL+` AND run_id = $3`, entryInto(&e), to.Session, p.SessionID, p.RunID)
			return e, err
		}
		to.After--
		entries, err := insertEntries(ctx, tx, to, []chat.TranscriptEntry{p.Entry()})
		if err != nil {
			return e, err
		}
		return entries[0], nil
	})
	return e, e.Seq > 0, err
}

// NameSession creates a session unless it exists; see store.Sessions.
func (s Sessions) NameSession(ctx context.Context, key chat.SessionKey, principal string) (time.Time, error) {
	return result(ctx, s.db.Update, "name a session", func(ctx context.Context, tx Tx) (at time.Time, err error) {
		if err := nameSession(ctx, tx, key, principal); err != nil {
			return at, err
		}
		now, err := tx.Now(ctx)
		return fromMillis(now), err
	})
}

// AppendReply adds one entry as the delivery of a reply; see store.Sessions. The lock of the session's row orders concurrent deliveries of one reply.
func (s Sessions) AppendReply(ctx context.Context, p store.ReplyParams) (store.Replied, error) {
	return result(ctx, s.db.Update, "deliver a reply into a transcript", func(ctx context.Context, tx Tx) (out store.Replied, err error) {
		if _, err := makeSession(ctx, tx, p.Session, p.Principal); err != nil {
			return out, err
		}
		if _, err := one(ctx, tx, `SELECT principal FROM sessions WHERE key = $1 {lock}`, into(&out.Principal), p.Session.String()); err != nil {
			return out, err
		}
		var names takenNames
		names.ask(p.Session, p.Principal, p.Job)
		if err := names.read(ctx, tx); err != nil {
			return out, err
		}
		if p.Own && out.Principal != p.Principal || names.has(p.Session, p.Job) {
			return out, chat.ErrSessionNotFound
		}
		had, err := one(ctx, tx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = $1 AND reply_id = $2 AND reply_id <> ''`,
			entryInto(&out.Entry), p.Session.String(), p.ID)
		if err != nil || had {
			return out, err
		}
		entries, err := appendEntries(ctx, tx, p.Session, []chat.TranscriptEntry{p.Entry}, p.ID)
		if err != nil {
			return out, err
		}
		out.Entry = entries[0]
		return out, nil
	})
}
