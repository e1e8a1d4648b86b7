package postgres

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
)

// runEntries reads the newest n entries of a run, oldest first.
func (s *Store) runEntries(ctx context.Context, key chat.SessionKey, runID string, n int) ([]chat.TranscriptEntry, error) {
	return sqlstore.RunEntries(ctx, &engineTx{Store: s, to: s.pool}, key.String(), runID, n)
}
