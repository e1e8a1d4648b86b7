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
// Who is alive is read from the statement's snapshot. A node that registered and took the session while this statement waited for
// the lock would be overlooked; its claim would then be refused by the fence, and the sweep would repair the rest.
const acceptSQL = `
WITH t AS (
	SELECT ` + nowSQL + ` AS now,
		$8::boolean AND EXISTS (SELECT 1 FROM nodes WHERE id = $7 AND lease_until > ` + nowSQL + ` AND NOT draining) AS may
), s AS (
	INSERT INTO sessions AS s (key, agent, principal, session_id, lane, owner, epoch, last_seq, taken_seq, done_seq,
		waiting, run_limit, debounce_until, created_at, updated_at, last_message_at)
	SELECT $2, $3, $4, $5, $6, CASE WHEN t.may THEN $7 END, COALESCE(g.epoch, 0) + t.may::int,
		COALESCE(g.last_seq, 0) + 1, COALESCE(g.last_seq, 0) + $19::int, COALESCE(g.last_seq, 0) + $19::int,
		1 - $19::int, $10, CASE WHEN $11::bigint > 0 THEN t.now + $11::bigint ELSE 0 END, t.now, t.now, t.now
	FROM t LEFT JOIN graves g ON g.key = $2
	ON CONFLICT (key) DO UPDATE SET
		last_seq = s.last_seq + 1,
		done_seq = s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN $19::int ELSE 0 END,
		taken_seq = GREATEST(s.taken_seq, s.done_seq + CASE WHEN s.done_seq = s.last_seq THEN $19::int ELSE 0 END),
		waiting = s.waiting + 1 - $19::int,
		owner = CASE WHEN excluded.owner IS NOT NULL AND s.done_seq = s.last_seq AND NOT EXISTS (
			SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > excluded.updated_at) THEN excluded.owner ELSE s.owner END,
		epoch = s.epoch + CASE WHEN excluded.owner IS NOT NULL AND s.done_seq = s.last_seq AND NOT EXISTS (
			SELECT 1 FROM nodes n WHERE n.id = s.owner AND n.lease_until > excluded.updated_at) THEN 1 ELSE 0 END,
		lane = excluded.lane,
		run_limit = CASE WHEN $19::int = 1 THEN s.run_limit ELSE excluded.run_limit END,
		debounce_until = GREATEST(s.debounce_until, excluded.debounce_until),
		updated_at = excluded.updated_at,
		last_message_at = excluded.updated_at
	WHERE $9::bigint = 0 OR s.waiting < $9::bigint
	RETURNING s.last_seq, s.owner, s.epoch, s.session_id, s.principal, s.mode, s.updated_at
), i AS (
	INSERT INTO inbox (session_key, seq, message_id, dedupe, params_hash, channel, external_id, principal, sender, body, lane,
		state, outcome, reason, node, accepted_at, ended_at)
	SELECT $2, s.last_seq, $12, $13, $14, $15, $16, $4, $17, $18, $6,
		CASE WHEN $19::int = 1 THEN 'done' WHEN $11::bigint > 0 THEN 'held' ELSE 'waiting' END,
		CASE WHEN $19::int = 1 THEN 'answered' END, CASE WHEN $19::int = 1 THEN '` + store.ReasonCommand + `' ELSE '' END,
		$7, s.updated_at, CASE WHEN $19::int = 1 THEN s.updated_at END
	FROM s
), gone AS (
	UPDATE runs r SET state = 'stopped', ended_at = s.updated_at FROM s
	WHERE r.session_key = $2 AND r.ended_at IS NULL AND r.state = 'stopping'
	  AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = r.owner AND n.lease_until > s.updated_at)
)
SELECT s.last_seq, COALESCE(s.owner, ''), s.epoch, s.session_id, s.principal, s.mode, s.updated_at FROM s`

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

// errFull says that acceptSQL met a full queue. It never leaves the package.
var errFull = errors.New("the queue is full") //nolint:gochecknoglobals // a sentinel

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
	err := a.insert(ctx, false)
	if errors.Is(err, errFull) {
		err = a.insertIntoFull(ctx)
	}
	if !isUnique(err) {
		return err
	}
	return a.known(ctx, repeated)
}

// insertIntoFull makes room as the policy says. A message that was accepted before is a duplicate, however full the queue is.
func (a *arrival) insertIntoFull(ctx context.Context) error {
	err := a.known(ctx, false)
	if err == nil || !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	if a.p.Drop == store.DropNew {
		return chat.ErrQueueFull
	}
	return a.insert(ctx, true)
}

func (a *arrival) insert(ctx context.Context, makeRoom bool) error {
	b := &pgx.Batch{}
	a.moveOffset(b)
	if makeRoom {
		if err := a.drop(b); err != nil {
			return err
		}
	}
	full := false
	b.Queue(acceptSQL, a.args()...).QueryRow(func(row pgx.Row) error {
		err := a.scan(row)
		if errors.Is(err, pgx.ErrNoRows) {
			full = true
			return errFull
		}
		return err
	})
	err := send(ctx, a.s.pool, b)
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

// drop ends the oldest waiting messages until the new one has a place.
func (a *arrival) drop(b *pgx.Batch) error {
	key := a.p.Message.Session
	b.Queue(lockSQL, key.String())
	args, err := a.s.endArgs(store.EndParams{
		Session: key, Outcome: chat.OutcomeDropped, Reason: string(chat.FailQueueFull), Notice: a.p.DropNotice,
	})
	if err != nil {
		return err
	}
	b.Queue(endOverSQL, append(args, a.p.Cap)...).Query(collect(&a.out.Dropped, scanWaiting))
	b.Queue(settleSQL, a.s.clock(), key.String(), false)
	return nil
}

func (a *arrival) args() []any {
	m := a.p.Message
	unqueued := 0
	if a.p.Unqueued {
		unqueued = 1
	}
	return []any{
		a.s.clock(), m.Session.String(), m.Session.Agent, m.Principal, a.sessionID, m.Lane, a.p.Node, a.p.Take,
		a.p.Cap, max(a.p.RunLimit, 1), a.p.Hold.Milliseconds(), m.ID, orNull(m.Dedupe), m.ParamsHash,
		m.Channel, m.ExternalID, m.Content.Sender.ID, a.body, unqueued,
	}
}

func (a *arrival) scan(row pgx.Row) error {
	var at int64
	out := &a.out
	if err := row.Scan(&out.Seq, &out.Owner, &out.Epoch, &out.SessionID, &out.Principal, &out.Mode, &at); err != nil {
		return err
	}
	out.AcceptedAt = fromMillis(at)
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
	b := &pgx.Batch{}
	a.moveOffset(b)
	var old earlier
	b.Queue(knownSQL, a.p.Message.ID, orNull(a.p.Message.Dedupe)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectExactlyOneRow(rows, old.scan)
		if errors.Is(err, pgx.ErrNoRows) {
			return chat.ErrNotFound
		}
		old = found
		if err == nil && !old.is(a.p.Message) {
			return chat.ErrKeyReused
		}
		return err
	})
	if err := send(ctx, a.s.pool, b); err != nil {
		return err
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
