package postgres

import (
	"context"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// CompactStartsTogether is one group of compact runs, and which of them it began.
func (s *Store) CompactStartsTogether(ctx context.Context, list []store.StartParams) ([]bool, []store.Started, error) {
	ops := make([]*startOp, len(list))
	for i, p := range list {
		ops[i] = &startOp{s: s, p: p}
	}
	done, err := s.startCompactGroup(ctx, ops)
	return done, column(ops, func(g *startOp) store.Started { return g.out }), err
}

// BegunRun is the run that the store remembers of a start; the zero value when it remembers none.
func BegunRun(started store.Started) cron.Run {
	if b, ok := started.Begun.(*begun); ok {
		return b.run
	}
	return cron.Run{}
}

// ForgetClaims claims more runs than the store remembers.
func (s *Store) ForgetClaims() {
	list := make([]*claimedRun, mostClaimed)
	for i := range list {
		list[i] = &claimedRun{}
	}
	s.claims.add(list)
}
