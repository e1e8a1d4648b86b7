package sqlite

import (
	"context"
	"time"

	"laneway/internal/store"
)

// Register creates a new incarnation with a lease; see the port.
func (s *Store) Register(ctx context.Context, n store.Node) error {
	until, err := s.Registered(ctx, n)
	if err == nil {
		s.gate.Leased(n.ID, until)
	}
	return err
}

// Heartbeat extends the lease if it is still valid; see the port.
func (s *Store) Heartbeat(ctx context.Context, nodeID string, draining bool) (store.Beat, error) {
	beat, err := s.Store.Heartbeat(ctx, nodeID, draining)
	if err == nil {
		s.gate.Leased(nodeID, beat.LeaseUntil)
	}
	return beat, err
}

// Unregister is the clean stop; see the port.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	s.gate.Leased(nodeID, time.Time{})
	return s.Store.Unregister(ctx, nodeID)
}
