package sqlite

import (
	"cmp"
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultEntries is how many entries a read returns without a limit.
const defaultEntries = 200

// append adds entries to the named transcript of a session, the current one or an archived one. Sequence numbers grow over all of
// them, so that a late entry of an archive has one, too. The caller saves r.
func (t *tx) append(ctx context.Context, r *row, id string, entries []chat.TranscriptEntry) ([]chat.TranscriptEntry, error) {
	added := slices.Clone(entries)
	for i := range added {
		e := &added[i]
		sender := ""
		if e.Sender != (chat.Sender{}) {
			var err error
			if sender, err = encode(e.Sender); err != nil {
				return nil, err
			}
		}
		r.transcriptSeq++
		e.Seq, e.At = r.transcriptSeq, instant(t.now)
		_, err := t.exec(ctx, `
			INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.key, id, e.Seq, e.RunID, e.Role, e.Text, sender, e.Tokens, e.StopReason, bit(e.Command), e.Covers.From, e.Covers.To, t.now)
		if err != nil {
			return nil, err
		}
	}
	return added, nil
}

// AppendTranscript adds entries outside of a run; see the port.
func (s *Store) AppendTranscript(
	ctx context.Context, key chat.SessionKey, principal string, entries []chat.TranscriptEntry,
) ([]chat.TranscriptEntry, error) {
	return result(ctx, s.write, ordinary("append to the transcript"), func(ctx context.Context, t *tx) ([]chat.TranscriptEntry, error) {
		r, _, err := t.findOrMake(ctx, key, principal)
		if err != nil {
			return nil, err
		}
		added, err := t.append(ctx, r, r.id, entries)
		if err != nil {
			return nil, err
		}
		return added, t.save(ctx, r)
	})
}

// AppendSummary adds a summary; see the port.
func (s *Store) AppendSummary(ctx context.Context, p store.SummaryParams) (e chat.TranscriptEntry, added bool, err error) {
	e, err = result(ctx, s.write, ordinary("append a summary"), func(ctx context.Context, t *tx) (chat.TranscriptEntry, error) {
		added = false
		r, ok, err := t.find(ctx, p.Session)
		if err != nil || !ok {
			return chat.TranscriptEntry{}, err
		}
		n, err := t.exec(ctx, `UPDATE sessions SET summary_id = session_id, summary_seq = transcript_seq + 1, summary_to = ?
			WHERE key = ? AND session_id = ? AND NOT (summary_id = session_id AND summary_to >= ?)`,
			p.Covers.To, r.key, p.SessionID, p.Covers.To)
		if err != nil {
			return chat.TranscriptEntry{}, err
		}
		if n == 0 {
			had, err := t.summaryOf(ctx, r, &p)
			added = had.Seq > 0
			return had, err
		}
		entries, err := t.append(ctx, r, r.id, []chat.TranscriptEntry{p.Entry()})
		if err != nil {
			return chat.TranscriptEntry{}, err
		}
		added = true
		return entries[0], t.save(ctx, r)
	})
	return e, added && err == nil, err
}

// summaryOf reads the newest summary of a session if the run of p has made it.
func (t *tx) summaryOf(ctx context.Context, r *row, p *store.SummaryParams) (chat.TranscriptEntry, error) {
	e, err := scanEntry(t.one(ctx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = ?1 AND session_id = ?2 AND run_id = ?3
		AND seq = (SELECT summary_seq FROM sessions WHERE key = ?1 AND session_id = ?2 AND summary_id = ?2)`, r.key, p.SessionID, p.RunID))
	if none(err) {
		return chat.TranscriptEntry{}, nil
	}
	return e, err
}

// AppendReply adds one entry as the delivery of a reply; see the port.
func (s *Store) AppendReply(ctx context.Context, p store.ReplyParams) (store.Replied, error) {
	return result(ctx, s.write, ordinary("deliver a reply into the transcript"), func(ctx context.Context, t *tx) (store.Replied, error) {
		r, _, err := t.findOrMake(ctx, p.Session, p.Principal)
		if err != nil {
			return store.Replied{}, err
		}
		if p.Own && r.principal != p.Principal {
			return store.Replied{}, chat.ErrSessionNotFound
		}
		had, err := scanEntry(t.one(ctx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = ? AND reply_id = ? AND reply_id <> ''`, r.key, p.ID))
		if !none(err) {
			return store.Replied{Entry: had, Principal: r.principal}, err
		}
		added, err := t.append(ctx, r, r.id, []chat.TranscriptEntry{p.Entry})
		if err != nil {
			return store.Replied{}, err
		}
		if _, err = t.exec(ctx, `UPDATE transcript SET reply_id = ? WHERE session_key = ? AND session_id = ? AND seq = ?`, p.ID, r.key, r.id, added[0].Seq); err != nil {
			return store.Replied{}, err
		}
		return store.Replied{Entry: added[0], Principal: r.principal}, t.save(ctx, r)
	})
}

const entryColumns = `seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, at`

// newestOfRun reads the newest n entries of a run, oldest first.
func (t *tx) newestOfRun(ctx context.Context, u *run, n int) ([]chat.TranscriptEntry, error) {
	if n == 0 {
		return nil, nil
	}
	rows, err := t.query(ctx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = ? AND session_id = ? AND run_id = ? ORDER BY seq DESC LIMIT +?`,
		u.Session.String(), u.sessionID, u.ID, n)
	list, err := collect(rows, err, scanEntry)
	slices.Reverse(list)
	return list, err
}

func scanEntry(row scanner) (e chat.TranscriptEntry, err error) {
	err = row.Scan(&e.Seq, &e.RunID, &e.Role, &e.Text, jsonColumn{&e.Sender}, &e.Tokens, &e.StopReason, &e.Command,
		&e.Covers.From, &e.Covers.To, timeColumn{&e.At})
	return e, err
}

// Transcript reads a piece of a transcript; see [store.TranscriptQuery].
func (s *Store) Transcript(ctx context.Context, p store.TranscriptQuery) (out store.Transcript, err error) {
	err = s.view(ctx, "read the transcript", func(ctx context.Context, q querier) error {
		key := p.Session.String()
		err := q.one(ctx, `SELECT session_id FROM sessions WHERE key = ?`, key).Scan(&out.SessionID)
		if err != nil && !none(err) {
			return err
		}
		id, err := readable(ctx, q, &p, out.SessionID)
		if err != nil || id == "" {
			return err
		}
		err = q.one(ctx, `SELECT count(*), coalesce(max(seq), 0) FROM transcript WHERE session_key = ?1 AND session_id = ?2 AND (?3 = '' OR run_id = ?3)`,
			key, id, p.RunID).Scan(&out.Total, &out.LastSeq)
		if err != nil {
			return err
		}
		if out.Entries, err = entries(ctx, q, id, &p); err != nil || !p.Summary {
			return err
		}
		out.Summary, err = scanEntry(q.one(ctx, `SELECT `+entryColumns+` FROM transcript WHERE session_key = ?1 AND session_id = ?2
			AND seq = (SELECT summary_seq FROM sessions WHERE key = ?1 AND summary_id = ?2)`, key, id))
		if none(err) {
			return nil
		}
		return err
	})
	return out, err
}

// readable is the transcript to read, "" when the caller may read none: one that a deletion kept is its owner's, every other one the
// session's.
func readable(ctx context.Context, q querier, p *store.TranscriptQuery, current string) (string, error) {
	if p.SessionID == "" || p.SessionID == current {
		return current, nil
	}
	var owner string
	err := q.one(ctx, `SELECT principal FROM kept_transcripts WHERE session_key = ? AND session_id = ?`, p.Session.String(), p.SessionID).Scan(&owner)
	switch {
	case none(err) && current != "", err == nil && (p.Visible == "" || p.Visible == owner):
		return p.SessionID, nil
	case none(err):
		return "", nil
	default:
		return "", err
	}
}

// shortColumns are entryColumns with the text cut to the bytes that ?5 characters and one more can have; 0 = not cut.
const shortColumns = `seq, run_id, role, CASE WHEN ?5 = 0 OR octet_length(content) <= ?5 THEN content ELSE substr(CAST(content AS BLOB), 1, 4 * (?5 + 1)) END,
	sender, tokens, stop_reason, command, from_seq, to_seq, at`

// entries reads one page, always oldest first. Rows are read one after the other until the bytes are used up.
func entries(ctx context.Context, q querier, id string, p *store.TranscriptQuery) ([]chat.TranscriptEntry, error) {
	short := func(row scanner) (chat.TranscriptEntry, error) {
		e, err := scanEntry(row)
		e.Text = store.FirstChars(e.Text, p.MaxChars)
		return e, err
	}
	text := `SELECT ` + shortColumns + ` FROM transcript WHERE session_key = ?1 AND session_id = ?2 AND (?3 = '' OR run_id = ?3) ORDER BY seq DESC LIMIT +?4 OFFSET ?6`
	at := int64(max(p.Offset, 0))
	forward := p.After > 0 || p.FromStart
	if forward {
		text = `SELECT ` + shortColumns + ` FROM transcript WHERE session_key = ?1 AND session_id = ?2 AND (?3 = '' OR run_id = ?3) AND seq > ?6 ORDER BY seq LIMIT +?4`
		at = p.After
	}
	rows, err := q.query(ctx, text, p.Session.String(), id, p.RunID, cmp.Or(p.Limit, defaultEntries), max(p.MaxChars, 0), at)
	list, err := collectWithin(rows, err, short, store.NewBudget(p.MaxBytes), func(e chat.TranscriptEntry) int { return len(e.Text) })
	if !forward {
		slices.Reverse(list)
	}
	return list, err
}
