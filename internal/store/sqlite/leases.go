package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// AcquireLease takes a named lease that no live node holds, or confirms that nodeID holds it. A dead nodeID gets chat.ErrFenced.
func (s *Store) AcquireLease(ctx context.Context, name, nodeID string) (l store.Lease, ok bool, err error) {
	l, err = result(ctx, s.write, ordinary("acquire the lease "+name), func(ctx context.Context, t *tx) (store.Lease, error) {
		return t.acquire(ctx, name, nodeID)
	})
	return l, l.Owner != "" && err == nil, err
}

// acquire returns the zero lease when another live node holds it. The epoch grows with each new holder and stays when the holder asks
// again.
func (t *tx) acquire(ctx context.Context, name, nodeID string) (l store.Lease, err error) {
	if err := t.proveAlive(ctx, nodeID); err != nil {
		return l, err
	}
	err = t.change(ctx, `
		INSERT INTO leases AS l (name, owner, epoch) VALUES (?, ?, 1)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, epoch = l.epoch + (l.owner IS NOT excluded.owner)
		WHERE l.owner IS NULL OR l.owner = excluded.owner OR NOT EXISTS (SELECT 1 FROM nodes WHERE id = l.owner AND lease_until > ?)
		RETURNING name, owner, epoch, coalesce(next_offset, 0)`, name, nodeID, t.now).Scan(&l.Name, &l.Owner, &l.Epoch, &l.NextOffset)
	if none(err) {
		return store.Lease{}, nil
	}
	return l, err
}

// ReleaseLease gives a lease back; a no-op when the claim is not current. The offset stays.
func (s *Store) ReleaseLease(ctx context.Context, l store.Lease) error {
	return s.write.do(ctx, ordinary("release the lease "+l.Name), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE leases SET owner = NULL WHERE name = ? AND owner = ? AND epoch = ?`, l.Name, l.Owner, l.Epoch)
		return err
	})
}

// NamedLeases are the names of all leases, and whether a live node holds each.
func (s *Store) NamedLeases(ctx context.Context) (map[string]bool, error) {
	held := map[string]bool{}
	err := s.view(ctx, "list leases", func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, `SELECT name, EXISTS (SELECT 1 FROM nodes WHERE id = leases.owner AND lease_until > ?) FROM leases`, s.now().UnixMilli())
		_, err = collect(rows, err, func(row scanner) (none struct{}, err error) {
			var name string
			var live bool
			err = row.Scan(&name, &live)
			held[name] = live
			return none, err
		})
		return err
	})
	return held, err
}

// moveOffset moves a lease's offset under the fence of the lease. It only moves forwards: an operation that is repeated later than its
// successor must not make the poller fetch newer messages a second time.
func (t *tx) moveOffset(ctx context.Context, l *store.Lease) error {
	if l == nil {
		return nil
	}
	n, err := t.exec(ctx, `
		UPDATE leases SET next_offset = max(coalesce(next_offset, 0), ?) WHERE name = ? AND owner = ? AND epoch = ?
		AND EXISTS (SELECT 1 FROM nodes WHERE id = leases.owner AND lease_until > ?)`, l.NextOffset, l.Name, l.Owner, l.Epoch, t.now)
	if err == nil && n == 0 {
		return chat.ErrFenced
	}
	return err
}
