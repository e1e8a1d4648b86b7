package sqlite

import (
	"context"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// What the polls are called: to the gate, and in errors.
const (
	pollSweep     = sqlstore.PollSweep
	pollHinted    = sqlstore.PollHinted
	pollOutgoing  = sqlstore.PollOutgoing
	pollQuestions = "look for questions without a node"
	pollTasks     = "list left sub-turns"
)

// rest is a look that was made at now: when it is idle, it has found nothing, and before next (0 = never) only a change can make it find something.
type rest struct {
	idle      bool
	next, now int64
}

// resting reports whether a poll needs no read. Then it is an operation all the same, for Before of the configuration.
func (s *Store) resting(ctx context.Context, p store.Poll) (next time.Time, yes bool, err error) {
	if ctx.Err() == nil { // otherwise the operation says so
		next, yes = s.gate.Resting(p, s.now())
	}
	if yes {
		err = s.before(ctx, p.Kind)
	}
	return next, yes, err
}

// TakeQuestions gives the node calls whose node has ended; see the port.
func (s *Store) TakeQuestions(ctx context.Context, nodeID string, limit int) ([]store.Question, error) {
	p := store.Poll{Kind: pollQuestions, Node: nodeID}
	if _, resting, err := s.resting(ctx, p); resting || err != nil {
		return nil, err
	}
	now, changes := s.now().UnixMilli(), s.gate.Changes()
	list, err := s.Store.TakeQuestions(ctx, nodeID, limit)
	if err != nil || len(list) > 0 || limit <= 0 {
		return list, err
	}
	var next int64
	err = s.view(ctx, pollQuestions, func(_ context.Context, t *tx) (err error) { // the first lease of another node that ends makes its work due
		next, err = t.number(`SELECT coalesce(min(lease_until), 0) FROM nodes WHERE lease_until > ? AND id <> ?`, now, nodeID)
		return err
	})
	if err == nil {
		s.gate.Rest(p, changes, instant(now), instant(next))
	}
	return nil, err
}

// Tasks lists sub-turns; see the port. Reading what a crash may have left is a poll.
func (s *Store) Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error) {
	if !f.Left {
		return s.Store.Tasks(ctx, f)
	}
	p := store.Poll{Kind: pollTasks}
	if _, resting, err := s.resting(ctx, p); resting || err != nil {
		return nil, err
	}
	now, changes := s.now(), s.gate.Changes()
	list, err := s.Store.Tasks(ctx, f)
	if err == nil && len(list) == 0 {
		s.gate.Rest(p, changes, now, time.Time{})
	}
	return list, err
}
