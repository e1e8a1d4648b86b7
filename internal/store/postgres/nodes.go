package postgres

import (
	"context"
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
INSERT INTO nodes (id, started_at, lease_until, lease_ms, addr, version)
VALUES ($2, ` + nowSQL + `, ` + nowSQL + ` + $3::bigint, $3::bigint, $4, $5)
ON CONFLICT (id) DO UPDATE SET started_at = excluded.started_at, lease_until = excluded.lease_until, lease_ms = excluded.lease_ms,
	addr = excluded.addr, version = excluded.version, draining = false, draining_since = NULL`
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

// endStoppingOfDeadSQL ends the stopping runs of dead nodes: their goroutines have ended with their process.
const endStoppingOfDeadSQL = `
UPDATE runs r SET state = 'stopped', ended_at = ` + nowSQL + `
WHERE r.ended_at IS NULL AND r.state = 'stopping'
  AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = r.owner AND n.lease_until > ` + nowSQL + `)`

// Unregister is the clean stop of a node, see store.Nodes. It reads all sessions once: ownership has no index on purpose.
func (s *Store) Unregister(ctx context.Context, nodeID string) error {
	err := s.do(ctx, "unregistering this gateway", func(ctx context.Context) error {
		b := &pgx.Batch{}
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

// Heartbeat adds to the common operation which history the database continues.
func (s *Store) Heartbeat(ctx context.Context, nodeID string) (store.Beat, error) {
	b, err := s.Store.Heartbeat(ctx, nodeID)
	if err != nil {
		return b, err
	}
	err = s.beat.use(ctx, func(*pgx.Conn) error {
		b.History = s.beat.history
		return nil
	})
	return b, err
}
