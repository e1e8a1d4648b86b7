package store

import "context"

// Zones stores the time zones that principals chose. A choice outlives their sessions.
type Zones interface {
	// ZoneOf is the zone of a principal, as given to SetZone; "" when it chose none.
	ZoneOf(ctx context.Context, principal string) (string, error)
	// SetZone records a choice; "" removes it. The caller has checked that the zone exists.
	SetZone(ctx context.Context, principal, zone string) error
}
