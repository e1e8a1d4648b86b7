package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultEntries is how many entries of a transcript are read without a limit.
const defaultEntries = 200

const (
	entryColumns = `seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, outside, origin, at`

	// transcriptsSQL is a session's current transcript and last number, the owner of the kept
	// transcript $2 (NULL when it was not kept), and the number of branches between the transcript
	// to read and the one with its first entry.
	transcriptsSQL = `SELECT COALESCE((SELECT session_id FROM sessions WHERE key = $1), ''),
		COALESCE((SELECT transcript_seq FROM sessions WHERE key = $1), 0),
		(SELECT principal FROM kept_transcripts WHERE session_key = $1 AND session_id = $2),
		COALESCE((SELECT depth FROM branches WHERE session_key = $1
			AND session_id = CASE WHEN $2 = '' THEN (SELECT session_id FROM sessions WHERE key = $1) ELSE $2 END), 0)`

	// $1 session, $2 transcript, $3 run, '' = all runs, $4 the stop reason of the entries to leave
	// out, '' = none.
	entriesFrom     = ` FROM transcript t WHERE t.session_key = $1 AND t.session_id = $2 AND ($3 = '' OR t.run_id = $3) AND ($4 = '' OR t.stop_reason <> $4)`
	countEntriesSQL = `SELECT count(*), COALESCE(max(t.seq), 0)` + entriesFrom

	// $5 the maximum characters of an entry, 0 = unlimited; $6 limit; $7 a sequence number, or how
	// many entries to skip.
	forwardSQL  = shortEntries + entriesFrom + ` AND t.seq > $7 ORDER BY t.seq {limit $6}) c`
	backwardSQL = shortEntries + entriesFrom + ` ORDER BY t.seq DESC {limit $6} OFFSET $7) c`
	beforeSQL   = shortEntries + entriesFrom + ` AND t.seq < $7 ORDER BY t.seq DESC {limit $6}) c`

	// shortEntries cuts the text of an entry to MaxChars+1 characters. A string has at least as many
	// bytes as characters.
	shortEntries = `SELECT c.*, octet_length(c.content) AS page_size FROM (SELECT t.seq, t.run_id, t.role,
		CASE WHEN CAST($5 AS bigint) > 0 AND octet_length(t.content) > $5 THEN substr(t.content, 1, CAST($5 AS integer) + 1) ELSE t.content END AS content,
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
	texts, hidden := textsFor(out.Branches), ""
	if q.Shown {
		hidden = chat.StopSilent
	}
	if !q.NoCount {
		if _, err := one(ctx, tx, texts.count, into(&out.Total, &out.LastSeq), key, id, q.RunID, hidden); err != nil {
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
	args := []any{key, id, q.RunID, hidden, max(q.MaxChars, 0), cmp.Or(q.Limit, defaultEntries), place}
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

const (
	// hookNamesSQL are the sessions that hooks name, and whether each live process has started
	// since a process had the hook: then no process has it.
	hookNamesSQL = `SELECT session_key, holder, seen_at < COALESCE((SELECT min(started_at) FROM nodes WHERE lease_until > {now}), {now}) FROM session_names
		WHERE holder LIKE 'hook:%' ORDER BY holder, session_key`

	// makeSessionSQL creates a session unless it exists. A session whose predecessor was deleted
	// continues with its numbers, so that no message, claim or run from before the deletion matches
	// the new session.
	makeSessionSQL = `INSERT INTO sessions (key, agent, principal, session_id, epoch, last_seq, taken_seq, done_seq, created_at, updated_at)
		SELECT $1, $2, $3, $4, COALESCE(g.epoch, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), COALESCE(g.last_seq, 0), c.now, c.now
		FROM (SELECT {now} AS now) c LEFT JOIN tombstones g ON g.key = $1 WHERE true ON CONFLICT (key) DO NOTHING`

	numberEntriesSQL = `UPDATE sessions SET transcript_seq = transcript_seq + $2, updated_at = {now} WHERE key = $1 RETURNING session_id, transcript_seq, updated_at`

	insertEntriesSQL = `{set session text, transcript text, seq int, run text, role text, content text, sender text, tokens int, reason text, command bool,
			from_seq int, to_seq int, outside bool, reply text, origin text, at int}
		INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, from_seq, to_seq, outside, reply_id, origin, at)
		SELECT v.session, v.transcript, v.seq, v.run, v.role, v.content, v.sender, v.tokens, v.reason, v.command, v.from_seq, v.to_seq, v.outside, v.reply, v.origin, v.at {from} WHERE true`

	// numberSummarySQL allocates a number for a summary unless a summary already covers the row. $2
	// transcript, $3 last row.
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

// addition is where entries are added: to the current or an archived transcript of a session, after
// the newest number of the session. Numbers grow over all transcripts of a session, so that a late
// entry of an archived one gets a unique number.
type addition struct {
	Session, Transcript string
	After, At           int64
	Reply               string // the id of the outgoing message that the entry shows; '' for other entries
}

// insertEntries adds entries and returns them as stored. The caller has already reserved their
// numbers in the session's row.
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

// appendEntries adds entries to the current transcript of an existing session. reply is as in
// addition.
func appendEntries(ctx context.Context, tx Tx, key chat.SessionKey, entries []chat.TranscriptEntry, reply string) ([]chat.TranscriptEntry, error) {
	to := addition{Session: key.String(), Reply: reply}
	if _, err := one(ctx, tx, numberEntriesSQL, into(&to.Transcript, &to.After, &to.At), to.Session, len(entries)); err != nil {
		return nil, err
	}
	to.After -= int64(len(entries))
	return insertEntries(ctx, tx, to, entries)
}

// AppendTranscript adds entries outside of a run; see store.Store.
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

// AppendSummary adds a summary; see store.Store.
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

// NameSessions makes hooks name sessions; see store.Store.
func (s Sessions) NameSessions(ctx context.Context, names map[string]chat.SessionKey) error {
	return s.db.Update(ctx, "name the sessions of hooks", func(ctx context.Context, tx Tx) error {
		for _, hook := range slices.Sorted(maps.Keys(names)) {
			if err := nameSession(ctx, tx, names[hook], hook, hook); err != nil {
				return err
			}
		}
		keep := map[string][]chat.SessionKey{}
		var left []string
		err := tx.Query(ctx, hookNamesSQL, func(r Row) error {
			var (
				key, hook string
				old       bool
			)
			if err := r.Scan(&key, &hook, &old); err != nil {
				return err
			}
			if old {
				left = append(left, hook)
			} else {
				keep[hook] = append(keep[hook], parseKey(key))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, hook := range left {
			if err := releaseNames(ctx, tx, hook, keep[hook]...); err != nil {
				return err
			}
		}
		return nil
	})
}

// AppendReply adds one entry as the delivery of a reply; see store.Store. The lock of the
// session's row orders concurrent deliveries of one reply.
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

// A branch is a transcript that begins with the entries of another one, up to a number. Nothing is
// copied: its row of branches records where it begins, and reads follow these rows. Its own entries
// have higher numbers, so numbers are unique in a whole chain. When a transcript is deleted, one of
// its branches receives the entries that its branches need, see [bequeath].
const (
	// lockParentSQL locks the session from which a conversation branches off: its deletion waits
	// for the branch, or has completed.
	lockParentSQL = `SELECT 1 FROM sessions WHERE key = $1 {lock}`

	addBranchSQL = `INSERT INTO branches (session_key, session_id, parent_key, parent_id, parent_seq, depth)
		SELECT $1, $2, t.session_key, t.session_id, t.seq,
			COALESCE((SELECT p.depth FROM branches p WHERE p.session_key = t.session_key AND p.session_id = t.session_id), 0) + 1
		FROM transcript t WHERE t.session_key = $3 AND t.session_id = $4 AND t.seq = $5`

	// inheritSummarySQL gives the branch, $1, the newest summary of its parent, $2, when the
	// summary lies before the branch.
	inheritSummarySQL = `UPDATE sessions SET summary_id = session_id,
			summary_seq = (SELECT p.summary_seq FROM sessions p WHERE p.key = $2), summary_to = (SELECT p.summary_to FROM sessions p WHERE p.key = $2)
		WHERE key = $1 AND EXISTS (SELECT 1 FROM sessions p WHERE p.key = $2 AND p.summary_id = $3 AND p.session_id = $3 AND p.summary_seq BETWEEN 1 AND $4)`
)

// branch makes a new session begin with the entries of another one; chat.ErrNotFound when they were
// deleted.
func branch(ctx context.Context, tx Tx, r *sessionRow, at *chat.Branch) error {
	parent := at.Session.String()
	found, err := one(ctx, tx, lockParentSQL, func(Row) error { return nil }, parent)
	if err != nil {
		return err
	}
	if !found {
		return chat.ErrNotFound
	}
	added, err := tx.Exec(ctx, addBranchSQL, r.key, r.id, parent, at.SessionID, at.Seq)
	if err != nil {
		return err
	}
	if added == 0 {
		return chat.ErrNotFound
	}
	r.transcriptSeq = at.Seq
	return tx.Later(ctx, inheritSummarySQL, nil, r.key, parent, at.SessionID, at.Seq)
}

// entryTexts are the statements that read the entries of a transcript.
type entryTexts struct{ count, forward, backward, before, summary string }

func textsFor(branches int) entryTexts {
	if branches == 0 {
		return entryTexts{countEntriesSQL, forwardSQL, backwardSQL, beforeSQL, summarySQL}
	}
	return entryTexts{ofBranch(countEntriesSQL), ofBranch(forwardSQL), ofBranch(backwardSQL), ofBranch(beforeSQL), ofBranch(branchSummarySQL)}
}

const (
	branchSummarySQL = `SELECT t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.from_seq, t.to_seq, t.outside, t.origin, t.at
		FROM transcript t WHERE t.session_key = $1 AND t.session_id = $2 AND t.seq = (` + summarySeqSQL + `)`

	// chainSQL is the transcript $2 of the session $1 and its ancestors, each with the last number
	// that counts.
	chainSQL = `WITH RECURSIVE chain (key, id, upto) AS (
			SELECT CAST($1 AS text), CAST($2 AS text), CAST(` + largest + ` AS bigint)
			UNION ALL SELECT b.parent_key, b.parent_id, b.parent_seq FROM chain c JOIN branches b ON b.session_key = c.key AND b.session_id = c.id
		) `
)

// ofBranch turns a statement that reads the entries of one transcript, $2 of the session $1, into
// one that reads those of a branch.
func ofBranch(text string) string {
	const own, whole = `FROM transcript t WHERE t.session_key = $1 AND t.session_id = $2`, `FROM chain JOIN transcript t ON t.session_key = chain.key AND t.session_id = chain.id WHERE t.seq <= chain.upto`
	return chainSQL + strings.Replace(text, own, whole, 1)
}

const (
	// childrenSQL are the branches off the transcripts of a session that are deleted with it,
	// latest branch point first.
	childrenSQL = `SELECT session_key, session_id, parent_id, parent_seq FROM branches b WHERE b.parent_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = b.parent_key AND k.session_id = b.parent_id)
		ORDER BY parent_id, parent_seq DESC, session_key`

	// giveEntriesSQL gives the entries of a transcript, $1 and $2, up to a number, $5, to another
	// one, $3 and $4. They become separate rows there, so that the search index finds them.
	giveEntriesSQL = `INSERT INTO transcript (session_key, session_id, seq, run_id, role, content, sender, tokens, stop_reason, command, outside, origin, at, from_seq, to_seq)
		SELECT $3, $4, seq, run_id, role, content, sender, tokens, stop_reason, command, outside, origin, at, from_seq, to_seq FROM transcript
		WHERE session_key = $1 AND session_id = $2 AND seq <= $5`

	// adoptSQL moves the other branches of a transcript, $1 and $2, to its heir, $3 and $4.
	adoptSQL = `UPDATE branches SET parent_key = $3, parent_id = $4 WHERE parent_key = $1 AND parent_id = $2 AND NOT (session_key = $3 AND session_id = $4)`

	// succeedSQL makes the heir, $3 and $4, begin where the transcript, $1 and $2, began.
	succeedSQL = `UPDATE branches SET (parent_key, parent_id, parent_seq) = (SELECT p.parent_key, p.parent_id, p.parent_seq FROM branches p
			WHERE p.session_key = $1 AND p.session_id = $2)
		WHERE session_key = $3 AND session_id = $4 AND EXISTS (SELECT 1 FROM branches p WHERE p.session_key = $1 AND p.session_id = $2)`
	firstOfAllSQL = `DELETE FROM branches WHERE session_key = $3 AND session_id = $4 AND parent_key = $1 AND parent_id = $2`

	forgetBranchesSQL = `DELETE FROM branches WHERE session_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = branches.session_key AND k.session_id = branches.session_id)`
)

// child is a branch off a transcript.
type child struct {
	key, id, parent string
	seq             int64
}

func scanChild(r Row) (c child, err error) {
	err = r.Scan(&c.key, &c.id, &c.parent, &c.seq)
	return c, err
}

// bequeath prepares the deletion of the transcripts of a session: the branch of each transcript
// that shares most of it receives the entries that the branches need. The other branches then
// branch off that one. The children are locked before they are read, because one of them may be
// deleted concurrently.
func bequeath(ctx context.Context, tx Tx, key string) error {
	children, err := all(ctx, tx, childrenSQL, scanChild, key)
	if err != nil || len(children) == 0 {
		return err
	}
	keys := make([]string, 0, len(children))
	for _, c := range children {
		keys = append(keys, c.key)
	}
	if err := tx.Later(ctx, `SELECT 1 FROM sessions WHERE key {in $1} ORDER BY key {lock}`, func(Row) error { return nil }, keys); err != nil {
		return err
	}
	if children, err = all(ctx, tx, childrenSQL, scanChild, key); err != nil {
		return err
	}
	done := ""
	for _, c := range children {
		if c.parent == done {
			continue
		}
		done = c.parent
		if err := later(ctx, tx, with(giveEntriesSQL, key, c.parent, c.key, c.id, c.seq), with(adoptSQL, key, c.parent, c.key, c.id),
			with(succeedSQL, key, c.parent, c.key, c.id), with(firstOfAllSQL, key, c.parent, c.key, c.id)); err != nil {
			return err
		}
		if err := indexAgain(ctx, tx, c.key); err != nil {
			return err
		}
	}
	return nil
}
