package memory

import (
	"context"
	"slices"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// RecordRound commits what a model asked for, see store.Journal.
func (s *Store) RecordRound(ctx context.Context, c store.Claim, runID string, round chat.Round) error {
	return s.record(ctx, "RecordRound", c, runID, func(r *run) {
		if r.round(round.Number) == nil {
			round.Calls, round.Extra = slices.Clone(round.Calls), slices.Clone(round.Extra)
			round.Results = make([]*chat.ToolResult, len(round.Calls))
			r.rounds = append(r.rounds, &store.Round{Round: round})
		}
	})
}

// RecordResult commits the result of a call, see store.Journal.
func (s *Store) RecordResult(ctx context.Context, c store.Claim, runID string, at store.CallRef, result chat.ToolResult) error {
	return s.record(ctx, "RecordResult", c, runID, func(r *run) {
		if known := r.round(at.Round); known != nil && at.Call < len(known.Results) && known.Results[at.Call] == nil {
			known.Results[at.Call] = &result
		}
	})
}

func (s *Store) record(ctx context.Context, op string, c store.Claim, runID string, change func(*run)) error {
	return s.do(ctx, op, func(now time.Time) error {
		if _, err := s.holds(c, now); err != nil {
			return err
		}
		r, err := s.claimed(c, runID)
		if err != nil {
			return err
		}
		change(r)
		return nil
	})
}

// Rounds reads what is recorded of a run, see store.Journal.
func (s *Store) Rounds(ctx context.Context, runID string) ([]store.Round, error) {
	var out []store.Round
	err := s.do(ctx, "Rounds", func(time.Time) error {
		if r := s.runs[runID]; r != nil {
			for _, round := range r.rounds {
				one := *round
				one.Results, one.Input = slices.Clone(round.Results), slices.Clone(round.Input)
				out = append(out, one)
			}
		}
		return nil
	})
	return out, err
}

// round is a recorded round of a run; nil = there is none of this number.
func (r *run) round(number int) *store.Round {
	for _, round := range r.rounds {
		if round.Number == number {
			return round
		}
	}
	return nil
}
