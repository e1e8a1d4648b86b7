package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// RecordRound commits what a model asked for; see the port.
func (s *Store) RecordRound(ctx context.Context, c store.Claim, runID string, round chat.Round) error {
	row, err := store.AskedRow(round)
	if err != nil {
		return err
	}
	return s.record(ctx, c, runID, row)
}

// RecordResult commits the result of a call; see the port.
func (s *Store) RecordResult(ctx context.Context, c store.Claim, runID string, at store.CallRef, result chat.ToolResult) error {
	row, err := store.ResultRow(at, result)
	if err != nil {
		return err
	}
	return s.record(ctx, c, runID, row)
}

func (s *Store) record(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return s.write.do(ctx, ordinary("record a round"), func(ctx context.Context, t *tx) error {
		if _, _, err := t.holdRun(ctx, c, runID); err != nil {
			return err
		}
		return t.recordRow(ctx, runID, row)
	})
}

func (t *tx) recordRow(ctx context.Context, runID string, row store.JournalRow) error {
	_, err := t.exec(ctx, `INSERT INTO turn_rounds (run_id, round, kind, n, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		runID, row.Round, row.Kind, row.N, row.Body)
	return err
}

// recordInput notes which messages joined a run behind a round.
func (t *tx) recordInput(ctx context.Context, p *store.StartParams, seqs []int64) error {
	if p.Round == 0 {
		return nil
	}
	for _, seq := range seqs {
		if err := t.recordRow(ctx, p.RunID, store.JournalRow{Round: p.Round, Kind: store.RowInput, N: seq}); err != nil {
			return err
		}
	}
	return nil
}

// endJournal removes the rounds of a run that ends.
func (t *tx) endJournal(ctx context.Context, p *store.FinishParams) error {
	if !p.Journal || p.Requeue {
		return nil
	}
	_, err := t.exec(ctx, `DELETE FROM turn_rounds WHERE run_id = ?`, p.RunID)
	return err
}

// Rounds reads what is recorded of a run; see the port.
func (s *Store) Rounds(ctx context.Context, runID string) ([]store.Round, error) {
	var all []store.JournalRow
	err := s.view(ctx, "read the rounds of a run", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT round, kind, n, body FROM turn_rounds WHERE run_id = ? ORDER BY round, kind, n`, runID)
		all, err = collect(rows, err, func(row scanner) (r store.JournalRow, err error) {
			err = row.Scan(&r.Round, &r.Kind, &r.N, &r.Body)
			return r, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return store.RoundsOf(all)
}
