package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

// startSQL takes the messages that still wait and makes or continues the run; it does nothing when none waits or the run
// is under way. The session's row is locked already. A first attempt is put before later messages' first attempts in
// time, so that first in, first out can be read off the table. Parameters: $1 clock, $2 session, $3 run, $4 node, $5 epoch, $6 lane,
// $7 messages, $8 transcript entries, $9 their number.
const startSQL = `
WITH old AS (
	SELECT state FROM runs WHERE id = $3
), m AS (
	SELECT seq, accepted_at FROM inbox
	WHERE session_key = $2 AND seq = ANY($7::bigint[]) AND ended_at IS NULL AND state IN ('held', 'waiting')
	  AND NOT EXISTS (SELECT 1 FROM old WHERE state = 'running')
), a AS (
	SELECT min(seq) AS lo, max(seq) AS hi, count(*) AS n, min(accepted_at) AS queued_at, array_agg(seq ORDER BY seq) AS seqs FROM m
), took AS (
	UPDATE inbox SET state = 'running', run_id = $3
	WHERE session_key = $2 AND seq = ANY (ARRAY(SELECT m.seq FROM m)) AND ended_at IS NULL
), s AS (
	UPDATE sessions s SET
		taken_seq = GREATEST(s.taken_seq, a.hi),
		waiting = s.waiting - a.n,
		transcript_seq = s.transcript_seq + CASE WHEN EXISTS (SELECT 1 FROM old) THEN 0 ELSE $9::bigint END,
		updated_at = ` + nowSQL + `
	FROM a WHERE s.key = $2 AND a.n > 0
	RETURNING s.session_id, s.principal, s.notes, s.transcript_seq, s.updated_at AS now
), r AS (
	INSERT INTO runs AS r (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, state, queued_at, started_at)
	SELECT $3, $2, s.session_id, a.lo, a.hi, $6, $4, $5, 1, 'running', a.queued_at, LEAST(s.now, (
		SELECT min((SELECT b.started_at FROM runs b WHERE b.id = n.run_id AND b.attempt = 1 AND b.seq_from > a.hi))
		FROM inbox n WHERE n.session_key = $2 AND n.seq > a.hi))
	FROM s, a
	ON CONFLICT (id) DO UPDATE SET
		lane = excluded.lane, owner = excluded.owner, epoch = excluded.epoch, state = 'running', cause = '',
		attempt = r.attempt + 1, started_at = (SELECT now FROM s), ended_at = NULL
	RETURNING r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id
), said AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, s.session_id, s.transcript_seq - $9::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s, ` + entriesFrom + `($8::json)` + entriesAs + `
	WHERE NOT EXISTS (SELECT 1 FROM old)
)
SELECT a.seqs, r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id, s.principal, s.notes, s.transcript_seq, s.now
FROM s, r, a`

// startedSQL reads a run that is under way: the answer to an earlier call was lost.
const startedSQL = `
SELECT array_agg(i.seq ORDER BY i.seq), r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id, s.principal, s.notes,
	s.transcript_seq, r.started_at
FROM runs r JOIN sessions s ON s.key = r.session_key
JOIN inbox i ON i.session_key = r.session_key AND i.run_id = r.id AND i.state = 'running' AND i.ended_at IS NULL
WHERE r.id = $2 AND r.session_key = $1 AND r.state = 'running'
GROUP BY r.id, s.key`

// Start turns waiting messages into a run, see store.Inbox. One round trip.
func (s *Store) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	said, err := encodeEntries(p.Transcript)
	if err != nil {
		return store.Started{}, err
	}
	var out store.Started
	err = s.do(ctx, "starting a run", func(ctx context.Context) error {
		out = store.Started{}
		b := &pgx.Batch{}
		s.fence(b, p.Claim)
		b.Queue(startSQL, s.clock(), p.Session.String(), p.RunID, p.Node, p.Epoch, p.Lane, p.Seqs, said, len(p.Transcript)).
			QueryRow(func(row pgx.Row) error { return scanStarted(row, &out, p) })
		err := send(ctx, s.pool, b)
		if errors.Is(err, pgx.ErrNoRows) {
			return s.startedBefore(ctx, p, &out)
		}
		return err
	})
	return out, err
}

// startedBefore answers when startSQL had nothing to do: the run is under way, or no message is left for it.
func (s *Store) startedBefore(ctx context.Context, p store.StartParams, out *store.Started) error {
	p.Transcript = nil // it was appended by the call that began the run
	row := s.pool.QueryRow(ctx, startedSQL, p.Session.String(), p.RunID)
	if err := scanStarted(row, out, p); !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	*out = store.Started{}
	return nil
}

func scanStarted(row pgx.Row, out *store.Started, p store.StartParams) error {
	var (
		notes          string
		started, wrote int64
		lastEntry      int64
	)
	err := row.Scan(&out.Seqs, &out.Attempt, &out.Crashes, &out.StopBy, &started, &out.SessionID, &out.Principal, &notes, &lastEntry, &wrote)
	if err != nil {
		return err
	}
	out.StartedAt = fromMillis(started)
	if out.Attempt == 1 {
		out.Entries = numbered(p.Transcript, lastEntry, fromMillis(wrote))
	}
	if err := json.Unmarshal([]byte(notes), &out.Notes); err != nil {
		return fmt.Errorf("reading the notes of %s: %w", p.Session, err)
	}
	return nil
}

// joinSQL adds waiting messages to a run that runs under the claim, and divides by zero when it does not. Parameters: $1
// clock, $2 session, $3 run, $4 node, $5 epoch, $6 messages, $7 number of transcript entries, $8 the entries.
const joinSQL = `
WITH r AS (
	SELECT session_id FROM runs
	WHERE id = $3 AND (session_key = $2) IS TRUE AND owner = $4 AND epoch = $5 AND state = 'running'
), m AS (
	SELECT seq FROM inbox
	WHERE session_key = $2 AND seq = ANY($6::bigint[]) AND ended_at IS NULL AND state IN ('held', 'waiting') AND EXISTS (SELECT 1 FROM r)
), took AS (
	UPDATE inbox SET state = 'running', run_id = $3
	WHERE session_key = $2 AND seq = ANY (ARRAY(SELECT m.seq FROM m)) AND ended_at IS NULL
), s AS (
	UPDATE sessions SET
		taken_seq = GREATEST(taken_seq, (SELECT max(seq) FROM m)),
		waiting = waiting - (SELECT count(*) FROM m),
		transcript_seq = transcript_seq + $7::bigint,
		updated_at = ` + nowSQL + `
	WHERE key = $2 AND EXISTS (SELECT 1 FROM m)
	RETURNING transcript_seq
), said AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, r.session_id, s.transcript_seq - $7::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, ` + nowSQL + `
	FROM s, r, ` + entriesFrom + `($8::json)` + entriesAs + `
)
SELECT 1 / (SELECT count(*) FROM r), COALESCE((SELECT array_agg(seq ORDER BY seq) FROM m), '{}')`

// Join adds waiting messages to a running run, see store.Inbox. One round trip.
func (s *Store) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	said, err := encodeEntries(p.Transcript)
	if err != nil {
		return nil, err
	}
	var joined []int64
	err = s.do(ctx, "joining messages to a run", func(ctx context.Context) error {
		joined = nil
		b := &pgx.Batch{}
		s.fence(b, p.Claim)
		b.Queue(joinSQL, s.clock(), p.Session.String(), p.RunID, p.Node, p.Epoch, p.Seqs, len(p.Transcript), said).
			QueryRow(func(row pgx.Row) error { return row.Scan(nil, &joined) })
		return send(ctx, s.pool, b)
	})
	return joined, err
}
