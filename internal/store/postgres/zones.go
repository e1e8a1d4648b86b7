package postgres

import "context"

// ZoneOf is the zone that a principal chose, "" = none.
func (s *Store) ZoneOf(ctx context.Context, principal string) (string, error) {
	return groupFact[string](ctx, s, "reading the zone of a person", `SELECT zone FROM zones WHERE principal = $1`, principal)
}

// SetZone records the zone of a principal; "" takes it back.
func (s *Store) SetZone(ctx context.Context, principal, zone string) error {
	return s.do(ctx, "recording the zone of a person", func(ctx context.Context) error {
		statement, args := `INSERT INTO zones (principal, zone) VALUES ($1, $2) ON CONFLICT (principal) DO UPDATE SET zone = excluded.zone`, []any{principal, zone}
		if zone == "" {
			statement, args = `DELETE FROM zones WHERE principal = $1`, args[:1]
		}
		_, err := s.pool.Exec(ctx, statement, args...)
		return err
	})
}
