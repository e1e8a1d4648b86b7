package sqlstore

import (
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// What the deletion of a session removes. $1 is the key of a session.
const (
	// belowSQL lists the sessions that are deleted with a session: those of its sub-turns, and those in which its transcripts were compacted. The sessions
	// below these need a query each, see store.Deleting.
	belowSQL = `SELECT i.session_key FROM inbox m JOIN inbox i ON i.parent = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT i.session_key FROM inbox m JOIN inbox i ON i.root = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT c.key FROM sessions s JOIN transcript t ON t.session_key = s.key
			JOIN sessions c ON c.key = 'agent:' || s.agent || ':cron:compact:' || t.session_id WHERE s.key = $1`

	// ofSamePrincipalSQL adds the branches off a session that belong to its principal.
	ofSamePrincipalSQL = `
		UNION SELECT c.key FROM branches b JOIN sessions s ON s.key = b.parent_key JOIN sessions c ON c.key = b.session_key AND c.principal = s.principal
			WHERE b.parent_key = $1`

	// filesOfSessionSQL reads the bodies of the messages of a session that name attachments, as JSON objects.
	filesOfSessionSQL = `SELECT body FROM inbox WHERE session_key = $1 AND body LIKE '%"attachments":%'
		UNION ALL SELECT '{"attachments":[' || file || ']}' FROM outbox WHERE ` + outgoingOf + ` AND file <> ''`

	// outgoingOf selects outgoing messages for a session or addressed to it.
	outgoingOf = `(session_key = $1 AND session_key <> '' OR chat_id = $1 AND channel = 'web')`

	emptySummarySQL = `UPDATE cron_run_logs SET summary = '' WHERE summary <> '' AND `

	// keepTranscriptsSQL keeps the transcripts of a session for its principal. Transcripts kept from an earlier session of the key keep their owner.
	keepTranscriptsSQL = `INSERT INTO kept_transcripts (session_key, session_id, principal)
		SELECT DISTINCT t.session_key, t.session_id, s.principal FROM transcript t JOIN sessions s ON s.key = t.session_key WHERE t.session_key = $1
		ON CONFLICT DO NOTHING`

	// forgetKeptSQL and dropSQL delete the transcripts of a session, and those that its principal kept from earlier sessions.
	forgetKeptSQL = `DELETE FROM kept_transcripts WHERE session_key = $1 AND principal = (SELECT principal FROM sessions WHERE key = $1)`
	dropSQL       = `DELETE FROM transcript WHERE session_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = $1 AND k.session_id = transcript.session_id)`
)

// DeleteSession removes a session that does not run, with everything that belongs to it; see store.Sessions.
func (s Sessions) DeleteSession(ctx context.Context, p store.DeleteParams) (store.Deleted, error) {
	return result(ctx, s.db.Update, "delete a session", func(ctx context.Context, tx Tx) (store.Deleted, error) {
		return idempotent(ctx, tx, p.IdempotencyKey, func() (store.Deleted, error) { return remove(ctx, tx, p) })
	})
}

func remove(ctx context.Context, tx Tx, p store.DeleteParams) (out store.Deleted, err error) {
	const lockSQL = `SELECT session_id FROM sessions WHERE key = $1 {lock}`
	key, id := p.Session.String(), ""
	found, err := one(ctx, tx, lockSQL, into(&id), key)
	switch {
	case err != nil || !found:
		return out, err
	case p.ExpectID != "" && id != p.ExpectID:
		return out, chat.ErrConflict
	}
	below := belowSQL
	if p.Branches {
		below += ofSamePrincipalSQL
	}
	keys, err := store.Deleting(key, func(key string) ([]string, error) { return all(ctx, tx, below, scanText, key) })
	if err != nil {
		return out, err
	}
	for _, key := range keys {
		// The lock is a separate statement, so that the check sees a run that began meanwhile.
		if err := tx.Later(ctx, lockSQL, func(Row) error { return nil }, key); err != nil {
			return out, err
		}
		active, err := one(ctx, tx, `SELECT 1 FROM runs {by runs_open} WHERE {running} AND session_key = $1`, func(Row) error { return nil }, key)
		if err != nil {
			return out, err
		}
		if active {
			return out, chat.ErrConflict
		}
	}
	if out.Deleted = true; p.KeepTranscript {
		out.Kept = id
	}
	for _, k := range keys {
		if err := removeOne(ctx, tx, removal{key: k, below: k != key, keep: p.KeepTranscript && k == key}, &out); err != nil {
			return out, err
		}
	}
	return out, audit(ctx, tx, p.Audit.Between(id, ""), key)
}

// removal is the removal of one session during a deletion. below: the session belongs to the one that is deleted, whose transcripts alone may be kept.
type removal struct {
	key         string
	below, keep bool
}

func removeOne(ctx context.Context, tx Tx, r removal, out *store.Deleted) error {
	bodies, err := all(ctx, tx, filesOfSessionSQL, scanText, r.key)
	if err != nil {
		return err
	}
	for _, body := range bodies {
		files, err := store.FilesOf(body)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, files...)
	}
	ended, err := all(ctx, tx, `SELECT `+strings.Replace(messageColumns, " body,", " '',", 1)+queuedFrom+` ORDER BY seq`, scanMessage, r.key)
	if err != nil {
		return err
	}
	if err := endMessages(ctx, tx, r.key, ended, ending{outcome: chat.OutcomeStopped, reason: "delete"}); err != nil {
		return err
	}
	out.Ended = append(out.Ended, ended...)
	if err := removeToc(ctx, tx, r.key); err != nil {
		return err
	}
	if err := unindex(ctx, tx, r.key); err != nil {
		return err
	}
	if r.keep {
		err = tx.Later(ctx, keepTranscriptsSQL, nil, r.key)
	} else {
		err = forget(ctx, tx, r.key)
	}
	if err != nil {
		return err
	}
	if err := later(ctx, tx, with(tombstonesSQL, []string{r.key}), with(`DELETE FROM agent_sessions WHERE session_key = $1`, r.key),
		with(`DELETE FROM sessions WHERE key = $1`, r.key)); err != nil {
		return err
	}
	return empty(ctx, tx, r)
}

// forget deletes the transcripts of a session, except what branches need of them.
func forget(ctx context.Context, tx Tx, key string) error {
	if err := tx.Later(ctx, forgetKeptSQL, nil, key); err != nil {
		return err
	}
	if err := bequeath(ctx, tx, key); err != nil {
		return err
	}
	return later(ctx, tx, with(forgetBranchesSQL, key), with(dropSQL, key))
}

// empty removes the content from the remaining rows of a session. The messages keep their ids and hashes, so that none is accepted a second time. The runs keep
// their numbers and usage. Rows of a sub-turn are deleted, because a list would show them.
func empty(ctx context.Context, tx Tx, r removal) error {
	key := parseKey(r.key)
	statements := []string{
		`UPDATE outbox SET state = '` + store.OutDeleted + `', done_at = {now} WHERE done_at IS NULL AND ` + outgoingOf,
		`UPDATE inbox SET body = '{}', sender = '' WHERE session_key = $1`,
		`DELETE FROM turn_rounds WHERE run_id IN (SELECT id FROM runs WHERE session_key = $1)`,
		`UPDATE runs SET error = '', detail = '' WHERE session_key = $1`,
		`DELETE FROM tool_questions WHERE session_key = $1`,
		`DELETE FROM approvals WHERE session_key = $1`,
		`UPDATE outbox SET payload = '', text_many = '', choice = '', file = '', origin = '', last_error = '' WHERE ` + outgoingOf,
	}
	if r.below && key.OfTask() {
		statements = append(statements, `DELETE FROM inbox WHERE session_key = $1`, `DELETE FROM runs WHERE session_key = $1`)
	}
	for _, text := range statements {
		if err := tx.Later(ctx, text, nil, r.key); err != nil {
			return err
		}
	}
	return emptySummaries(ctx, tx, key)
}

// emptySummaries empties the summaries of job runs in a session. They are found by the id of the run that the session belongs to, else by the index of sessions
// that runs share.
func emptySummaries(ctx context.Context, tx Tx, key chat.SessionKey) error {
	switch run := store.RunOfSession(key); {
	case run != "":
		return tx.Later(ctx, emptySummarySQL+`id = $1`, nil, run)
	case strings.Contains(strings.ToLower(key.String()), ":cron:"): // LIKE ignores the case in SQLite
		return tx.Later(ctx, emptySummarySQL+`session_key = $1`, nil, key.String())
	default:
		return tx.Later(ctx, emptySummarySQL+`session_key = $1 AND session_key NOT LIKE '%:cron:%'`, nil, key.String())
	}
}
