package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// The statements that end waiting messages differ only in the messages (v). The session's row is locked already. Parameters: $1 clock, $2
// session, $3 outcome, $4 reason, $5 notice as JSON or NULL, $6 the word that joins notices, $7 the notice's session; then the parameters
// of v.
const (
	endOldestSQL = `WITH v AS (
	SELECT seq FROM inbox WHERE session_key = $2 AND ended_at IS NULL AND state = 'waiting' AND seq <> ALL($9::bigint[])
	ORDER BY seq LIMIT $8::bigint` + endTail

	endAllSQL = `WITH v AS (
	SELECT seq FROM inbox
	WHERE session_key = $2 AND ended_at IS NULL AND state IN ('held', 'waiting') AND seq <> ALL($8::bigint[])` + endTail

	endSeqsSQL = `WITH v AS (
	SELECT seq FROM inbox WHERE session_key = $2 AND ended_at IS NULL AND state IN ('held', 'waiting') AND seq = ANY($8::bigint[])` + endTail

	// A notice is joined to one of the same word that no attempt was made to send.
	endTail = `
), raised AS (
	UPDATE outbox SET count = count + (SELECT count(*) FROM v)
	WHERE id = (
		SELECT o.id FROM outbox o JOIN ` + outgoingFrom + `($5::json)` + outgoingAsN + ` ON o.channel = w.channel AND o.chat_id = w.chat
		WHERE o.coalesce = $6 AND o.coalesce <> '' AND o.session_key IN ($2, $7) AND o.done_at IS NULL AND o.state = 'pending' AND o.attempt = 0
		ORDER BY o.place LIMIT 1)
	  AND state = 'pending' AND attempt = 0 AND EXISTS (SELECT 1 FROM v)
	RETURNING id
), added AS (
	INSERT INTO outbox (` + outgoingColumns + `)
	SELECT o.id, o.run, o.n, o.session, o.channel, o.chat, o.thread, o.kind, o.payload, o.many, (SELECT count(*) FROM v), o.word, o.epoch,
		` + nowSQL + ` + o.delay, o.expires, ` + nowSQL + `, ` + partsSQL + `
	FROM ` + outgoingFrom + `($5::json)` + outgoingAs + `
	WHERE EXISTS (SELECT 1 FROM v) AND NOT EXISTS (SELECT 1 FROM raised)
	RETURNING id
), i AS (
	UPDATE inbox SET state = 'done', outcome = $3, reason = $4, ended_at = ` + nowSQL + `,
		notice_id = COALESCE((SELECT id FROM raised UNION ALL SELECT id FROM added), notice_id)
	WHERE session_key = $2 AND seq = ANY (ARRAY(SELECT seq FROM v)) AND ended_at IS NULL
	RETURNING *
)
SELECT ` + waitingColumns + ` FROM i ORDER BY i.seq`
)

// endedBeforeSQL lists the messages that an earlier try of a repeated call has ended. $1 session, $2 sequence numbers, $3 outcome, $4 reason.
const endedBeforeSQL = `SELECT ` + waitingColumns + ` FROM inbox i
	WHERE i.session_key = $1 AND i.seq = ANY($2::bigint[]) AND i.state = 'done' AND i.outcome = $3 AND i.reason = $4 ORDER BY i.seq`

// settleSQL brings the counters of a session up to date with its messages. With $3 everything accepted so far lies before the
// cutoff. The session's row is locked already.
const settleSQL = `
UPDATE sessions s SET
	waiting = w.n,
	done_seq = COALESCE(w.first - 1, s.last_seq),
	taken_seq = GREATEST(s.taken_seq, COALESCE(w.first - 1, s.last_seq)),
	stop_seq = CASE WHEN $3 THEN s.last_seq ELSE s.stop_seq END,
	updated_at = ` + nowSQL + `
FROM (
	SELECT count(*) FILTER (WHERE state IN ('held', 'waiting')) AS n, min(seq) AS first
	FROM inbox WHERE session_key = $2 AND ended_at IS NULL
) w
WHERE s.key = $2
RETURNING s.stop_seq`

// EndWaiting gives waiting messages an outcome, see store.Inbox.
func (s *Store) EndWaiting(ctx context.Context, p store.EndParams) ([]store.Waiting, error) {
	if p.Outcome == "" {
		return nil, chat.Errorf(chat.CodeInvalid, "a message that ends needs an outcome")
	}
	args, err := s.endArgs(p)
	if err != nil {
		return nil, err
	}
	var all []store.Waiting
	err = s.within(ctx, "ending waiting messages", func(ctx context.Context, tx pgx.Tx) error {
		all = nil
		b := &pgx.Batch{}
		b.Queue(lockSQL, p.Session.String())
		if p.Again {
			b.Queue(endedBeforeSQL, p.Session.String(), p.Seqs, string(p.Outcome), clean(p.Reason)).Query(collect(&all, scanWaiting))
		}
		p.Again = true // for the next try: this one may be committed without an answer
		b.Queue(endSeqsSQL, append(slices.Clip(args), p.Seqs)...).Query(collect(&all, scanWaiting))
		b.Queue(settleSQL, s.clock(), p.Session.String(), false)
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		return sqlstore.EndRunsOf(ctx, s.shared(tx), all)
	})
	return all, err
}

// endArgs are the parameters that all ending statements share.
func (s *Store) endArgs(p store.EndParams) ([]any, error) {
	var (
		notice  any
		word    string
		session string
	)
	if p.Notice != nil {
		text, err := encodeOutgoing([]store.Outgoing{*p.Notice})
		if err != nil {
			return nil, err
		}
		notice, word, session = text, p.Notice.Coalesce, p.Notice.Session.String()
	}
	key := p.Session.String()
	return []any{s.clock(), key, string(p.Outcome), clean(p.Reason), notice, word, cmp.Or(session, key)}, nil
}
