package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

const (
	defaultLease = 15 * time.Second
	// nodeKept is how long the row of an expired node is kept when it has no work left to take over.
	nodeKept = 10 * time.Minute
)

// Register makes a new incarnation with a lease. With Exclusive every other node is dead at once.
func (s *Store) Register(ctx context.Context, n store.Node) error {
	if n.ID == "" {
		return chat.Errorf(chat.CodeInvalid, "a node needs an id")
	}
	lease := n.Lease
	if lease <= 0 {
		lease = defaultLease
	}
	until, err := result(ctx, s.write, urgent("register this gateway"), func(ctx context.Context, t *tx) (int64, error) {
		if n.Exclusive {
			// They stay as rows: a node whose row exists has crashed, and its runs count that.
			if _, err := t.exec(ctx, `UPDATE nodes SET lease_until = min(lease_until, ?) WHERE id <> ?`, t.now, n.ID); err != nil {
				return 0, err
			}
		}
		_, err := t.exec(ctx, `REPLACE INTO nodes (id, started_at, lease_until, lease_ms, addr, version) VALUES (?, ?, ?, ?, ?, ?)`,
			n.ID, t.now, t.now+wait(lease), wait(lease), n.Addr, n.Version)
		return t.now + wait(lease), err
	})
	if err == nil {
		s.gate.Leased(n.ID, instant(until))
	}
	return err
}

// Heartbeat extends the lease if it is still valid; see the port.
func (s *Store) Heartbeat(ctx context.Context, nodeID string) (store.Beat, error) {
	beat, err := s.Store.Heartbeat(ctx, nodeID)
	if err == nil {
		s.gate.Leased(nodeID, beat.LeaseUntil)
	}
	return beat, err
}

func text(row scanner) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}

// Unregister is the clean stop. Running runs keep their state: because their node has no row the next owner counts no crash.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	s.gate.Leased(nodeID, time.Time{})
	return s.write.do(ctx, urgent("unregister this gateway"), func(ctx context.Context, t *tx) error {
		for _, statement := range []string{
			`DELETE FROM nodes WHERE id = ?`,
			`UPDATE sessions SET owner = NULL WHERE owner = ?`,
			`UPDATE leases SET owner = NULL WHERE owner = ?`,
		} {
			if _, err := t.exec(ctx, statement, nodeID); err != nil {
				return err
			}
		}
		return t.endStoppingOfDead(ctx)
	})
}

// proveAlive is the fence of operations that need a live node but no session.
func (t *tx) proveAlive(ctx context.Context, nodeID string) error {
	return sqlstore.ProveAlive(ctx, t.shared(), nodeID)
}

// forget deletes nodes that expired long ago and have no work left. The conditions read unfinished work, not history.
func (t *tx) forget(ctx context.Context) error {
	_, err := t.exec(ctx, `
		DELETE FROM nodes WHERE lease_until <= ?
		AND NOT EXISTS (SELECT 1 FROM runs WHERE state IN ('running', 'stopping', 'yielded') AND owner = nodes.id)
		AND NOT EXISTS (SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE i.state <> 'done' AND s.owner = nodes.id)`,
		t.now-nodeKept.Milliseconds())
	return err
}
