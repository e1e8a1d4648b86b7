package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// control is a connection outside of the pool, for operations that must not wait while every pooled connection is busy. One operation at a time uses it; a
// broken connection is replaced at the next use.
type control struct {
	cfg  *pgx.ConnConfig
	turn chan struct{} // holds one token; the goroutine that has it may use conn
	conn *pgx.Conn
	// history is the commit history of the database of conn, see [store.Beat].
	history string
}

func newControl(cfg *pgx.ConnConfig) *control {
	c := &control{cfg: cfg.Copy(), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// use runs fn with the connection. It waits for the connection only until ctx ends.
func (c *control) use(ctx context.Context, fn func(*pgx.Conn) error) error {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the control connection: %w", context.Cause(ctx))
	}
	defer func() { c.turn <- struct{}{} }()
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := pgx.ConnectConfig(ctx, c.cfg)
		if err != nil {
			return err
		}
		c.conn, c.history = conn, historyOf(ctx, conn)
	}
	return fn(c.conn)
}

// historyOf identifies the commit history of a database: a restored copy of another cluster has another system identifier, and a promoted standby another
// timeline. A failover breaks connections, so one query per connection is enough. "" for a compatible database that does not report it, or a standby.
func historyOf(ctx context.Context, conn *pgx.Conn) string {
	var name string
	err := conn.QueryRow(ctx, `SELECT 'system ' || system_identifier || ', timeline ' || substring(pg_walfile_name(pg_current_wal_lsn()) FOR 8)
		FROM pg_control_system()`).Scan(&name)
	if err != nil {
		return ""
	}
	return name
}

// close waits for the operation in progress and closes the connection.
func (c *control) close() error {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // a goodbye with a bound of its own
	defer cancel()
	if err := conn.Close(ctx); err != nil {
		return fmt.Errorf("closing a control connection: %w", err)
	}
	return nil
}
