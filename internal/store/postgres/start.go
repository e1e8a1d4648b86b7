package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// The start of runs marks the messages that still wait as running and makes or continues their runs. It does nothing for a run that has no
// waiting message or is running already. The fence comes before it. started_at of a first attempt is put before the first attempts of later
// messages, so that the order of the messages holds in the table. Parameters: $1 clock, then the columns of p, each of which is an array
// for several runs; $8 and $9 the messages with the number of their run, $10 the transcript entries.
const (
	startOneSQL  = startOne + startRest
	startManySQL = startMany + startRest

	startOne = `
WITH p AS (
	SELECT 1 AS i, $2::text AS key, $3::text AS run, $4::text AS node, $5::bigint AS epoch, $6::text AS lane,
		$7::bigint AS entries
)`

	startMany = `
WITH p AS MATERIALIZED (
	SELECT i, ($2::text[])[i] AS key, ($3::text[])[i] AS run, ($4::text[])[i] AS node, ($5::bigint[])[i] AS epoch, ($6::text[])[i] AS lane,
		($7::bigint[])[i] AS entries
	FROM ` + numbersSQL + ` WHERE i = ANY (` + heldSQL + `)
)`

	startRest = `, q AS (
	SELECT p.*, r.id IS NOT NULL AS again FROM p LEFT JOIN runs r ON r.id = p.run WHERE (r.state = 'running') IS NOT TRUE
), m AS (
	SELECT q.i, q.run, b.place, b.seq, b.accepted_at
	FROM q JOIN unnest($8::bigint[], $9::bigint[]) AS w(i, seq) ON w.i = q.i CROSS JOIN LATERAL (
		SELECT ctid AS place, seq, accepted_at FROM inbox
		WHERE session_key = q.key AND seq = w.seq AND ended_at IS NULL AND state IN ('held', 'waiting') OFFSET 0
	) b
), a AS MATERIALIZED (
	SELECT i, min(seq) AS lo, max(seq) AS hi, count(*) AS n, min(accepted_at) AS queued_at, array_agg(seq ORDER BY seq) AS seqs FROM m GROUP BY i
), took AS (
	UPDATE inbox b SET state = 'running', run_id = m.run FROM m WHERE b.ctid = m.place AND b.ended_at IS NULL
), s AS (
	UPDATE sessions s SET
		taken_seq = GREATEST(s.taken_seq, a.hi),
		waiting = s.waiting - a.n,
		transcript_seq = s.transcript_seq + CASE WHEN q.again THEN 0 ELSE q.entries END,
		updated_at = ` + nowSQL + `
	FROM a JOIN q ON q.i = a.i WHERE s.key = q.key
	RETURNING q.*, a.lo, a.hi, a.queued_at, a.seqs, s.session_id, s.principal, s.notes, s.transcript_seq, s.updated_at AS now
), r AS (
	INSERT INTO runs AS r (id, session_key, session_id, seq_from, seq_to, lane, owner, epoch, attempt, state, queued_at, started_at)
	SELECT s.run, s.key, s.session_id, s.lo, s.hi, s.lane, s.node, s.epoch, 1, 'running', s.queued_at, LEAST(s.now, (
		SELECT min((SELECT b.started_at FROM runs b WHERE b.id = n.run_id AND b.attempt = 1 AND b.seq_from > s.hi))
		FROM inbox n WHERE n.session_key = s.key AND n.seq > s.hi))
	FROM s
	ON CONFLICT (id) DO UPDATE SET
		lane = excluded.lane, owner = excluded.owner, epoch = excluded.epoch, state = 'running', cause = '',
		attempt = r.attempt + 1, started_at = ` + nowSQL + `, ended_at = NULL
	RETURNING r.id, r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id
), appended AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT s.key, s.session_id, s.transcript_seq - s.entries + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, s.now
	FROM s JOIN ` + entriesFrom + `($10::json)` + entriesAs + ` ON e.of = s.run
	WHERE NOT s.again
)
SELECT s.i, s.seqs, r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id, s.principal, s.notes, s.transcript_seq, s.now
FROM s JOIN r ON r.id = s.run`
)

// startedSQL reads a run that is running: the answer to an earlier call was lost.
const startedSQL = `
SELECT 1, array_agg(i.seq ORDER BY i.seq), r.attempt, r.crashes, r.stop_by, r.started_at, r.session_id, s.principal, s.notes,
	s.transcript_seq, r.started_at
FROM runs r JOIN sessions s ON s.key = r.session_key
JOIN inbox i ON i.session_key = r.session_key AND i.run_id = r.id AND i.state = 'running' AND i.ended_at IS NULL
WHERE r.id = $2 AND r.session_key = $1 AND r.state = 'running'
GROUP BY r.id, s.key`

// Start turns waiting messages into a run, see store.Inbox. It takes one round trip, which concurrent starts share.
func (s *Store) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	g := &startOp{s: s, p: p}
	var err error
	if g.entries, err = encodeEntries(p.Transcript, p.RunID); err != nil {
		return store.Started{}, err
	}
	how := sqlstore.Single
	if len(g.entries) <= sqlstore.MaxGrouped && !g.furtherAttempt() {
		if how, err = s.starts.Do(ctx, g); err != nil {
			return store.Started{}, fmt.Errorf("starting a run: %w", err)
		}
	}
	if how != sqlstore.Grouped {
		err = s.do(ctx, "starting a run", g.start)
	}
	return g.out, err
}

// startOp is one Start under way.
type startOp struct {
	s       *Store
	p       store.StartParams
	entries string
	out     store.Started
}

func (g *startOp) Name() string { return g.p.Session.String() }

// startGroup is one transaction for runs of different sessions.
func (s *Store) startGroup(ctx context.Context, list []*startOp) ([]bool, error) {
	sql, done := startManySQL, make([]bool, len(list))
	if len(list) == 1 {
		sql = startOneSQL
	}
	b := &pgx.Batch{}
	s.hold(b, column(list, func(g *startOp) store.Claim { return g.p.Claim }))
	b.Queue(sql, s.startArgs(list)...).Query(func(rows pgx.Rows) error {
		return scanResults(rows, list, done, (*startOp).scan)
	})
	if err := s.queueBegins(ctx, s.queued(b), list); err != nil {
		return nil, err
	}
	return done, send(ctx, s.turns, b)
}

// start is one try of a run in a transaction of its own.
func (g *startOp) start(ctx context.Context) error {
	g.out = store.Started{}
	b := &pgx.Batch{}
	g.s.fence(b, g.p.Claim)
	b.Queue(startOneSQL, g.s.startArgs([]*startOp{g})...).QueryRow(g.scan)
	err := g.send(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		return g.startedBefore(ctx)
	}
	return err
}

// send writes the begin of the run and, if it is an attempt of a cron run, that of the attempt.
func (g *startOp) send(ctx context.Context, b *pgx.Batch) error {
	if !g.furtherAttempt() {
		if err := g.s.queueBegins(ctx, g.s.queued(b), []*startOp{g}); err != nil {
			return err
		}
		return send(ctx, g.s.turns, b)
	}
	return pgx.BeginFunc(ctx, g.s.turns, func(tx pgx.Tx) error {
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		return g.s.queueBegins(ctx, g.s.shared(tx), []*startOp{g})
	})
}

func (s *Store) startArgs(list []*startOp) []any {
	var of, seqs []int64
	for i, g := range list {
		for _, seq := range g.p.Seqs {
			of, seqs = append(of, int64(i)+1), append(seqs, seq)
		}
	}
	args := columns(s.clock(), list, func(g *startOp) []any {
		return []any{g.Name(), g.p.RunID, g.p.Node, g.p.Epoch, g.p.Lane, int64(len(g.p.Transcript))}
	})
	return append(args, of, seqs, joined(list, func(g *startOp) string { return g.entries }))
}

// startedBefore returns the result when there was nothing to do: the run is running already, or no message is left for it.
func (g *startOp) startedBefore(ctx context.Context) error {
	row := g.s.turns.QueryRow(ctx, startedSQL, g.Name(), g.p.RunID)
	err := g.scan(row)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		g.out = store.Started{}
		return nil
	case err == nil && g.out.Attempt == 1:
		g.out.Entries, err = g.s.runEntries(ctx, g.p.Session, g.p.RunID, len(g.p.Transcript))
	}
	return err
}

func (g *startOp) scan(row pgx.Row) error {
	var (
		i              int
		notes          string
		started, wrote int64
		lastEntry      int64
	)
	out := &g.out
	err := row.Scan(&i, &out.Seqs, &out.Attempt, &out.Crashes, &out.StopBy, &started, &out.SessionID, &out.Principal, &notes, &lastEntry, &wrote)
	if err != nil {
		return err
	}
	out.StartedAt = fromMillis(started)
	if out.Attempt == 1 {
		out.Entries = numbered(g.p.Transcript, lastEntry, fromMillis(wrote))
	}
	if err := json.Unmarshal([]byte(notes), &out.Notes); err != nil {
		return fmt.Errorf("reading the notes of %s: %w", g.p.Session, err)
	}
	return nil
}

// joinSQL adds waiting messages to a run that runs under the claim, and divides by zero when it does not. Parameters: $1
// clock, $2 session, $3 run, $4 node, $5 epoch, $6 messages, $7 number of transcript entries, $8 the entries, $9 round of the journal or 0. It also
// returns the messages that an earlier call has joined: they have higher numbers than those that the run began with.
const joinSQL = `
WITH r AS (
	SELECT session_id, seq_to FROM runs
	WHERE id = $3 AND (session_key = $2) IS TRUE AND owner = $4 AND epoch = $5 AND state IN ('running', 'yielded')
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
), appended AS (
	INSERT INTO transcript (` + entryColumns + `)
	SELECT $2, r.session_id, s.transcript_seq - $7::bigint + e.i, e.run, e.role, e.content, e.sender, e.tokens, e.reason, e.command, ` + nowSQL + `
	FROM s, r, ` + entriesFrom + `($8::json)` + entriesAs + `
), noted AS (
	INSERT INTO turn_rounds (run_id, round, kind, n, body) SELECT $3, $9::int, 'input', seq, '' FROM m WHERE $9::int > 0
)
SELECT 1 / (SELECT count(*) FROM r), COALESCE((SELECT array_agg(j.seq ORDER BY j.seq) FROM (
	SELECT seq FROM m UNION ALL
	SELECT i.seq FROM inbox i, r WHERE i.session_key = $2 AND i.seq = ANY($6::bigint[]) AND i.seq > r.seq_to
		AND i.state = 'running' AND i.run_id = $3 AND i.ended_at IS NULL
) j), '{}')`

// Join adds waiting messages to a running run, see store.Inbox. One round trip.
func (s *Store) Join(ctx context.Context, p store.StartParams) ([]int64, error) {
	entriesJSON, err := encodeEntries(p.Transcript, "")
	if err != nil {
		return nil, err
	}
	var joined []int64
	err = s.do(ctx, "joining messages to a run", func(ctx context.Context) error {
		joined = nil
		b := &pgx.Batch{}
		s.fence(b, p.Claim)
		b.Queue(joinSQL, s.clock(), p.Session.String(), p.RunID, p.Node, p.Epoch, p.Seqs, len(p.Transcript), entriesJSON, p.Round).
			QueryRow(func(row pgx.Row) error { return row.Scan(nil, &joined) })
		return send(ctx, s.pool, b)
	})
	return joined, err
}
