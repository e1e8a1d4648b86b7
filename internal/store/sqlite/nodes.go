package sqlite

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
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
	return s.write.do(ctx, urgent("register this gateway"), func(ctx context.Context, t *tx) error {
		if n.Exclusive {
			// They stay as rows: a node whose row exists has crashed, and its runs count that.
			if _, err := t.exec(ctx, `UPDATE nodes SET lease_until = min(lease_until, ?) WHERE id <> ?`, t.now, n.ID); err != nil {
				return err
			}
		}
		_, err := t.exec(ctx, `REPLACE INTO nodes (id, started_at, lease_until, lease_ms, addr, version) VALUES (?, ?, ?, ?, ?, ?)`,
			n.ID, t.now, t.now+wait(lease), wait(lease), n.Addr, n.Version)
		return err
	})
}

// Heartbeat extends the lease if it is still valid. It goes to the front of the writer's queue.
func (s *Store) Heartbeat(ctx context.Context, nodeID string) (store.Beat, error) {
	return result(ctx, s.write, urgent("extend the lease of this gateway"), func(ctx context.Context, t *tx) (store.Beat, error) {
		return t.beat(ctx, nodeID)
	})
}

func (t *tx) beat(ctx context.Context, nodeID string) (b store.Beat, err error) {
	var until int64
	err = t.change(ctx, `UPDATE nodes SET lease_until = ? + lease_ms WHERE id = ? AND lease_until > ? RETURNING lease_until`,
		t.now, nodeID, t.now).Scan(&until)
	if none(err) {
		return b, chat.ErrFenced
	}
	if err != nil {
		return b, err
	}
	b.Now, b.LeaseUntil = instant(t.now), instant(until)
	if b.Stops, err = t.stopRequests(ctx, nodeID); err != nil {
		return b, err
	}
	rows, err := t.query(ctx, `SELECT name FROM leases WHERE owner = ? ORDER BY name`, nodeID)
	if b.Leases, err = collect(rows, err, text); err != nil {
		return b, err
	}
	if b.Hold, err = readHold(ctx, t); err != nil {
		return b, err
	}
	err = t.one(ctx, `SELECT count(*) FROM nodes WHERE lease_until > ? AND id <> ?`, t.now, nodeID).Scan(&b.OtherNodes)
	return b, err
}

func text(row scanner) (s string, err error) {
	err = row.Scan(&s)
	return s, err
}

// stopRequests reads the running runs of a node that have a stop request. Without the hint SQLite would read all runs of the
// history in the order of their ids.
func (t *tx) stopRequests(ctx context.Context, nodeID string) ([]store.StopRequest, error) {
	rows, err := t.query(ctx, `
		SELECT session_key, id, stop_by FROM runs INDEXED BY runs_open
		WHERE state IN ('running', 'stopping', 'yielded') AND state <> 'stopping' AND owner = ? AND stop_by IS NOT NULL ORDER BY id`, nodeID)
	return collect(rows, err, func(row scanner) (r store.StopRequest, err error) {
		var key string
		err = row.Scan(&key, &r.RunID, &r.By)
		r.Session = sessionKey(key)
		return r, err
	})
}

// SetDraining marks the node; the first mark keeps its time. For an unknown node it does nothing.
func (s *Store) SetDraining(ctx context.Context, nodeID string) error {
	return s.write.do(ctx, urgent("mark this gateway as draining"), func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE nodes SET draining = 1, draining_since = coalesce(draining_since, ?) WHERE id = ?`, t.now, nodeID)
		return err
	})
}

// Unregister is the clean stop. Running runs keep their state: because their node has no row the next owner counts no crash.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
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

// LiveNodes lists nodes whose lease is valid, oldest first.
func (s *Store) LiveNodes(ctx context.Context) ([]chat.NodeStatus, error) {
	var nodes []chat.NodeStatus
	err := s.view(ctx, "list the gateways", func(ctx context.Context, q querier) (err error) {
		now := s.now().UnixMilli()
		rows, err := q.query(ctx, `SELECT id, version, draining, lease_until FROM nodes WHERE lease_until > ? ORDER BY started_at, id`, now)
		nodes, err = collect(rows, err, func(row scanner) (n chat.NodeStatus, err error) {
			var until int64
			err = row.Scan(&n.ID, &n.Version, &n.Draining, &until)
			n.Lease = time.Duration(until-now) * time.Millisecond
			return n, err
		})
		return err
	})
	return nodes, err
}

// proveAlive is the fence of operations that need a live node but no session.
func (t *tx) proveAlive(ctx context.Context, nodeID string) error {
	var n int
	err := t.one(ctx, `SELECT 1 FROM nodes WHERE id = ? AND lease_until > ?`, nodeID, t.now).Scan(&n)
	if none(err) {
		return chat.ErrFenced
	}
	return err
}

// forget deletes nodes that expired long ago and have no work left. The conditions read unfinished work, not history.
func (t *tx) forget(ctx context.Context) error {
	_, err := t.exec(ctx, `
		DELETE FROM nodes WHERE lease_until <= ?
		AND NOT EXISTS (SELECT 1 FROM runs WHERE state IN ('running', 'stopping', 'yielded') AND owner = nodes.id)
		AND NOT EXISTS (SELECT 1 FROM cron_run_logs r WHERE r.state IN ('queued', 'running', 'retrying') AND r.compact = 1 AND r.node = nodes.id)
		AND NOT EXISTS (SELECT 1 FROM inbox i JOIN sessions s ON s.key = i.session_key WHERE i.state <> 'done' AND s.owner = nodes.id)`,
		t.now-nodeKept.Milliseconds())
	return err
}
