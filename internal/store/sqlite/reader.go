package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// reader is the pool of connections that only read. They never wait for the writer: each sees the last commit before it began. A token of
// the channel is the right to one connection; nil is a connection that is not open yet.
type reader struct {
	db     *sql.DB
	slots  chan *session
	once   sync.Once
	closed chan struct{}
}

func openReader(cfg Config) (*reader, error) {
	db, err := sql.Open("sqlite", dsn(cfg.Path, true))
	if err != nil {
		return nil, fmt.Errorf("open the database for reading: %w", err)
	}
	r := &reader{db: db, slots: make(chan *session, cfg.Readers), closed: make(chan struct{})}
	for range cfg.Readers {
		r.slots <- nil
	}
	return r, nil
}

// close waits for the reads under way.
func (r *reader) close() error {
	r.once.Do(func() { close(r.closed) })
	for range cap(r.slots) {
		if s := <-r.slots; s != nil {
			s.discard()
		}
	}
	return r.db.Close()
}

// view runs see on one state of the database: several statements see one snapshot. It waits for a free connection, and ends with ctx.
func (s *Store) view(ctx context.Context, doing string, see func(ctx context.Context, q querier) error) error {
	err := s.before(ctx, doing)
	if err == nil {
		err = s.read.view(ctx, see)
	}
	if err != nil && ctx.Err() != nil {
		return ended(ctx, doing)
	}
	return explain(doing, err)
}

func (r *reader) view(ctx context.Context, see func(ctx context.Context, q querier) error) error {
	s, err := r.take(ctx)
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = connect(ctx, r.db); err != nil {
			r.slots <- nil
			return err
		}
	}
	err = s.snapshot(ctx, see)
	if err != nil && suspect(err) {
		s.discard()
		s = nil
	}
	r.slots <- s
	return err
}

// markTaken gets the right to one connection.
func (r *reader) take(ctx context.Context) (*session, error) {
	select {
	case <-r.closed:
		return nil, errClosed
	default:
	}
	select {
	case s := <-r.slots:
		return s, nil
	case <-r.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errLost marks a connection whose transaction could not be ended.
var errLost = errors.New("the read transaction could not be ended")

func (s *session) snapshot(ctx context.Context, see func(ctx context.Context, q querier) error) error {
	if _, err := s.exec(ctx, "BEGIN"); err != nil {
		return errors.Join(errLost, err)
	}
	err := see(ctx, s)
	// Also after the context has ended: an open snapshot would keep the log from being copied into the database.
	if _, end := s.exec(context.WithoutCancel(ctx), "ROLLBACK"); end != nil {
		return errors.Join(errLost, err, end)
	}
	return err
}

// suspect reports whether a read error makes the state of the connection uncertain; results for callers (not found, cancelled) do not.
func suspect(err error) bool {
	if errors.Is(err, errLost) {
		return true
	}
	_, world := unavailable(err)
	return world
}
