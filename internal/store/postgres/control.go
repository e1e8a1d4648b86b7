package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// control is a connection beside the pool, for operations that must not wait while every pooled connection is busy. One operation at a time
// uses it; a broken connection is replaced at the next use.
type control struct {
	cfg  *pgx.ConnConfig
	turn chan struct{} // holds one token; the goroutine that has it may use conn
	conn *pgx.Conn
}

func newControl(cfg *pgx.ConnConfig) *control {
	c := &control{cfg: cfg.Copy(), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// use runs fn with the connection. It waits for its turn no longer than the context allows.
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
		c.conn = conn
	}
	return fn(c.conn)
}

// close waits for the operation under way and closes the connection.
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
