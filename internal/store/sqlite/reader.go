package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"
)

// reader is the pool of read-only connections. They never wait for the writer: each sees the last commit before its read began. A token of the channel is the
// right to one connection; nil is a connection that is not open yet.
type reader struct {
	path   string
	now    func() time.Time
	slots  chan *conn
	once   sync.Once
	closed chan struct{}
}

func newReader(cfg Config) *reader {
	r := &reader{path: cfg.Path, now: cfg.Now, slots: make(chan *conn, cfg.Readers), closed: make(chan struct{})}
	for range cfg.Readers {
		r.slots <- nil
	}
	return r
}

// close waits for the reads in progress.
func (r *reader) close() (err error) {
	r.once.Do(func() { close(r.closed) })
	for range cap(r.slots) {
		if c := <-r.slots; c != nil {
			err = errors.Join(err, c.close())
		}
	}
	return err
}

// view runs see on one state of the database: all statements see one snapshot. It waits for a free connection, and ends with ctx.
func (s *Store) view(ctx context.Context, doing string, see func(ctx context.Context, t *tx) error) error {
	err := s.before(ctx, doing)
	if err == nil {
		err = s.read.view(ctx, see)
	}
	return outcome(ctx, doing, err)
}

func (r *reader) view(ctx context.Context, see func(ctx context.Context, t *tx) error) error {
	c, err := r.take(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		if c, err = openReading(r.path); err != nil {
			r.slots <- nil
			return err
		}
	}
	err = c.within(ctx, `BEGIN`, false, func() error { return see(ctx, &tx{conn: c, now: r.now().UnixMilli()}) })
	if _, world := unavailable(err); world || c.inTransaction() { // a result for the caller, such as not found or cancelled, leaves the connection usable
		err, c = errors.Join(err, c.close()), nil
	}
	r.slots <- c
	return err
}

// take gets the right to one connection.
func (r *reader) take(ctx context.Context) (*conn, error) {
	select {
	case <-r.closed:
		return nil, errClosed
	default:
	}
	select {
	case c := <-r.slots:
		return c, nil
	case <-r.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
