package postgres

import (
	"context"

	"laneway/internal/cron"
	"laneway/internal/store"
)

// Doubt lets the store believe that the commit of these launches got no answer.
func (s *Store) Doubt(list []cron.Launched) { s.doubts.add(list) }

// AcceptTogether is one group of messages, and which of them it stored.
func (s *Store) AcceptTogether(ctx context.Context, list []store.AcceptParams) ([]bool, []store.Accepted, error) {
	ops := make([]*arrival, len(list))
	for i, p := range list {
		a, err := s.newArrival(p)
		if err != nil {
			return nil, nil, err
		}
		ops[i] = a
	}
	done, err := s.acceptTogether(ctx, ops)
	return done, column(ops, func(a *arrival) store.Accepted { return a.out }), err
}

// StartTogether is one group of runs, and which of them it began.
func (s *Store) StartTogether(ctx context.Context, list []store.StartParams) ([]bool, []store.Started, error) {
	ops := make([]*beginning, len(list))
	for i, p := range list {
		said, err := encodeEntries(p.Transcript, p.RunID)
		if err != nil {
			return nil, nil, err
		}
		ops[i] = &beginning{s: s, p: p, said: said}
	}
	done, err := s.startTogether(ctx, ops)
	return done, column(ops, func(g *beginning) store.Started { return g.out }), err
}

// FinishTogether is one group of runs, and which of them it ended.
func (s *Store) FinishTogether(ctx context.Context, list []store.FinishParams) ([]bool, []store.Finished, error) {
	return s.endTogether(ctx, list, s.finishTogether)
}

// AttemptsTogether is one group of attempts of cron runs, and which of them it ended.
func (s *Store) AttemptsTogether(ctx context.Context, list []store.FinishParams) ([]bool, []store.Finished, error) {
	return s.endTogether(ctx, list, s.attemptsTogether)
}

func (s *Store) endTogether(ctx context.Context, list []store.FinishParams, together func(context.Context, []*ending) ([]bool, error)) ([]bool, []store.Finished, error) {
	ops := make([]*ending, len(list))
	for i, p := range list {
		e, err := s.newEnding(p)
		if err != nil {
			return nil, nil, err
		}
		ops[i] = e
	}
	done, err := together(ctx, ops)
	return done, column(ops, func(e *ending) store.Finished { return e.out }), err
}
