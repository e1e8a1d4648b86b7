package sqlstore

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// Journal records what the models of running turns requested and the results.
type Journal struct{ db Engine }

var _ store.Journal = Journal{}

const recordSQL = `INSERT INTO turn_rounds (run_id, round, kind, n, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`

// Record commits a row; see store.Journal.
func (s Journal) Record(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return s.db.Turn(ctx, "record a round", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, recordSQL, nil, runID, row.Round, row.Kind, row.N, row.Body)
	})
}

// RecordPreview commits what shows the unfinished answer of a run; see store.Journal.
func (s Journal) RecordPreview(ctx context.Context, c store.Claim, runID, preview string) error {
	return s.db.Turn(ctx, "record a preview", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET preview = $2 WHERE id = $1`, nil, runID, preview)
	})
}

// RecordOutside commits that the agent of a run has read text from outside; see store.Journal.
func (s Journal) RecordOutside(ctx context.Context, c store.Claim, runID string) error {
	return s.db.Turn(ctx, "record text from outside", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET outside = true WHERE id = $1`, nil, runID)
	})
}

// RecordProgram commits which process works for a run; see store.Journal.
func (s Journal) RecordProgram(ctx context.Context, c store.Claim, runID string, p chat.Program) error {
	body, err := encode(p)
	if err != nil {
		return err
	}
	return s.db.Turn(ctx, "record a program", Alone, func(ctx context.Context, tx Tx) error {
		if err := fenceRun(ctx, tx, c, runID); err != nil {
			return err
		}
		return tx.Later(ctx, `UPDATE runs SET program = $2 WHERE id = $1`, nil, runID, body)
	})
}

// Rounds reads the recorded rounds of a run; see store.Journal.
func (s Journal) Rounds(ctx context.Context, runID string) ([]store.Round, error) {
	rows, err := list(ctx, s.db, query{
		"read the rounds of a run", `SELECT round, kind, n, body FROM turn_rounds WHERE run_id = $1 ORDER BY round, kind, n`, []any{runID},
	}, func(r Row) (row store.JournalRow, err error) {
		err = r.Scan(&row.Round, &row.Kind, &row.N, &row.Body)
		return row, err
	})
	if err != nil {
		return nil, err
	}
	return store.RoundsOf(rows)
}
