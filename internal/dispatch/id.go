package dispatch

import "github.com/google/uuid"

// newID is a UUIDv7: sortable by time, unique without asking the store.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
