package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store/sqlstore"
)

const entryReadColumns = `t.seq, t.run_id, t.role, t.content, t.sender, t.tokens, t.stop_reason, t.command, t.from_seq, t.to_seq, t.at`

func scanEntry(row pgx.CollectableRow) (chat.TranscriptEntry, error) {
	var (
		e      chat.TranscriptEntry
		sender string
		at     int64
	)
	err := row.Scan(&e.Seq, &e.RunID, &e.Role, &e.Text, &sender, &e.Tokens, &e.StopReason, &e.Command, &e.Covers.From, &e.Covers.To, &at)
	if err != nil {
		return e, err
	}
	e.At = fromMillis(at)
	if sender == "" {
		return e, nil
	}
	if err := json.Unmarshal([]byte(sender), &e.Sender); err != nil {
		return e, fmt.Errorf("reading the sender of transcript entry %d: %w", e.Seq, err)
	}
	return e, nil
}

// runEntries reads the newest n entries of a run, oldest first.
func (s *Store) runEntries(ctx context.Context, key chat.SessionKey, runID string, n int) ([]chat.TranscriptEntry, error) {
	return sqlstore.RunEntries(ctx, &engineTx{Store: s, to: s.pool}, key.String(), runID, n)
}
