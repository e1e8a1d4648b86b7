package sqlstore

import (
	"context"
	"time"

	"laneway/internal/store"
)

// The polls, which an engine may skip.
const (
	PollSweep     = "sweep"
	PollHinted    = "read hinted messages"
	PollOutgoing  = "claim outgoing messages"
	PollQuestions = "take questions over"
	PollTasks     = "list left sub-turns" // read-only
	PollJobs      = "find due jobs"       // read-only
)

const mayBeDueSQL = `SELECT NOT EXISTS (SELECT 1 FROM nodes WHERE id = $1 AND lease_until > {now}),
	EXISTS (SELECT 1 FROM inbox WHERE {open}),
	EXISTS (SELECT 1 FROM runs WHERE {running} AND state = 'stopping')
		OR EXISTS (SELECT 1 FROM nodes WHERE lease_until <= {now} - $2),
	EXISTS (SELECT 1 FROM outbox WHERE ` + unsent + ` AND (state = 'sending' OR next_at <= {now} OR node = $1 OR expires_at <= {now})),
	EXISTS (SELECT 1 FROM inbox i WHERE i.parent IS NOT NULL AND ({open i} OR i.announce = 1)),
	EXISTS (SELECT 1 ` + leftQuestions + `)`

// Due checks which polls of a node, except that of jobs, may find something. It is one statement whose cost does not depend on the size of the history. Polls
// that need a live node must run when the node is dead, so that they return the error.
func Due(ctx context.Context, tx Tx, nodeID string) (map[string]bool, error) {
	var dead, unfinished, upkeep, outgoing, tasks, questions bool
	_, err := one(ctx, tx, mayBeDueSQL, into(&dead, &unfinished, &upkeep, &outgoing, &tasks, &questions), nodeID, nodeKept.Milliseconds())
	return map[string]bool{
		PollSweep: dead || unfinished || upkeep, PollHinted: dead || unfinished, PollOutgoing: dead || outgoing, PollTasks: tasks, PollQuestions: dead || questions,
	}, err
}

// Rest is the result of a poll about the next one.
type Rest struct {
	// Idle: the poll found nothing, and before Next only a change can make it find something.
	Idle bool
	// Next reads when something becomes due by time, in milliseconds; 0 = never. nil = never.
	Next func(ctx context.Context, tx Tx) (int64, error)
}

// Rested is a poll that was skipped at Now. It can find nothing before Next; the zero time = before a change.
type Rested struct{ Now, Next time.Time }

// found is the result of a poll.
type found[T any] struct {
	out  T
	idle bool
	next func(ctx context.Context, tx Tx) (int64, error)
}

// poll runs a poll, unless the engine can tell that it would find nothing.
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

// pollOf identifies a poll of a node that is restricted to the listed agents or channels; each list is a poll of its own.
func pollOf(kind, nodeID string, of []string) (store.Poll, error) {
	names, err := encode(of)
	return store.Poll{Kind: kind, Node: nodeID, Of: names}, err
}

// leaseEnds is when the first lease of another node ends and its work becomes due; 0 when no other node is alive.
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
