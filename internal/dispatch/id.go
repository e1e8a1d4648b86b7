package dispatch

import "github.com/google/uuid"

// newID returns a UUIDv7: sortable by time, and unique without the store.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
