package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
)

// Unregister is the clean stop of a node, see store.Nodes.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	err := s.Store.Unregister(ctx, nodeID)
	if err == nil {
		s.wake.forget(nodeID)
	}
	return err
}

// Heartbeat adds the commit history of the database to the common operation.
func (s *Store) Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error) {
	b, err := s.Store.Heartbeat(ctx, nodeID, draining)
	if err != nil {
		return b, err
	}
	err = s.beat.use(ctx, func(*pgx.Conn) error {
		b.History = s.beat.history
		return nil
	})
	return b, err
}
