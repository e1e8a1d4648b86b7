package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

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

// ownSQL divides by zero when the session is somebody else's. It gives the reason why the message was not stored.
const ownSQL = `SELECT 1 / count(*) FROM sessions WHERE key = $1 AND principal = $2`

// errFull says that a message was not stored: the queue is full, the session is somebody else's, or the message was offered before. It
// never leaves the package.
var errFull = errors.New("the queue is full")

// Accept makes a message durable, see store.Inbox. One round trip, shared with what comes at the same time; a duplicate and a full queue
// take three or four.
func (s *Store) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	if p.Message.ID == "" || p.Message.Session.IsZero() {
		return store.Accepted{}, chat.Errorf(chat.CodeInvalid, "a message needs an id and a session")
	}
	a, err := s.newArrival(p)
	if err != nil {
		return store.Accepted{}, err
	}
	how := alone
	if p.Offset == nil && len(a.body) <= maxShared {
		if how, err = s.accepts.do(ctx, a); err != nil {
			return store.Accepted{}, fmt.Errorf("accepting a message: %w", err)
		}
	}
	repeated := how == doubtful
	err = s.do(ctx, "accepting a message", func(ctx context.Context) error {
		if how != shared {
			err := a.accept(ctx, repeated)
			repeated = true
			if err != nil {
				return err
			}
			how = shared
		}
		return a.buryOwner(ctx)
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

func (a *arrival) session() string { return a.p.Message.Session.String() }

// accept is one try of a message by itself. Repeated is true when an earlier one may have been committed although its answer was lost.
func (a *arrival) accept(ctx context.Context, repeated bool) error {
	a.out = store.Accepted{}
	err := a.straight(ctx)
	for again := 0; errors.Is(err, errFull) && again < maxTries; again++ { // more than once only if it was offered again meanwhile
		err = a.insertIntoFull(ctx, repeated)
	}
	if errors.Is(err, errFull) {
		return unavailable(sentenceSlow, err)
	}
	if a.p.Own && isFence(err) && a.p.Offset == nil {
		return chat.ErrSessionNotFound
	}
	if isUnique(err) { // offered twice at the same moment
		return a.known(ctx, repeated)
	}
	return err
}

// buryOwner ends what a dead owner of the session was stopping.
func (a *arrival) buryOwner(ctx context.Context) error {
	if !a.out.Mine || a.before == "" {
		return nil
	}
	_, err := a.s.pool.Exec(ctx, endStoppingOfDeadSQL, a.s.clock())
	return err
}

// straight is the usual way in: one round trip, or a transaction with the offset that must not move if the queue is full.
func (a *arrival) straight(ctx context.Context) error {
	if a.p.Offset == nil {
		return a.insert(ctx, a.s.turns, &pgx.Batch{}, a.bound())
	}
	return pgx.BeginFunc(ctx, a.s.turns, func(tx pgx.Tx) error { return a.insert(ctx, tx, &pgx.Batch{}, a.bound()) })
}

// insertIntoFull makes room as the policy says. A message that was accepted before is a duplicate, however full the queue is.
func (a *arrival) insertIntoFull(ctx context.Context, repeated bool) error {
	err := a.known(ctx, repeated)
	if err == nil || !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	return pgx.BeginFunc(ctx, a.s.turns, func(tx pgx.Tx) error {
		if a.p.Own {
			if _, err := tx.Exec(ctx, ownSQL, a.p.Message.Session.String(), a.p.Message.Principal); err != nil {
				return err
			}
		}
		over, stored, err := a.over(ctx, tx)
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		if over > 0 {
			if err := a.makeRoom(b, over, stored); err != nil {
				return err
			}
		}
		if err := a.insert(ctx, tx, b, 0); err != nil {
			return err
		}
		return errors.Join(runsOf(ctx, tx, a.out.Dropped), runsOf(ctx, tx, a.out.Superseded))
	})
}

// makeRoom queues the end of what has to go: all that waits when the message interrupts, else the oldest over messages, unless the policy refuses the
// new one.
func (a *arrival) makeRoom(b *pgx.Batch, over int, stored chat.QueueMode) error {
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

// over counts, behind the lock, how many waiting messages are too many once the new one is there, and reads the mode of the session. Those whose turn
// begins already are no longer waiting for a place.
func (a *arrival) over(ctx context.Context, tx pgx.Tx) (over int, stored chat.QueueMode, err error) {
	key := a.p.Message.Session.String()
	waiting := 0
	b := &pgx.Batch{}
	b.Queue(lockSQL, key)
	b.Queue(`SELECT mode FROM sessions WHERE key = $1`, key).Query(func(rows pgx.Rows) error {
		for rows.Next() { // no row: somebody else has deleted the session
			if err := rows.Scan(&stored); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	b.Queue(`SELECT count(*) FROM inbox WHERE session_key = $1 AND ended_at IS NULL AND state = 'waiting' AND seq <> ALL($2::bigint[])`,
		key, a.starting()).QueryRow(func(row pgx.Row) error { return row.Scan(&waiting) })
	err = send(ctx, tx, b)
	return waiting + a.places() - a.p.Cap, stored, err
}

// insert sends the statement behind what is in the batch already. Waiting bounds the messages that wait; 0 = no bound.
func (a *arrival) insert(ctx context.Context, to sender, b *pgx.Batch, bound int) error {
	full := false
	a.moveOffset(b)
	b.Queue(acceptSQL, a.args(bound)...).QueryRow(func(row pgx.Row) error {
		err := a.scan(row)
		full = errors.Is(err, pgx.ErrNoRows)
		return err
	})
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

// end queues a statement that ends waiting messages, and what brings the session up to date. The last parameter of the statement is the messages that have
// a slot already; args come before it.
func (a *arrival) end(b *pgx.Batch, sql string, ended *[]store.Waiting, p store.EndParams, args ...any) error {
	p.Session = a.p.Message.Session
	shared, err := a.s.endArgs(p)
	if err != nil {
		return err
	}
	b.Queue(sql, append(append(shared, args...), a.starting())...).Query(collect(ended, scanWaiting))
	b.Queue(settleSQL, a.s.clock(), p.Session.String(), false)
	return nil
}

// bound is what the statement compares with the messages that wait: a message that needs no place is never refused.
//
// The row counts held messages as well, so the statement refuses too early at times; what does count is then counted behind the lock.
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
