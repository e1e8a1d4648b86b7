package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// acceptSQL is the whole way in. The session's row is made or locked by the upsert; with $9 > 0 and that many messages
// waiting it is left alone and no row comes back. The session is taken when nobody alive owns it and nothing
// unfinished is in it: older messages are left to the sweep, which hands all of them over together.
//
// Whether the owner is dead is read before the lock is there. So the row says whom the statement found dead, and an owner that
// came meanwhile is left in peace.
const acceptSQL = `
WITH t AS (
	SELECT c.now, COALESCE(g.epoch, 0) AS epoch, COALESCE(g.last_seq, 0) AS seq,
		CASE WHEN NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = b.owner AND n.lease_until > c.now) THEN b.owner END AS dead,
		CASE WHEN $8::boolean AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $7 AND n.lease_until > c.now AND NOT n.draining) THEN $7 END AS taker
	FROM (SELECT ` + nowSQL + ` AS now) c
	LEFT JOIN sessions b ON b.key = $2
	LEFT JOIN graves g ON g.key = $2
), s AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq,
		waiting, run_limit, debounce_until, created_at, updated_at, last_message_at)
	SELECT $2, $3, $4, $5, $6, t.taker, t.epoch + CASE WHEN t.taker IS NULL THEN 0 ELSE 1 END,
		t.seq + 1, t.seq + $19::bigint, t.seq + $19::bigint, $20, $10, t.now + $11::bigint, t.now, t.now, t.now
	FROM t
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
	WHERE $9::bigint = 0 OR s.waiting < $9::bigint
	RETURNING s.last_seq, s.owner, s.epoch, s.session_id, s.principal, s.mode, s.updated_at, s.waiting - $20 AS behind
), i AS (
	INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
		state, outcome, reason, node, accepted_at, ended_at)
	SELECT $2, s.last_seq, $12, $13, $14, $15, $16, $4, $17, $18, $6, $21, $22, $23, $7, s.updated_at,
		CASE WHEN $19::bigint = 1 THEN s.updated_at END
	FROM s
)
SELECT s.last_seq, COALESCE(s.owner, ''), s.epoch, s.session_id, s.principal, s.mode, s.updated_at, s.behind, COALESCE(t.dead, '') FROM s, t`

// offsetSQL proves the lease of a poller and moves its offset, which never goes back: an old message that is offered again
// must not uncover newer ones.
const offsetSQL = `
WITH l AS (
	UPDATE leases SET next_offset = GREATEST(COALESCE(next_offset, 0), $5::bigint)
	WHERE name = $2 AND owner = $3 AND epoch = $4
	  AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $3 AND n.lease_until > ` + nowSQL + `)
	RETURNING 1
)
SELECT 1 / count(*) FROM l`

// ownSQL divides by zero when the session is somebody else's. It stands behind acceptSQL, whose lock makes the answer last, and undoes it.
const ownSQL = `SELECT 1 / count(*) FROM sessions WHERE key = $1 AND principal = $2`

// errFull says that acceptSQL met a full queue. It never leaves the package.
var errFull = errors.New("the queue is full")

// Accept makes a message durable, see store.Inbox. One round trip; a duplicate takes two, a full queue two or three.
func (s *Store) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return store.Accepted{}, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	a, err := s.newArrival(p)
	if err != nil {
		return store.Accepted{}, err
	}
	tries := 0
	err = s.do(ctx, "accepting a message", func(ctx context.Context) error {
		tries++
		return a.accept(ctx, tries > 1)
	})
	return a.out, err
}

// arrival is one message on its way in.
type arrival struct {
	s         *Store
	p         store.AcceptParams
	body      string
	sessionID string // of the session if it is new
	before    string // owner that was found dead
	out       store.Accepted
}

func (s *Store) newArrival(p store.AcceptParams) (*arrival, error) {
	if p.Unqueued {
		p.Take, p.Cap, p.Hold = false, 0, 0
	}
	body, err := encode(p.Message.Content)
	if err != nil {
		return nil, err
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	return &arrival{s: s, p: p, body: body, sessionID: id}, nil
}

// accept is one try. Repeated is true when an earlier one may have been committed although its answer was lost.
func (a *arrival) accept(ctx context.Context, repeated bool) error {
	a.out = store.Accepted{}
	err := a.straight(ctx)
	if errors.Is(err, errFull) {
		err = a.insertIntoFull(ctx)
	}
	if a.p.Own && isFence(err) && a.p.Offset == nil {
		return chat.ErrSessionNotFound
	}
	if isUnique(err) {
		return a.known(ctx, repeated)
	}
	if err == nil && a.out.Mine && a.before != "" {
		_, err = a.s.pool.Exec(ctx, endStoppingOfDeadSQL, a.s.clock())
	}
	return err
}

// straight is the usual way in: one round trip, or a transaction with the offset that must not move if the queue is full.
func (a *arrival) straight(ctx context.Context) error {
	if a.p.Offset == nil {
		return a.insert(ctx, a.s.pool, &pgx.Batch{}, a.bound())
	}
	return pgx.BeginFunc(ctx, a.s.pool, func(tx pgx.Tx) error { return a.insert(ctx, tx, &pgx.Batch{}, a.bound()) })
}

// insertIntoFull makes room as the policy says. A message that was accepted before is a duplicate, however full the queue is.
func (a *arrival) insertIntoFull(ctx context.Context) error {
	err := a.known(ctx, false)
	if err == nil || !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	return pgx.BeginFunc(ctx, a.s.pool, func(tx pgx.Tx) error {
		if a.p.Own {
			if _, err := tx.Exec(ctx, ownSQL, a.p.Message.Session.String(), a.p.Message.Principal); err != nil {
				return err
			}
		}
		over, err := a.over(ctx, tx)
		if err != nil {
			return err
		}
		if over > 0 && a.p.Drop == store.DropNew {
			return chat.ErrQueueFull
		}
		b := &pgx.Batch{}
		if over > 0 {
			if err := a.drop(b, over); err != nil {
				return err
			}
		}
		return a.insert(ctx, tx, b, 0)
	})
}

// over counts, behind the lock, how many waiting messages are too many once the new one is there. Those whose turn begins already
// are no longer waiting for a place.
func (a *arrival) over(ctx context.Context, tx pgx.Tx) (int, error) {
	key := a.p.Message.Session.String()
	waiting := 0
	b := &pgx.Batch{}
	b.Queue(lockSQL, key)
	b.Queue(`SELECT count(*) FROM inbox WHERE session_key = $1 AND ended_at IS NULL AND state = 'waiting' AND seq <> ALL($2::bigint[])`,
		key, a.starting()).QueryRow(func(row pgx.Row) error { return row.Scan(&waiting) })
	err := send(ctx, tx, b)
	return waiting + a.places() - a.p.Cap, err
}

// insert sends acceptSQL behind what is in the batch already. Waiting bounds the messages that wait; 0 = no bound.
func (a *arrival) insert(ctx context.Context, to sender, b *pgx.Batch, bound int) error {
	full := false
	a.moveOffset(b)
	b.Queue(acceptSQL, a.args(bound)...).QueryRow(func(row pgx.Row) error {
		err := a.scan(row)
		full = errors.Is(err, pgx.ErrNoRows)
		return err
	})
	if a.p.Own {
		b.Queue(ownSQL, a.p.Message.Session.String(), a.p.Message.Principal)
	}
	err := send(ctx, to, b)
	if full {
		return errFull
	}
	return err
}

func (a *arrival) moveOffset(b *pgx.Batch) {
	if o := a.p.Offset; o != nil {
		b.Queue(offsetSQL, a.s.clock(), o.Name, o.Owner, o.Epoch, o.NextOffset)
	}
}

// drop ends the oldest n waiting messages.
func (a *arrival) drop(b *pgx.Batch, n int) error {
	key := a.p.Message.Session
	args, err := a.s.endArgs(store.EndParams{
		Session: key, Outcome: chat.OutcomeDropped, Reason: string(chat.FailQueueFull), Notice: a.p.DropNotice,
	})
	if err != nil {
		return err
	}
	b.Queue(endOldestSQL, append(args, n, a.starting())...).Query(collect(&a.out.Dropped, scanWaiting))
	b.Queue(settleSQL, a.s.clock(), key.String(), false)
	return nil
}

// bound is what acceptSQL compares with the messages that wait: a message that needs no place is never refused.
//
// The row counts held messages as well, so acceptSQL refuses too early at times; what does count is then counted behind the lock.
func (a *arrival) bound() int {
	if a.places() == 0 {
		return 0
	}
	return a.p.Cap
}

// places is how many places the message takes in the queue.
func (a *arrival) places() int {
	if a.p.Unqueued || a.p.Joins {
		return 0
	}
	return 1
}

func (a *arrival) starting() []int64 {
	if a.p.Starting == nil {
		return []int64{}
	}
	return a.p.Starting
}

func (a *arrival) args(bound int) []any {
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
		m.Channel, m.ExternalID, m.Content.Sender.ID, a.body, unqueued, 1 - unqueued, state, outcome, reason,
	}
}

func (a *arrival) scan(row pgx.Row) error {
	var at int64
	out := &a.out
	if err := row.Scan(&out.Seq, &out.Owner, &out.Epoch, &out.SessionID, &out.Principal, &out.Mode, &at, &out.Behind, &a.before); err != nil {
		return err
	}
	out.AcceptedAt = fromMillis(at)
	out.Behind += len(out.Dropped)
	out.Mine = out.Owner != "" && out.Owner == a.p.Node
	out.Created = out.SessionID == a.sessionID
	return nil
}

const knownSQL = `
SELECT ` + waitingColumns + `, COALESCE(i.dedupe, ''), i.params_hash, i.node,
	COALESCE(s.owner, ''), COALESCE(s.epoch, 0), COALESCE(s.session_id, ''), COALESCE(s.principal, ''), COALESCE(s.mode, '')
FROM inbox i LEFT JOIN sessions s ON s.key = i.session_key
WHERE i.message_id = $1 OR i.dedupe = $2
ORDER BY (i.dedupe = $2) IS TRUE DESC LIMIT 1`

// known answers for a message that was accepted before, or says that its key names something else. chat.ErrNotFound: it was not.
// After a try whose answer was lost, our own message is not a duplicate: the caller has yet to hear of it.
func (a *arrival) known(ctx context.Context, repeated bool) error {
	old, err := one(ctx, a.s, earlier{}.scan, knownSQL, a.p.Message.ID, orNull(a.p.Message.Dedupe))
	if err != nil {
		return orNone(err, chat.ErrNotFound)
	}
	if !old.is(a.p.Message) {
		return chat.ErrKeyReused
	}
	if a.p.Offset != nil {
		b := &pgx.Batch{}
		a.moveOffset(b)
		if err := send(ctx, a.s.pool, b); err != nil {
			return err
		}
	}
	a.out = old.accepted
	a.out.Mine = a.out.Owner != "" && a.out.Owner == a.p.Node
	if repeated && old.accepted.Existing.MessageID == a.p.Message.ID && old.node == a.p.Node {
		a.out.Duplicate, a.out.Existing = false, store.Waiting{}
	}
	return nil
}

// earlier is a message that was accepted before.
type earlier struct {
	accepted           store.Accepted
	dedupe, hash, node string
}

func (earlier) scan(row pgx.CollectableRow) (earlier, error) {
	var e earlier
	out := &e.accepted
	w, err := scanWaiting(prefixRow{row, []any{&e.dedupe, &e.hash, &e.node, &out.Owner, &out.Epoch, &out.SessionID, &out.Principal, &out.Mode}})
	out.Duplicate, out.Existing, out.Seq, out.AcceptedAt = true, w, w.Seq, w.AcceptedAt
	return e, err
}

func (e earlier) is(m chat.Message) bool {
	return e.dedupe == m.Dedupe && (e.hash == "" || m.ParamsHash == "" || e.hash == m.ParamsHash)
}

// prefixRow lets a scan function read the first columns of a row; the others go to tail.
type prefixRow struct {
	pgx.CollectableRow

	tail []any
}

// Scan reads the whole row.
func (r prefixRow) Scan(dest ...any) error {
	if err := r.CollectableRow.Scan(append(dest, r.tail...)...); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	return nil
}
