package sqlite

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/store"
)

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
