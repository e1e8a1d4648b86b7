package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// acceptSQL is the whole accept in one statement. The upsert makes or locks the session's row. It changes nothing and returns no row when
// $9 > 0 messages or more wait, or when $24 is set and the session belongs to another principal. The accepting node becomes the owner when
// no live node owns the session and nothing unfinished is in it; a session with older messages is left to the sweep, which moves all of
// them to one owner.
//
// Whether the owner is dead is read before the lock is held. Therefore the statement takes the session only from the owner that it found
// dead: a new owner that was committed in between stays.
const (
	acceptSQL = acceptHead + acceptTail
	// acceptFreeSQL also stores nothing when another transaction has locked the row: it does not wait.
	acceptFreeSQL = acceptHead + `
	WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE key = $2) OR EXISTS (SELECT 1 FROM sessions WHERE key = $2 FOR UPDATE SKIP LOCKED)` + acceptTail

	acceptHead = `
WITH t AS (
	SELECT c.now, COALESCE(g.epoch, 0) AS epoch, COALESCE(g.last_seq, 0) AS seq,
		CASE WHEN NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = b.owner AND n.lease_until > c.now) THEN b.owner END AS dead,
		CASE WHEN $8::boolean AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $7 AND n.lease_until > c.now AND NOT n.draining) THEN $7 END AS taker
	FROM (SELECT ` + nowSQL + ` AS now) c
	LEFT JOIN sessions b ON b.key = $2
	LEFT JOIN tombstones g ON g.key = $2
), s AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq,
		waiting, run_limit, debounce_until, created_at, updated_at, last_message_at)
	SELECT $2, $3, $4, $5, $6, t.taker, t.epoch + CASE WHEN t.taker IS NULL THEN 0 ELSE 1 END,
		t.seq + 1, t.seq + $19::bigint, t.seq + $19::bigint, $20, $10, t.now + $11::bigint, t.now, t.now, t.now
	FROM t`

	acceptTail = `
	ON CONFLICT (key) DO UPDATE SET
		last_seq = s.last_seq + 1,
		done_seq = s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN $19::bigint ELSE 0 END,
		taken_seq = GREATEST(s.taken_seq, s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN $19::bigint ELSE 0 END),
		waiting = s.waiting + excluded.waiting,
		owner = CASE WHEN excluded.owner IS NOT NULL AND s.done_seq = s.last_seq
			AND (s.owner IS NULL OR s.owner = (SELECT dead FROM t)) THEN excluded.owner ELSE s.owner END,
		epoch = s.epoch + CASE WHEN excluded.owner IS NOT NULL AND s.done_seq = s.last_seq
			AND (s.owner IS NULL OR s.owner = (SELECT dead FROM t)) THEN 1 ELSE 0 END,
		lane = excluded.lane,
		run_limit = CASE WHEN $19::bigint = 1 THEN s.run_limit ELSE excluded.run_limit END,
		debounce_until = CASE WHEN $11::bigint > 0 THEN GREATEST(s.debounce_until, excluded.debounce_until) ELSE s.debounce_until END,
		updated_at = excluded.updated_at,
		last_message_at = excluded.updated_at
	WHERE ($9::bigint = 0 OR s.waiting < $9::bigint) AND (NOT $24::boolean OR s.principal = excluded.principal)
	RETURNING s.last_seq, s.owner, s.epoch, s.session_id, s.principal, s.mode, s.updated_at, s.waiting - $20 AS behind
), i AS (
	INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
		state, outcome, reason, node, accepted_at, ended_at)
	SELECT $2, s.last_seq, $12, $13, $14, $15, $16, $4, $17, $18, $6, $21, $22, $23, $7, s.updated_at,
		CASE WHEN $19::bigint = 1 THEN s.updated_at END
	FROM s
)
SELECT 1, s.last_seq, COALESCE(s.owner, ''), s.epoch, s.session_id, s.principal, s.mode, s.updated_at, s.behind, COALESCE(t.dead, '') FROM s, t`
)

// acceptManySQL is acceptFreeSQL for messages of different sessions. A message whose id and key are new gets the next number of its
// session; a session's row that exists and is free is locked and changed, a new one is made. Parameters: $1 clock, then one array for each
// column of m.
const acceptManySQL = `
WITH m AS MATERIALIZED (
	SELECT i, ($2::text[])[i] AS key, ($3::text[])[i] AS agent, ($4::text[])[i] AS principal, ($5::text[])[i] AS new_id, ($6::text[])[i] AS lane,
		($7::text[])[i] AS node, ($8::bigint[])[i] AS takes, ($9::bigint[])[i] AS bound, ($10::bigint[])[i] AS run_limit,
		($11::bigint[])[i] AS hold, ($12::text[])[i] AS message_id, NULLIF(($13::text[])[i], '') AS dedupe, ($14::text[])[i] AS params_hash,
		($15::text[])[i] AS channel, ($16::bigint[])[i] AS external_id, ($17::text[])[i] AS sender, ($18::text[])[i] AS body,
		($19::bigint[])[i] AS unqueued, ($20::bigint[])[i] AS joins, ($21::bigint[])[i] AS own
	FROM ` + numbersSQL + `
), c AS (
	SELECT ` + nowSQL + ` AS now
), t AS (
	SELECT m.*, c.now, b.key IS NULL AS fresh, COALESCE(g.epoch, 0) AS old_epoch, COALESCE(g.last_seq, 0) AS old_seq,
		CASE WHEN NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = b.owner AND n.lease_until > c.now) THEN b.owner END AS dead,
		CASE WHEN m.takes = 1 AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = m.node AND n.lease_until > c.now AND NOT n.draining) THEN m.node END AS taker
	FROM m CROSS JOIN c LEFT JOIN sessions b ON b.key = m.key LEFT JOIN tombstones g ON g.key = m.key
	WHERE NOT EXISTS (SELECT 1 FROM inbox d WHERE d.message_id = m.message_id)
	  AND NOT EXISTS (SELECT 1 FROM inbox d WHERE d.dedupe = m.dedupe)
), held AS (
	SELECT t.* FROM t JOIN sessions s ON s.key = t.key FOR UPDATE OF s SKIP LOCKED
), u AS (
	UPDATE sessions s SET
		last_seq = s.last_seq + 1,
		done_seq = s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN held.unqueued ELSE 0 END,
		taken_seq = GREATEST(s.taken_seq, s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN held.unqueued ELSE 0 END),
		waiting = s.waiting + 1 - held.unqueued,
		owner = CASE WHEN held.taker IS NOT NULL AND s.done_seq = s.last_seq AND (s.owner IS NULL OR s.owner = held.dead) THEN held.taker ELSE s.owner END,
		epoch = s.epoch + CASE WHEN held.taker IS NOT NULL AND s.done_seq = s.last_seq AND (s.owner IS NULL OR s.owner = held.dead) THEN 1 ELSE 0 END,
		lane = held.lane,
		run_limit = CASE WHEN held.unqueued = 1 THEN s.run_limit ELSE held.run_limit END,
		debounce_until = CASE WHEN held.hold > 0 THEN GREATEST(s.debounce_until, held.now + held.hold) ELSE s.debounce_until END,
		updated_at = held.now,
		last_message_at = held.now
	FROM held
	WHERE s.key = held.key AND (held.bound = 0 OR s.waiting < held.bound) AND (held.own = 0 OR s.principal = held.principal)
	RETURNING held.*, s.last_seq, s.owner, s.epoch, s.session_id, s.principal AS owned_by, s.mode, s.waiting
), n AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq,
		waiting, run_limit, debounce_until, created_at, updated_at, last_message_at)
	SELECT t.key, t.agent, t.principal, t.new_id, t.lane, t.taker, t.old_epoch + CASE WHEN t.taker IS NULL THEN 0 ELSE 1 END,
		t.old_seq + 1, t.old_seq + t.unqueued, t.old_seq + t.unqueued, 1 - t.unqueued, t.run_limit, t.now + t.hold, t.now, t.now, t.now
	FROM t WHERE t.fresh ORDER BY t.key
	ON CONFLICT (key) DO NOTHING
	RETURNING s.key, s.last_seq, s.owner, s.epoch, s.session_id, s.principal AS owned_by, s.mode, s.waiting
), a AS (
	SELECT * FROM u UNION ALL
	SELECT t.*, n.last_seq, n.owner, n.epoch, n.session_id, n.owned_by, n.mode, n.waiting FROM n JOIN t ON t.key = n.key
), stored AS (
	INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
		state, outcome, reason, node, accepted_at, ended_at)
	SELECT a.key, a.last_seq, a.message_id, a.dedupe, a.params_hash, a.channel, a.external_id, a.principal, a.sender, a.body, a.lane,
		CASE WHEN a.unqueued = 1 THEN 'done' WHEN a.joins = 1 THEN 'held' ELSE 'waiting' END,
		CASE WHEN a.unqueued = 1 THEN 'answered' END, CASE WHEN a.unqueued = 1 THEN '` + store.ReasonCommand + `' ELSE '' END,
		a.node, a.now, CASE WHEN a.unqueued = 1 THEN a.now END
	FROM a
)
SELECT a.i, a.last_seq, COALESCE(a.owner, ''), a.epoch, a.session_id, a.owned_by, a.mode, a.now, a.waiting - 1 + a.unqueued, COALESCE(a.dead, '') FROM a`

// acceptGroup is one transaction for messages of different sessions.
func (s *Store) acceptGroup(ctx context.Context, list []*acceptOp) ([]bool, error) {
	done := make([]bool, len(list))
	scan := func(rows pgx.Rows) error { return scanResults(rows, list, done, (*acceptOp).scan) }
	b := &pgx.Batch{}
	if len(list) == 1 {
		b.Queue(acceptFreeSQL, list[0].args(list[0].waitingLimit())...).Query(scan)
	} else {
		b.Queue(acceptManySQL, columns(s.clock(), list, (*acceptOp).row)...).Query(scan)
	}
	return done, send(ctx, s.turns, b)
}

// row is the message as the columns of m.
func (a *acceptOp) row() []any {
	m := a.p.Message
	return []any{
		a.Name(), m.Session.Agent, m.Principal, a.sessionID, m.Lane, a.p.Node, flag(a.p.Take), int64(a.waitingLimit()), int64(max(a.p.RunLimit, 1)),
		a.p.Hold.Milliseconds(), m.ID, m.Dedupe, m.ParamsHash, m.Channel, m.ExternalID, m.Content.Sender.ID, a.body,
		flag(a.p.Unqueued), flag(a.p.Joins), flag(a.p.Own),
	}
}

// args are the parameters of acceptSQL; bound limits the messages that wait, 0 = no bound.
func (a *acceptOp) args(bound int) []any {
	m := a.p.Message
	unqueued, state, outcome, reason := 0, store.StateWaiting, any(nil), ""
	switch {
	case a.p.Unqueued:
		unqueued, state, outcome, reason = 1, store.StateDone, string(chat.OutcomeAnswered), store.ReasonCommand
	case a.p.Joins:
		state = store.StateHeld
	}
	return []any{
		a.s.clock(), m.Session.String(), m.Session.Agent, m.Principal, a.sessionID, m.Lane, a.p.Node, a.p.Take,
		bound, max(a.p.RunLimit, 1), a.p.Hold.Milliseconds(), m.ID, orNull(m.Dedupe), m.ParamsHash,
		m.Channel, m.ExternalID, m.Content.Sender.ID, a.body, unqueued, 1 - unqueued, state, outcome, reason, a.p.Own,
	}
}

func (a *acceptOp) scan(row pgx.Row) error {
	var (
		i  int
		at int64
	)
	out := &a.out
	err := row.Scan(&i, &out.Seq, &out.Owner, &out.Epoch, &out.SessionID, &out.Principal, &out.Mode, &at, &out.Behind, &a.deadOwner)
	if err != nil {
		return err
	}
	out.AcceptedAt = fromMillis(at)
	out.Behind += len(out.Dropped) + len(out.Superseded)
	out.Mine = out.Owner != "" && out.Owner == a.p.Node
	out.Created = out.SessionID == a.sessionID
	return nil
}
