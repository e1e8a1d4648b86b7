package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"laneway/internal/store/sqlstore"
)

// Traced is cfg with a tracer of its statements.
func Traced(cfg Config, t pgx.QueryTracer) Config {
	cfg.tracer = t
	return cfg
}

// BoundSearch limits how many of the newest entries a search reads without the word index.
func (s *Store) BoundSearch(recent int) { s.Recent = recent }

// TurnStatements is how many statements a connection for turns has planned.
func TurnStatements() int64 { return int64(len(turnStatements())) }

// Unchanged reports whether the store has the same state in memory as when it was opened: no goroutine for hints.
func (s *Store) Unchanged() bool {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	return !s.wake.sending && !s.wake.listening
}

// IdleTime is how long a connection of the pools stays open without use.
func (s *Store) IdleTime() time.Duration { return s.pool.Config().MaxConnIdleTime }

// WarmConns is how many connections for turns are kept open.
func (s *Store) WarmConns() int { return int(s.turns.Config().MinConns) }

// EachConnection opens every connection that the store may have, all at the same time, and calls fn for each with its purpose.
func (s *Store) EachConnection(ctx context.Context, fn func(purpose string, conn *pgx.Conn) error) error {
	var faults []error
	for purpose, pool := range map[string]*pgxpool.Pool{"turns": s.turns, "everything else": s.pool} {
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer conn.Release()
			faults = append(faults, fn(purpose, conn.Conn()))
		}
	}
	for purpose, c := range map[string]*control{"heartbeats": s.beat, "stops": s.ctrl} {
		faults = append(faults, c.use(ctx, func(conn *pgx.Conn) error { return fn(purpose, conn) }))
	}
	listener, err := pgx.ConnectConfig(ctx, s.wake.cfg)
	if err != nil {
		return err
	}
	return errors.Join(errors.Join(faults...), fn("hints", listener), listener.Close(ctx))
}

// Engine runs transactions on the store's connections.
func (s *Store) Engine() sqlstore.Engine { return engine{s} }
