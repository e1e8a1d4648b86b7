package sqlite

import "context"

// ZoneOf is the zone that a principal chose, "" = none.
func (s *Store) ZoneOf(ctx context.Context, principal string) (zone string, err error) {
	err = s.view(ctx, "read the zone of a person", func(ctx context.Context, q querier) error {
		err := q.one(ctx, `SELECT zone FROM zones WHERE principal = ?`, principal).Scan(&zone)
		if none(err) {
			return nil
		}
		return err
	})
	return zone, err
}

// SetZone records the zone of a principal; "" takes it back.
func (s *Store) SetZone(ctx context.Context, principal, zone string) error {
	return s.write.do(ctx, ordinary("record the zone of a person"), func(ctx context.Context, t *tx) error {
		statement, args := `INSERT INTO zones (principal, zone) VALUES (?, ?) ON CONFLICT (principal) DO UPDATE SET zone = excluded.zone`, []any{principal, zone}
		if zone == "" {
			statement, args = `DELETE FROM zones WHERE principal = ?`, args[:1]
		}
		_, err := t.exec(ctx, statement, args...)
		return err
	})
}
