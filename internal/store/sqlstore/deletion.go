package sqlstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// What the deletion of a session removes. $1 is the key of a session.
const (
	// belowSQL lists the sessions that are deleted with a session: those of its sub-turns, and
	// those in which its transcripts were compacted. The sessions below these need a query each,
	// see store.Deleting.
	belowSQL = `SELECT i.session_key FROM inbox m JOIN inbox i ON i.parent = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT i.session_key FROM inbox m JOIN inbox i ON i.root = m.message_id WHERE m.session_key = $1 AND i.session_key LIKE 'agent:%:task:%'
		UNION SELECT c.key FROM sessions s JOIN transcript t ON t.session_key = s.key
			JOIN sessions c ON c.key = 'agent:' || s.agent || ':cron:compact:' || t.session_id WHERE s.key = $1`

	// ofSamePrincipalSQL adds the branches off a session that belong to its principal.
	ofSamePrincipalSQL = `
		UNION SELECT c.key FROM branches b JOIN sessions s ON s.key = b.parent_key JOIN sessions c ON c.key = b.session_key AND c.principal = s.principal
			WHERE b.parent_key = $1`

	// filesOfSessionSQL reads the bodies of the messages of a session that name attachments, as
	// JSON objects.
	filesOfSessionSQL = `SELECT body FROM inbox WHERE session_key = $1 AND body LIKE '%"attachments":%'
		UNION ALL SELECT '{"attachments":[' || file || ']}' FROM outbox WHERE ` + outgoingOf + ` AND file <> ''`

	// outgoingOf selects outgoing messages for a session or addressed to it.
	outgoingOf = `(session_key = $1 AND session_key <> '' OR chat_id = $1 AND channel = 'web')`

	emptySummarySQL = `UPDATE cron_run_logs SET summary = '' WHERE summary <> '' AND `

	// keepTranscriptsSQL keeps the transcripts of a session for its principal. Transcripts kept
	// from an earlier session of the key keep their owner.
	keepTranscriptsSQL = `INSERT INTO kept_transcripts (session_key, session_id, principal)
		SELECT DISTINCT t.session_key, t.session_id, s.principal FROM transcript t JOIN sessions s ON s.key = t.session_key WHERE t.session_key = $1
		ON CONFLICT DO NOTHING`

	// forgetKeptSQL and dropSQL delete the transcripts of a session, and those that its principal
	// kept from earlier sessions.
	forgetKeptSQL = `DELETE FROM kept_transcripts WHERE session_key = $1 AND principal = (SELECT principal FROM sessions WHERE key = $1)`
	dropSQL       = `DELETE FROM transcript WHERE session_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = $1 AND k.session_id = transcript.session_id)`
)

// DeleteSession removes a session that does not run, with everything that belongs to it; see
// store.Store.
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

// removal is the removal of one session during a deletion. below: the session belongs to the one
// that is deleted, whose transcripts alone may be kept.
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

// empty removes the content from the remaining rows of a session. The messages keep their ids and
// hashes, so that none is accepted a second time. The runs keep their numbers and usage. Rows of a
// sub-turn are deleted, because a list would show them.
func empty(ctx context.Context, tx Tx, r removal) error {
	key := parseKey(r.key)
	statements := []string{
		`UPDATE outbox SET state = '` + store.OutDeleted + `', done_at = {now} WHERE done_at IS NULL AND ` + outgoingOf,
		`UPDATE inbox SET body = '{}', sender = '' WHERE session_key = $1`,
		`DELETE FROM turn_rounds WHERE run_id IN (SELECT id FROM runs WHERE session_key = $1)`,
		`UPDATE runs SET error = '', detail = '' WHERE session_key = $1`,
		`DELETE FROM tool_questions WHERE session_key = $1`,
		`DELETE FROM approvals WHERE session_key = $1`,
		`DELETE FROM sent WHERE outgoing_id IN (SELECT id FROM outbox WHERE ` + outgoingOf + `)`,
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

// emptySummaries empties the summaries of job runs in a session. They are found by the id of the
// run that the session belongs to, else by the index of sessions that runs share.
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

// Retention deletes history that is too old. Old rows are selected outside of the transaction that
// deletes them, on SQLite without occupying the writer. Messages and outgoing messages are read in
// the order of their tables, in which the old ones come first: an index on the end time would cost
// an update per turn.
type Retention struct{ db Engine }

// joinedAhead is how far after the numbers of its run a joined message may lie. A message beyond
// that is deleted separately, a moment later.
const joinedAhead = 1000

// maxPruneSessions is how many sessions one call deletes: SQLite's writer runs no other operation
// meanwhile.
const maxPruneSessions = 100

const (
	endedRuns = ` AND ended_at IS NOT NULL AND state NOT IN ('running', 'stopping', 'yielded')`

	// pruneAloneSQL deletes messages without a run.
	pruneAloneSQL = `{set session text, seq int, run text} DELETE FROM inbox WHERE state = 'done'
		AND (session_key, seq) IN (SELECT v.session, v.seq {from} WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = v.run))`

	// pruneTogetherSQL deletes the messages of runs that have ended. $1 the runs, $2 joinedAhead.
	pruneTogetherSQL = `WITH ended AS MATERIALIZED (
			SELECT id, session_key, seq_from, seq_to FROM runs WHERE id {in $1}` + endedRuns + `
		), old AS MATERIALIZED (
			SELECT i.session_key, i.seq FROM ended e CROSS JOIN inbox i
			WHERE i.session_key = e.session_key AND i.seq BETWEEN e.seq_from AND e.seq_to + $2 AND i.run_id = e.id AND i.state = 'done'
		) DELETE FROM inbox WHERE (session_key, seq) IN (SELECT session_key, seq FROM old)`

	// sideSessions finds the sessions of store.PruneSessions. $1 the moment, $2 how many.
	sideSessions = `SELECT s.key FROM sessions s WHERE s.updated_at < $1 AND s.done_seq = s.last_seq
		AND (s.key LIKE 'agent:' || s.agent || ':task:________-____-____-____-____________'
			OR s.key LIKE 'agent:' || s.agent || ':cron:compact:________-____-____-____-____________')` + sideSessionsOver
	sideSessionsOnSQLite = `SELECT s.key FROM sessions s WHERE s.updated_at < $1 AND s.done_seq = s.last_seq
		AND (s.key GLOB 'agent:' || s.agent || ':task:????????-????-????-????-????????????'
			OR s.key GLOB 'agent:' || s.agent || ':cron:compact:????????-????-????-????-????????????')` + sideSessionsOver
	// A message that arrives meanwhile waits for the row lock, or makes the session recent.
	sideSessionsOver = ` AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.parent_key = s.key)
		AND NOT EXISTS (SELECT 1 FROM runs x WHERE x.session_key = s.key AND x.seq_from > 0 AND {running x})
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.key AND i.seq > 0
			AND (i.announce = 1 OR EXISTS (SELECT 1 FROM runs x WHERE x.id IN (i.parent, i.root) AND {running x})))`

	inOrderOfKeys = ` ORDER BY s.key {limit $2}`

	// tombstonesSQL stores the numbers of deleted sessions for later sessions with their keys.
	tombstonesSQL = `INSERT INTO tombstones AS g (key, last_seq, epoch) SELECT key, last_seq, epoch FROM sessions WHERE key {in $1}
		ON CONFLICT (key) DO UPDATE SET last_seq = {greatest}(g.last_seq, excluded.last_seq), epoch = {greatest}(g.epoch, excluded.epoch)`

	filesOfMessagesSQL = `SELECT {json body} ->> 'attachments' FROM inbox WHERE {open} AND {json body} ->> 'attachments' IS NOT NULL`
	filesOfOutgoingSQL = `SELECT '[' || file || ']' FROM outbox WHERE done_at IS NULL AND state IN ('pending', 'sending') AND file <> ''`

	// filesNamedSQL reads the whole inbox.
	filesNamedSQL = `WITH named AS (
			SELECT f ->> 'path' AS path FROM inbox i, json_array_elements(i.body::json -> 'attachments') f WHERE i.body LIKE '%"attachments":%'
			UNION SELECT file::json ->> 'path' FROM outbox WHERE done_at IS NULL AND file <> ''
		) SELECT path FROM named WHERE path = ANY($1::text[])`
	filesNamedOnSQLite = `WITH p AS MATERIALIZED (SELECT value AS path FROM json_each($1))
		SELECT path FROM p WHERE path IN (SELECT f.value ->> 'path' FROM inbox i, json_each(i.body, '$.attachments') f WHERE i.body LIKE '%"attachments":%')
			OR path IN (SELECT file ->> 'path' FROM outbox WHERE state IN ('pending', 'sending') AND file <> '')`
)

// oldMessage is an inbox row to delete.
type oldMessage struct {
	session string
	seq     int64
	run     string
}

// Prune deletes old rows; see store.Store.
func (s Retention) Prune(ctx context.Context, p store.PruneParams) (int, error) {
	switch p.What {
	case store.PruneMessages:
		return s.messages(ctx, p)
	case store.PruneOutgoing:
		return s.outgoing(ctx, p)
	case store.PruneSessions:
		return s.sessions(ctx, p)
	case store.PruneLedger:
		return s.ledger(ctx, p)
	case store.PruneRecords:
		return s.records(ctx, p)
	case store.PruneChanges:
		return s.changes(ctx, p)
	}
	return 0, chat.Errorf(chat.CodeInvalid, "there is no history named %q", p.What)
}

// messages deletes ended messages with their runs. A run in progress keeps its messages.
func (s Retention) messages(ctx context.Context, p store.PruneParams) (int, error) {
	old, err := list(ctx, s.db, query{
		"find old messages", `SELECT session_key, seq, COALESCE(run_id, '') FROM inbox WHERE ended_at < $1 AND state = 'done' {limit $2}`,
		[]any{millis(p.Before), p.Most()},
	}, func(r Row) (m oldMessage, err error) {
		err = r.Scan(&m.session, &m.seq, &m.run)
		return m, err
	})
	if err != nil || len(old) == 0 {
		return 0, err
	}
	rows, runs, have := make(Set, len(old)), []string{}, map[string]bool{"": true}
	for i, m := range old {
		if rows[i] = []any{m.session, m.seq, m.run}; !have[m.run] {
			have[m.run], runs = true, append(runs, m.run)
		}
	}
	return result(ctx, s.db.Update, "delete old messages", func(ctx context.Context, tx Tx) (int, error) {
		alone, err := tx.Exec(ctx, pruneAloneSQL, rows)
		if err != nil || len(runs) == 0 {
			return int(alone), err
		}
		together, err := tx.Exec(ctx, pruneTogetherSQL, runs, joinedAhead)
		if err != nil {
			return 0, err
		}
		return int(alone + together), tx.Later(ctx, `DELETE FROM runs WHERE id {in $1}`+endedRuns, nil, runs)
	})
}

// outgoing deletes outgoing messages that have ended.
func (s Retention) outgoing(ctx context.Context, p store.PruneParams) (int, error) {
	old, err := list(ctx, s.db, query{
		"find old outgoing messages", `SELECT id FROM outbox WHERE done_at < $1 {limit $2}`, []any{millis(p.Before), p.Most()},
	}, scanText)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return result(ctx, s.db.Update, "delete old outgoing messages", func(ctx context.Context, tx Tx) (int, error) {
		n, err := tx.Exec(ctx, `DELETE FROM outbox WHERE id {in $1} AND done_at IS NOT NULL`, old)
		if err != nil {
			return 0, err
		}
		return int(n), tx.Later(ctx, `DELETE FROM sent WHERE outgoing_id {in $1}`, nil, old)
	})
}

// sessions deletes old sessions of sub-turns and compactions. The conversation of a compaction may
// be compacted again, so its session leaves a tombstone.
func (s Retention) sessions(ctx context.Context, p store.PruneParams) (int, error) {
	args := []any{millis(p.Before), min(p.Most(), maxPruneSessions)}
	var found []string
	err := s.db.View(ctx, "find old sessions", func(ctx context.Context, tx Tx) (err error) {
		found, err = all(ctx, tx, tx.PerEngine(sideSessions, sideSessionsOnSQLite)+inOrderOfKeys, scanText, args...)
		return err
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return result(ctx, s.db.Update, "delete old sessions", func(ctx context.Context, tx Tx) (int, error) {
		// Some sessions may have continued meanwhile.
		keys, err := all(ctx, tx, tx.PerEngine(sideSessions, sideSessionsOnSQLite)+` AND s.key {in $3}`+inOrderOfKeys+` {skip}`, scanText, append(args, found)...)
		if err != nil || len(keys) == 0 {
			return 0, err
		}
		var again []string
		for _, key := range keys {
			if !parseKey(key).OfTask() {
				again = append(again, key)
			}
		}
		if len(again) > 0 {
			if err := tx.Later(ctx, tombstonesSQL, nil, again); err != nil {
				return 0, err
			}
		}
		if err := dropTranscripts(ctx, tx, keys); err != nil {
			return 0, err
		}
		return len(keys), later(ctx, tx, with(`DELETE FROM inbox WHERE session_key {in $1}`, keys), with(`DELETE FROM runs WHERE session_key {in $1}`, keys),
			with(`DELETE FROM sessions WHERE key {in $1}`, keys))
	})
}

// records deletes the results of calls with an idempotency key.
func (s Retention) records(ctx context.Context, p store.PruneParams) (int, error) {
	return result(ctx, s.db.Update, "prune the answers", func(ctx context.Context, tx Tx) (int, error) {
		done, err := tx.Exec(ctx, `
			WITH old AS MATERIALIZED (SELECT owner, method, key FROM answers WHERE at <= {now} - $1 ORDER BY at {limit $2} {skip})
			DELETE FROM answers WHERE (owner, method, key) IN (SELECT owner, method, key FROM old)`, store.IdempotencyTTL.Milliseconds(), p.Most())
		return int(done), err
	})
}

// changes deletes rows of the audit log. On PostgreSQL the role of a gateway may lack the right.
func (s Retention) changes(ctx context.Context, p store.PruneParams) (int, error) {
	return result(ctx, s.db.Update, "prune the log of changes", func(ctx context.Context, tx Tx) (int, error) {
		may := true
		if text := tx.PerEngine(`SELECT has_table_privilege('audit_log', 'DELETE')`, ""); text != "" {
			if _, err := one(ctx, tx, text, into(&may)); err != nil {
				return 0, err
			}
		}
		if !may {
			return 0, nil
		}
		done, err := tx.Exec(ctx, `WITH old AS MATERIALIZED (SELECT id FROM audit_log WHERE at < $1 ORDER BY at {limit $2})
			DELETE FROM audit_log WHERE id IN (SELECT id FROM old)`, millis(p.Before), p.Most())
		return int(done), err
	})
}

// Passed lists sessions that are to be deleted; see store.Store.
func (s Retention) Passed(ctx context.Context, ago time.Duration, limit int) (keys []chat.SessionKey, err error) {
	err = s.db.View(ctx, "list sessions to delete", func(ctx context.Context, tx Tx) error {
		names, err := all(ctx, tx, `SELECT s.key FROM sessions s {by sessions_passing} WHERE s.key LIKE 'agent:%:api:passing-%' AND s.key NOT LIKE 'agent:%:api:passing-%:%'
			AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.key AND (i.ended_at IS NULL OR i.ended_at > {now} - $1)) {limit $2}`, scanText, ago.Milliseconds(), limit)
		keys = make([]chat.SessionKey, 0, len(names))
		for _, name := range names {
			key, parsed := chat.ParseSessionKey(name, "")
			if err = errors.Join(err, parsed); parsed == nil && key.Passing() {
				keys = append(keys, key)
			}
		}
		return err
	})
	return keys, err
}

// FilesInUse lists the files that unfinished work names; see store.Store.
func (s Retention) FilesInUse(ctx context.Context) (paths []string, err error) {
	err = s.db.View(ctx, "list files in use", func(ctx context.Context, tx Tx) error {
		paths = nil
		for _, text := range []string{filesOfMessagesSQL, filesOfOutgoingSQL} {
			lists, err := all(ctx, tx, text, func(r Row) (files []chat.Attachment, err error) {
				err = r.Scan(jsonColumn{&files})
				return files, err
			})
			if err != nil {
				return err
			}
			paths = append(paths, store.Paths(lists...)...)
		}
		return nil
	})
	return paths, err
}

// FilesNamed returns the paths that messages name; see store.Store.
func (s Retention) FilesNamed(ctx context.Context, paths []string) (named []string, err error) {
	err = s.db.View(ctx, "find messages that name files", func(ctx context.Context, tx Tx) (err error) {
		named, err = all(ctx, tx, tx.PerEngine(filesNamedSQL, filesNamedOnSQLite), scanText, paths)
		return err
	})
	return named, err
}
