package sqlstore

import (
	"context"
	"strings"

	"laneway/internal/chat"
)

// A branch is a transcript that begins with the entries of another one, up to a number. Nothing is copied: its row of branches records where it begins, and
// reads follow these rows. Its own entries have higher numbers, so numbers are unique in a whole chain. When a transcript is deleted, one of its branches
// receives the entries that its branches need, see [bequeath].
const (
	// lockParentSQL locks the session from which a conversation branches off: its deletion waits for the branch, or has completed.
	lockParentSQL = `SELECT 1 FROM sessions WHERE key = $1 {lock}`

	addBranchSQL = `INSERT INTO branches (session_key, session_id, parent_key, parent_id, parent_seq, depth)
		SELECT $1, $2, t.session_key, t.session_id, t.seq,
			COALESCE((SELECT p.depth FROM branches p WHERE p.session_key = t.session_key AND p.session_id = t.session_id), 0) + 1
		FROM transcript t WHERE t.session_key = $3 AND t.session_id = $4 AND t.seq = $5`

	// inheritSummarySQL gives the branch, $1, the newest summary of its parent, $2, when the summary lies before the branch.
	inheritSummarySQL = `UPDATE sessions SET summary_id = session_id,
			summary_seq = (SELECT p.summary_seq FROM sessions p WHERE p.key = $2), summary_to = (SELECT p.summary_to FROM sessions p WHERE p.key = $2)
		WHERE key = $1 AND EXISTS (SELECT 1 FROM sessions p WHERE p.key = $2 AND p.summary_id = $3 AND p.session_id = $3 AND p.summary_seq BETWEEN 1 AND $4)`
)

// branch makes a new session begin with the entries of another one; chat.ErrNotFound when they were deleted.
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

	// chainSQL is the transcript $2 of the session $1 and its ancestors, each with the last number that counts.
	chainSQL = `WITH RECURSIVE chain (key, id, upto) AS (
			SELECT CAST($1 AS text), CAST($2 AS text), CAST(` + largest + ` AS bigint)
			UNION ALL SELECT b.parent_key, b.parent_id, b.parent_seq FROM chain c JOIN branches b ON b.session_key = c.key AND b.session_id = c.id
		) `
)

// ofBranch turns a statement that reads the entries of one transcript, $2 of the session $1, into one that reads those of a branch.
func ofBranch(text string) string {
	const own, whole = `FROM transcript t WHERE t.session_key = $1 AND t.session_id = $2`, `FROM chain JOIN transcript t ON t.session_key = chain.key AND t.session_id = chain.id WHERE t.seq <= chain.upto`
	return chainSQL + strings.Replace(text, own, whole, 1)
}

const (
	// childrenSQL are the branches off the transcripts of a session that are deleted with it, latest branch point first.
	childrenSQL = `SELECT session_key, session_id, parent_id, parent_seq FROM branches b WHERE b.parent_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = b.parent_key AND k.session_id = b.parent_id)
		ORDER BY parent_id, parent_seq DESC, session_key`

	// giveEntriesSQL gives the entries of a transcript, $1 and $2, up to a number, $5, to another one, $3 and $4. They become separate rows there, so that the
	// search index finds them.
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

// bequeath prepares the deletion of the transcripts of a session: the branch of each transcript that shares most of it receives the entries that the branches
// need. The other branches then branch off that one. The children are locked before they are read, because one of them may be deleted concurrently.
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
