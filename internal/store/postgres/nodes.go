package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// defaultLease is how long a node lives without a heartbeat when [store.Node] does not set it.
const defaultLease = 15 * time.Second

const (
	expireOthersSQL = `UPDATE nodes SET lease_until = ` + nowSQL + ` WHERE id <> $2 AND lease_until > ` + nowSQL

	registerSQL = `
INSERT INTO nodes (id, started_at, lease_until, lease_ms, addr, version, compact)
VALUES ($2, ` + nowSQL + `, ` + nowSQL + ` + $3::bigint, $3::bigint, $4, $5, 1)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, lease_until = excluded.lease_until, lease_ms = excluded.lease_ms,
	addr = excluded.addr, version = excluded.version, compact = 1, draining = false, draining_since = NULL`
)

// Register makes a new incarnation, see store.Nodes.
func (s *Store) Register(ctx context.Context, n store.Node) error {
	if n.ID == "" {
		return chat.Errorf(chat.CodeInvalid, "a node needs an id")
	}
	if n.Lease <= 0 {
		n.Lease = defaultLease
	}
	return s.do(ctx, "registering this gateway", func(ctx context.Context) error {
		b := &pgx.Batch{}
		if n.Exclusive {
			b.Queue(expireOthersSQL, s.clock(), n.ID)
		}
		b.Queue(registerSQL, s.clock(), n.ID, n.Lease.Milliseconds(), n.Addr, n.Version)
		return send(ctx, s.pool, b)
	})
}

const (
	beatSQL = `UPDATE nodes SET lease_until = ` + nowSQL + ` + lease_ms WHERE id = $2 AND lease_until > ` + nowSQL + `
RETURNING ` + nowSQL + `, lease_until, (SELECT count(*) FROM nodes o WHERE o.id <> $2 AND o.lease_until > ` + nowSQL + `)`

	stopsSQL = `SELECT session_key, id, stop_by FROM runs
WHERE ended_at IS NULL AND state IN ('running', 'yielded') AND owner = $1 AND stop_by <> '' ORDER BY id`

	leasesSQL = `SELECT name FROM leases WHERE owner = $1 ORDER BY name`
)

// Heartbeat extends the lease of a live node, on a connection of its own, see store.Nodes.
func (s *Store) Heartbeat(ctx context.Context, nodeID string) (store.Beat, error) {
	var beat store.Beat
	err := s.control(ctx, "extending the lease of this gateway", s.beat, func(conn *pgx.Conn) error {
		beat = store.Beat{}
		b := &pgx.Batch{}
		b.Queue(beatSQL, s.clock(), nodeID).QueryRow(func(row pgx.Row) error {
			var now, until int64
			err := row.Scan(&now, &until, &beat.OtherNodes)
			beat.Now, beat.LeaseUntil = fromMillis(now), fromMillis(until)
			return err
		})
		b.Queue(stopsSQL, nodeID).Query(collect(&beat.Stops, scanStopRequest))
		b.Queue(leasesSQL, nodeID).Query(collect(&beat.Leases, scanText))
		var hold []store.Hold
		b.Queue(store.HoldSQL).Query(collect(&hold, scanHold))
		err := send(ctx, conn, b)
		beat.Hold = heldBy(hold)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return store.Beat{}, chat.ErrFenced
	}
	return beat, err
}

func scanStopRequest(row pgx.CollectableRow) (store.StopRequest, error) {
	var (
		r   store.StopRequest
		key string
	)
	err := row.Scan(&key, &r.RunID, &r.By)
	r.Session = parseKey(key)
	return r, err
}

// SetDraining marks the node; for an unknown node it does nothing.
func (s *Store) SetDraining(ctx context.Context, nodeID string) error {
	return s.do(ctx, "marking this gateway as draining", func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx,
			`UPDATE nodes SET draining = true, draining_since = `+nowSQL+` WHERE id = $2 AND NOT draining`, s.clock(), nodeID)
		return err
	})
}

// endStoppingOfDeadSQL ends the stopping runs of dead nodes: their goroutines have ended with their process.
const endStoppingOfDeadSQL = `
UPDATE runs r SET state = 'stopped', ended_at = ` + nowSQL + `
WHERE r.ended_at IS NULL AND r.state = 'stopping'
  AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = r.owner AND n.lease_until > ` + nowSQL + `)`

// Unregister is the clean stop of a node, see store.Nodes. It reads all sessions once: ownership has no index on purpose.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	err := s.do(ctx, "unregistering this gateway", func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue(expandOfNodeSQL, nodeID) // so that every node can sweep them, also one that does not know compact runs
		b.Queue(expandSQL)
		b.Queue(`UPDATE leases SET owner = NULL WHERE owner = $1`, nodeID)
		b.Queue(`UPDATE sessions SET owner = NULL WHERE owner = $1`, nodeID)
		b.Queue(`DELETE FROM nodes WHERE id = $1`, nodeID)
		b.Queue(endStoppingOfDeadSQL, s.clock())
		return send(ctx, s.pool, b)
	})
	if err == nil {
		s.wake.forget(nodeID)
	}
	return err
}

// LiveNodes lists nodes whose lease is valid, oldest first.
func (s *Store) LiveNodes(ctx context.Context) ([]chat.NodeStatus, error) {
	var list []chat.NodeStatus
	err := s.do(ctx, "listing the gateways", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `SELECT id, version, draining, lease_until - `+nowSQL+` FROM nodes WHERE lease_until > `+nowSQL+
			` ORDER BY started_at, id`, s.clock())
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanNode)
		return err
	})
	return list, err
}

func scanNode(row pgx.CollectableRow) (chat.NodeStatus, error) {
	var (
		n    chat.NodeStatus
		left int64
	)
	err := row.Scan(&n.ID, &n.Version, &n.Draining, &left)
	n.Lease = time.Duration(left) * time.Millisecond
	return n, err
}

const acquireSQL = `
INSERT INTO leases AS l (name, owner, epoch) VALUES ($3, $2, 1)
ON CONFLICT (name) DO UPDATE SET
	owner = excluded.owner,
	epoch = l.epoch + CASE WHEN l.owner IS NOT DISTINCT FROM excluded.owner THEN 0 ELSE 1 END
WHERE l.owner IS NOT DISTINCT FROM excluded.owner
   OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = l.owner AND n.lease_until > ` + nowSQL + `)
RETURNING l.epoch, COALESCE(l.next_offset, 0)`

// AcquireLease takes a named lease that no live node holds, see store.Nodes. A dead node gets chat.ErrFenced.
func (s *Store) AcquireLease(ctx context.Context, name, nodeID string) (l store.Lease, ok bool, err error) {
	err = s.do(ctx, "acquiring the lease "+name, func(ctx context.Context) error {
		l, ok = store.Lease{}, false
		b := &pgx.Batch{}
		b.Queue(aliveSQL, s.clock(), nodeID)
		b.Queue(acquireSQL, s.clock(), nodeID, name).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				l, ok = store.Lease{Name: name, Owner: nodeID}, true
				if err := rows.Scan(&l.Epoch, &l.NextOffset); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		return send(ctx, s.pool, b)
	})
	return l, ok && err == nil, err
}

// ReleaseLease gives a lease back; the offset stays.
func (s *Store) ReleaseLease(ctx context.Context, l store.Lease) error {
	return s.do(ctx, "releasing the lease "+l.Name, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `UPDATE leases SET owner = NULL WHERE name = $1 AND owner = $2 AND epoch = $3`, l.Name, l.Owner, l.Epoch)
		return err
	})
}

// NamedLeases are the names of all leases, and whether a live node holds each.
func (s *Store) NamedLeases(ctx context.Context) (map[string]bool, error) {
	var held map[string]bool
	err := s.do(ctx, "listing the leases", func(ctx context.Context) error {
		held = map[string]bool{}
		rows, err := s.pool.Query(ctx, `SELECT l.name, EXISTS (SELECT 1 FROM nodes n WHERE n.id = l.owner AND n.lease_until > `+nowSQL+`) FROM leases l`, s.clock())
		if err != nil {
			return err
		}
		var name string
		var live bool
		_, err = pgx.ForEachRow(rows, []any{&name, &live}, func() error {
			held[name] = live
			return nil
		})
		return err
	})
	return held, err
}
