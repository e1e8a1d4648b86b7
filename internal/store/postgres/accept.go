package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// offsetSQL proves the lease of a poller and moves its offset. The offset never goes back: an old message that is offered again must not
// make the poller fetch newer ones a second time.
const offsetSQL = `
WITH l AS (
	UPDATE leases SET next_offset = GREATEST(COALESCE(next_offset, 0), $5::bigint)
	WHERE name = $2 AND owner = $3 AND epoch = $4
	  AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = $3 AND n.lease_until > ` + nowSQL + `)
	RETURNING 1
)
SELECT 1 / count(*) FROM l`

// ownSQL divides by zero when the session belongs to another principal. It separates a refusal from a full queue after acceptSQL stored
// nothing.
const ownSQL = `SELECT 1 / count(*) FROM sessions WHERE key = $1 AND principal = $2`

// errNotStored means that acceptSQL stored nothing: the queue is full, the session belongs to another principal, or the message is a
// duplicate. It never leaves the package.
var errNotStored = errors.New("the queue is full")

// Accept makes a message durable, see store.Inbox. It takes one round trip, which concurrent accepts share; a duplicate and a full queue
// take three or four.
func (s *Store) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return store.Accepted{}, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	a, err := s.newAcceptOp(p)
	if err != nil {
		return store.Accepted{}, err
	}
	how := sqlstore.Single
	if p.Offset == nil && len(a.body) <= sqlstore.MaxGrouped {
		if how, err = s.accepts.Do(ctx, a); err != nil {
			return store.Accepted{}, fmt.Errorf("accepting a message: %w", err)
		}
	}
	repeated := how == sqlstore.Unknown
	err = s.do(ctx, "accepting a message", func(ctx context.Context) error {
		if how != sqlstore.Grouped {
			err := a.accept(ctx, repeated)
			repeated = true
			if err != nil {
				return err
			}
			how = sqlstore.Grouped
		}
		return a.endRunsOfDeadOwner(ctx)
	})
	return a.out, err
}

// acceptOp is one Accept under way.
type acceptOp struct {
	s         *Store
	p         store.AcceptParams
	body      string
	sessionID string // of the session if it is new
	deadOwner string // owner that the statement found dead, "" = none
	out       store.Accepted
}

func (s *Store) newAcceptOp(p store.AcceptParams) (*acceptOp, error) {
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
	return &acceptOp{s: s, p: p, body: body, sessionID: id}, nil
}

func (a *acceptOp) Name() string { return a.p.Message.Session.String() }

// accept is one try of the message in a transaction of its own. Repeated is true when an earlier try may have been committed although its
// answer was lost.
func (a *acceptOp) accept(ctx context.Context, repeated bool) error {
	a.out = store.Accepted{}
	err := a.insertInOneTrip(ctx)
	for again := 0; errors.Is(err, errNotStored) && again < maxTries; again++ { // more than once only if the message was offered again meanwhile
		err = a.insertWhenFull(ctx, repeated)
	}
	if errors.Is(err, errNotStored) {
		return unavailable(sentenceSlow, err)
	}
	if a.p.Own && isFence(err) && a.p.Offset == nil {
		return chat.ErrSessionNotFound
	}
	if isUnique(err) { // offered twice at the same moment
		return a.findDuplicate(ctx, repeated)
	}
	return err
}

// endRunsOfDeadOwner ends the runs that a dead owner of the session was stopping.
func (a *acceptOp) endRunsOfDeadOwner(ctx context.Context) error {
	if !a.out.Mine || a.deadOwner == "" {
		return nil
	}
	_, err := a.s.pool.Exec(ctx, endStoppingOfDeadSQL, a.s.clock())
	return err
}

// insertInOneTrip is the usual case: one round trip, or a transaction with the offset, which must not move when the queue is full.
func (a *acceptOp) insertInOneTrip(ctx context.Context) error {
	if a.p.Offset == nil {
		return a.insert(ctx, a.s.turns, &pgx.Batch{}, a.waitingLimit())
	}
	return pgx.BeginFunc(ctx, a.s.turns, func(tx pgx.Tx) error { return a.insert(ctx, tx, &pgx.Batch{}, a.waitingLimit()) })
}

// insertWhenFull ends messages as the drop policy demands, or refuses the new one. A message that was accepted before is a duplicate,
// however full the queue is.
func (a *acceptOp) insertWhenFull(ctx context.Context, repeated bool) error {
	err := a.findDuplicate(ctx, repeated)
	if err == nil || !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	return pgx.BeginFunc(ctx, a.s.turns, func(tx pgx.Tx) error {
		if a.p.Own {
			if _, err := tx.Exec(ctx, ownSQL, a.p.Message.Session.String(), a.p.Message.Principal); err != nil {
				return err
			}
		}
		over, stored, err := a.countExcess(ctx, tx)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if over > 0 {
			if err := a.endExcess(b, over, stored); err != nil {
				return err
			}
		}
		if err := a.insert(ctx, tx, b, 0); err != nil {
			return err
		}
		shared := a.s.shared(tx)
		if err := sqlstore.EndRunsOf(ctx, shared, a.out.Dropped); err != nil {
			return err
		}
		return sqlstore.EndRunsOf(ctx, shared, a.out.Superseded)
	})
}

// endExcess queues the end of the messages that the new one displaces: all that wait when it interrupts, else the oldest over messages. The
// policy DropNew refuses the new message instead.
func (a *acceptOp) endExcess(b *pgx.Batch, over int, stored chat.QueueMode) error {
	switch {
	case a.p.Interrupts(stored):
		return a.end(b, endAllSQL, &a.out.Superseded, store.EndParams{Outcome: chat.OutcomeSuperseded, Reason: store.ReasonSuperseded})
	case a.p.Drop == chat.DropNew:
		return chat.ErrQueueFull
	default:
		p := store.EndParams{Outcome: chat.OutcomeDropped, Reason: string(chat.FailQueueFull), Notice: a.p.DropNotice}
		return a.end(b, endOldestSQL, &a.out.Dropped, p, over)
	}
}

// countExcess locks the session and then counts how many waiting messages are too many once the new one is there; it also reads the
// session's mode. Messages whose turn has a slot already do not count.
func (a *acceptOp) countExcess(ctx context.Context, tx pgx.Tx) (over int, stored chat.QueueMode, err error) {
	key := a.p.Message.Session.String()
	waiting := 0
	b := &pgx.Batch{}
	b.Queue(lockSQL, key)
	b.Queue(`SELECT mode FROM sessions WHERE key = $1`, key).Query(func(rows pgx.Rows) error {
		for rows.Next() { // no row: another transaction has deleted the session
			if err := rows.Scan(&stored); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	b.Queue(`SELECT count(*) FROM inbox WHERE session_key = $1 AND ended_at IS NULL AND state = 'waiting' AND seq <> ALL($2::bigint[])`,
		key, a.starting()).QueryRow(func(row pgx.Row) error { return row.Scan(&waiting) })
	err = send(ctx, tx, b)
	return waiting + a.queuePlaces() - a.p.Cap, stored, err
}

// insert adds the accept statement to a batch and sends it. Bound limits the messages that wait; 0 = no bound.
func (a *acceptOp) insert(ctx context.Context, to sender, b *pgx.Batch, bound int) error {
	full := false
	a.moveOffset(b)
	b.Queue(acceptSQL, a.args(bound)...).QueryRow(func(row pgx.Row) error {
		err := a.scan(row)
		full = errors.Is(err, pgx.ErrNoRows)
		return err
	})
	err := send(ctx, to, b)
	if full {
		return errNotStored
	}
	return err
}

func (a *acceptOp) moveOffset(b *pgx.Batch) {
	if o := a.p.Offset; o != nil {
		b.Queue(offsetSQL, a.s.clock(), o.Name, o.Owner, o.Epoch, o.NextOffset)
	}
}

// end queues a statement that ends waiting messages, and the update of the session's counters. The last parameter of the statement are the
// messages that have a slot already; args come before it.
func (a *acceptOp) end(b *pgx.Batch, sql string, ended *[]store.Waiting, p store.EndParams, args ...any) error {
	p.Session = a.p.Message.Session
	shared, err := a.s.endArgs(p)
	if err != nil {
		return err
	}
	b.Queue(sql, append(append(shared, args...), a.starting())...).Query(collect(ended, scanWaiting))
	b.Queue(settleSQL, a.s.clock(), p.Session.String(), false)
	return nil
}

// waitingLimit is the bound that the statement compares with sessions.waiting. A message that needs no place is never refused.
//
// sessions.waiting counts held messages as well, so the statement may refuse although there is a place; countExcess then counts exactly,
// after the lock.
func (a *acceptOp) waitingLimit() int {
	if a.queuePlaces() == 0 {
		return 0
	}
	return a.p.Cap
}

// queuePlaces is how many places the message takes in the queue.
func (a *acceptOp) queuePlaces() int {
	if a.p.Unqueued || a.p.Joins {
		return 0
	}
	return 1
}

func (a *acceptOp) starting() []int64 {
	if a.p.Starting == nil {
		return []int64{}
	}
	return a.p.Starting
}
