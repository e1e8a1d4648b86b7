package sqlstore

import (
	"context"
	"time"

	"laneway/internal/store"
)

// The polls, which an engine may leave out.
const (
	PollSweep     = "sweep"
	PollHinted    = "look for hinted messages"
	PollOutgoing  = "claim outgoing messages"
	PollQuestions = "take questions over"
	PollTasks     = "list left sub-turns" // only reads
	PollJobs      = "look for due jobs"   // only reads
)

const mayBeDueSQL = `SELECT NOT EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now}),
	EXISTS (SELECT 1 FROM inbox WHERE {open}),
	EXISTS (SELECT 1 FROM runs WHERE {running} AND state = 'stopping')
		OR EXISTS (SELECT 1 FROM nodes WHERE lease_until <= {now} - $2),
	EXISTS (SELECT 1 FROM outbox WHERE ` + unsent + ` AND (state = 'sending' OR next_at <= {now} OR expires_at <= {now})),
	EXISTS (SELECT 1 FROM inbox i WHERE i.parent IS NOT NULL AND ({open i} OR i.announce = 1)),
	EXISTS (SELECT 1 ` + leftQuestions + `)`

// Due reads which polls of a node but that of jobs may find something, in one statement that costs the same however much history there is. The polls that need a
// live node are to find out when it is dead.
func Due(ctx context.Context, tx Tx, nodeID string) (map[string]bool, error) {
	var dead, unfinished, upkeep, outgoing, tasks, questions bool
	_, err := one(ctx, tx, mayBeDueSQL, into(&dead, &unfinished, &upkeep, &outgoing, &tasks, &questions), nodeID, nodeKept.Milliseconds())
	return map[string]bool{
		PollSweep: dead || unfinished || upkeep, PollHinted: dead || unfinished, PollOutgoing: dead || outgoing, PollTasks: tasks, PollQuestions: dead || questions,
	}, err
}

// Rest is what a look for due work says about the next one.
type Rest struct {
	// Idle: the look has found nothing, and before Next only a change can make it find something.
	Idle bool
	// Next reads when time alone makes something due, milliseconds; 0 = never. nil = never.
	Next func(ctx context.Context, tx Tx) (int64, error)
}

// Rested is a look that was left out at Now. It can find nothing before Next; the zero time = before a change.
type Rested struct{ Now, Next time.Time }

// found is what a poll has read.
type found[T any] struct {
	out  T
	idle bool
	next func(ctx context.Context, tx Tx) (int64, error)
}

// poll runs a look for due work, unless the engine knows that it can find nothing.
func poll[T any](ctx context.Context, db Engine, p store.Poll, look func(ctx context.Context, tx Tx) (found[T], error)) (T, error) {
	var none, out T
	_, err := db.Poll(ctx, p, func(ctx context.Context, tx Tx) (Rest, error) {
		f, err := look(ctx, tx)
		out = f.out
		return Rest{Idle: f.idle, Next: f.next}, err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// pollOf names a poll of a node that looks at some of the work only; each list is a poll of its own.
func pollOf(kind, nodeID string, of []string) (store.Poll, error) {
	names, err := encode(of)
	return store.Poll{Kind: kind, Node: nodeID, Of: names}, err
}

// leaseEnds is when the first lease of another node ends, 0 = there is no other node. Then its work is due.
func leaseEnds(ctx context.Context, tx Tx, nodeID string) (at int64, err error) {
	_, err = one(ctx, tx, `SELECT COALESCE(min(lease_until), 0) FROM nodes WHERE lease_until > {now} AND id <> $1`, into(&at), nodeID)
	return at, err
}

// earlier is the earlier of two instants, 0 = never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
