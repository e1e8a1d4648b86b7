package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	// recordRoundSQL adds a row to the journal of a run that runs under the claim, and divides by zero when it does not. Parameters: $1 run, $2 session,
	// $3 node, $4 epoch, $5 round, $6 kind, $7 number, $8 body.
	recordRoundSQL = `
WITH r AS (
	SELECT id FROM runs WHERE id = $1 AND (session_key = $2) IS TRUE AND owner = $3 AND epoch = $4 AND state IN ('running', 'yielded')
), w AS (
	INSERT INTO turn_rounds (run_id, round, kind, n, body) SELECT r.id, $5, $6, $7, $8 FROM r ON CONFLICT DO NOTHING
)
SELECT 1 / count(*) FROM r`

	// endJournalSQL removes the rounds of a run that ends.
	endJournalSQL = `DELETE FROM turn_rounds WHERE run_id = $1`
)

// RecordRound commits what a model asked for, see store.Journal. One round trip.
func (s *Store) RecordRound(ctx context.Context, c store.Claim, runID string, round chat.Round) error {
	row, err := store.AskedRow(round)
	if err != nil {
		return err
	}
	return s.recordRow(ctx, c, runID, row)
}

// RecordResult commits the result of a call, see store.Journal. One round trip.
func (s *Store) RecordResult(ctx context.Context, c store.Claim, runID string, at store.CallRef, result chat.ToolResult) error {
	row, err := store.ResultRow(at, result)
	if err != nil {
		return err
	}
	return s.recordRow(ctx, c, runID, row)
}

func (s *Store) recordRow(ctx context.Context, c store.Claim, runID string, row store.JournalRow) error {
	return s.do(ctx, "recording a round", func(ctx context.Context) error {
		b := &pgx.Batch{}
		s.fence(b, c)
		b.Queue(recordRoundSQL, runID, c.Session.String(), c.Node, c.Epoch, row.Round, row.Kind, row.N, clean(row.Body)).
			QueryRow(func(row pgx.Row) error { return row.Scan(nil) })
		return send(ctx, s.turns, b)
	})
}

// Rounds reads what is recorded of a run, see store.Journal.
func (s *Store) Rounds(ctx context.Context, runID string) ([]store.Round, error) {
	var all []store.JournalRow
	err := s.do(ctx, "reading the rounds of a run", func(ctx context.Context) error {
		all = nil
		b := &pgx.Batch{}
		b.Queue(`SELECT round, kind, n, body FROM turn_rounds WHERE run_id = $1 ORDER BY round, kind COLLATE "C", n`, runID).
			Query(collect(&all, func(row pgx.CollectableRow) (r store.JournalRow, err error) {
				err = row.Scan(&r.Round, &r.Kind, &r.N, &r.Body)
				return r, err
			}))
		return send(ctx, s.turns, b)
	})
	if err != nil {
		return nil, err
	}
	return store.RoundsOf(all)
}
