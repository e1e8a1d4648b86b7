package store

import "context"

// Zones keeps the time zones that principals chose. A choice outlives its sessions.
type Zones interface {
	// ZoneOf is the zone of a principal, as it was given to SetZone; "" = it chose none.
	ZoneOf(ctx context.Context, principal string) (string, error)
	// SetZone records a choice; "" takes it back. The caller has checked that the zone exists.
	SetZone(ctx context.Context, principal, zone string) error
}
