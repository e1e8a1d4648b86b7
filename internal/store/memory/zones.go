package memory

import (
	"context"
	"time"
)

// ZoneOf is the zone that a principal chose, "" = none.
func (s *Store) ZoneOf(ctx context.Context, principal string) (zone string, err error) {
	err = s.do(ctx, "ZoneOf", func(time.Time) error {
		zone = s.zones[principal]
		return nil
	})
	return zone, err
}

// SetZone records the zone of a principal; "" takes it back.
func (s *Store) SetZone(ctx context.Context, principal, zone string) error {
	return s.do(ctx, "SetZone", func(time.Time) error {
		if zone == "" {
			delete(s.zones, principal)
			return nil
		}
		s.zones[principal] = zone
		return nil
	})
}
