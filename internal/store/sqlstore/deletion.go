package sqlstore

import (
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// keepTranscriptsSQL keeps the transcripts of a session for its principal. Those that an earlier session of the key has left keep their owner.
	keepTranscriptsSQL = `INSERT INTO kept_transcripts (session_key, session_id, principal)
		SELECT DISTINCT t.session_key, t.session_id, s.principal FROM transcript t JOIN sessions s ON s.key = t.session_key WHERE t.session_key = $1
		ON CONFLICT DO NOTHING`

	// forgetKeptSQL and dropSQL delete the transcripts of a session, and those that its principal has kept of earlier ones.
	forgetKeptSQL = `DELETE FROM kept_transcripts WHERE session_key = $1 AND principal = (SELECT principal FROM sessions WHERE key = $1)`
	dropSQL       = `DELETE FROM transcript WHERE session_key = $1
		AND NOT EXISTS (SELECT 1 FROM kept_transcripts k WHERE k.session_key = $1 AND k.session_id = transcript.session_id)`
)

// DeleteSession removes a session that does not run, with what belongs to it; see store.Sessions.
func (s Sessions) DeleteSession(ctx context.Context, p store.DeleteParams) (store.Deleted, error) {
	return result(ctx, s.db.Update, "delete a session", func(ctx context.Context, tx Tx) (store.Deleted, error) {
		return Idempotent(ctx, tx, p.IdempotencyKey, func() (store.Deleted, error) { return remove(ctx, tx, p) })
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
	keys, err := store.Deleting(key, func(key string) ([]string, error) { return all(ctx, tx, store.BelowSQL, scanText, key) })
	if err != nil {
		return out, err
	}
	for _, key := range keys {
		// The lock is a statement of its own, so that the check sees a run that began meanwhile.
		if err := tx.Later(ctx, lockSQL, func(Row) error { return nil }, key); err != nil {
			return out, err
		}
		active, err := one(ctx, tx, `SELECT 1 FROM `+runsUnderWay(tx)+` AND session_key = $1`, func(Row) error { return nil }, key)
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
	return out, Audit(ctx, tx, p.Audit.Between(id, ""), key)
}

// removal is the removal of one session of a deletion. below: it belongs to the one that is deleted, whose transcripts alone may be kept.
type removal struct {
	key         string
	below, keep bool
}

func removeOne(ctx context.Context, tx Tx, r removal, out *store.Deleted) error {
	bodies, err := all(ctx, tx, store.FilesOfSessionSQL, scanText, r.key)
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
	transcripts := []statement{with(forgetKeptSQL, r.key), with(dropSQL, r.key)}
	if r.keep {
		transcripts = []statement{with(keepTranscriptsSQL, r.key)}
	}
	if err := later(ctx, tx, transcripts...); err != nil {
		return err
	}
	if err := later(ctx, tx, with(tombstonesSQL, []string{r.key}), with(`DELETE FROM sessions WHERE key = $1`, r.key)); err != nil {
		return err
	}
	return empty(ctx, tx, r)
}

// empty takes the content out of what stays of a session.
func empty(ctx context.Context, tx Tx, r removal) error {
	statements := append([]string{store.EndOutgoingSQL}, store.ClearSQL()...)
	key := parseKey(r.key)
	if r.below && key.OfTask() {
		statements = append(statements, store.DropSQL()...)
	}
	for _, text := range statements {
		if err := tx.Later(ctx, text, nil, r.key); err != nil {
			return err
		}
	}
	summaries, of := store.ClearSummariesSQL(key)
	return tx.Later(ctx, summaries, nil, of)
}
