package memory

import (
	"context"

	"laneway/internal/store"
)

// Hold reads the hold, see store.Holds. Nothing obeys it here.
func (s *Store) Hold(context.Context) (*store.Hold, error) { return nil, nil } //nolint:nilnil // nil = the gateway is not held

// SetHold does nothing.
func (s *Store) SetHold(context.Context, store.Hold, store.ChangedBy) error { return nil }

// ReleaseHold does nothing.
func (s *Store) ReleaseHold(context.Context, store.ChangedBy) error { return nil }

// Held is nothing.
func (s *Store) Held(context.Context) (store.HeldWork, error) { return store.HeldWork{}, nil }
