package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/sqlstore"
)

// maxBatch is how many operations share one commit. More would gain nothing (the flush is then some percent of the batch) and would make
// the first one wait for the last.
const maxBatch = 256

// fewOps is how many waiting operations are so few that the writer lets others join them.
const fewOps = 16

// work is one operation of the port: statements inside the writer's transaction. It may run when its caller has returned, so it owns what
// it needs. It may run a second time after a rollback, so it changes nothing but the database and its result, which the caller gets after
// the commit only.
type work func(ctx context.Context, t *tx) error

// op is a queued operation.
type op struct {
	doing   string
	run     work
	batched sqlstore.Batched // instead of run
	urgent  bool
	applied bool  // together with others: it has no result but the commit
	alone   bool  // it was not done together with others
	err     error // for the caller
	cause   error // the same before explain
	// claimed is won by the writer (it runs) or by a caller whose context ended first (it never runs).
	claimed atomic.Bool
	done    chan struct{}
}

// writer owns the only connection that writes. Its goroutine takes everything that waits into one transaction: one flush of the disk
// for up to maxBatch operations, which is where the speed comes from. The queue needs no bound of its own: every entry is a caller that waits for it.
type writer struct {
	cfg  Config
	gate *store.Gate
	born time.Time // for the age, which must not follow the wall clock

	mu      sync.Mutex
	some    *sync.Cond // something is queued, or closed
	first   []*op      // control operations
	then    []*op
	closed  bool
	ended   chan struct{}
	working atomic.Int64 // since when, as nanoseconds after born; 0 = idle

	conn    *conn // of the goroutine alone until it has ended; nil = to be opened
	version int64 // of the data when the last transaction began; also of the goroutine
}

// newWriter starts the goroutine; close ends it. c is its first connection.
func newWriter(ctx context.Context, c *conn, gate *store.Gate, cfg Config) *writer {
	w := &writer{cfg: cfg, conn: c, gate: gate, born: time.Now(), ended: make(chan struct{})} //nolint:forbidigo // monotonic, never stored
	w.some = sync.NewCond(&w.mu)
	go w.loop(ctx)
	return w
}

// result is an operation with a result. The writer's goroutine writes it, and the caller reads it after the commit; when the caller has
// returned before, it is not read.
func result[T any](ctx context.Context, w *writer, o *op, run func(ctx context.Context, t *tx) (T, error)) (T, error) {
	var none, out T
	o.run = func(ctx context.Context, t *tx) (err error) {
		out, err = run(ctx, t)
		return err
	}
	if err := w.submit(ctx, o); err != nil {
		return none, err
	}
	return out, nil
}

// ordinary operations wait their turn; urgent ones do not wait behind a burst of messages.
func ordinary(doing string) *op { return &op{doing: doing, done: make(chan struct{})} }

func urgent(doing string) *op { return &op{doing: doing, done: make(chan struct{}), urgent: true} }

// do queues an operation without a result.
func (w *writer) do(ctx context.Context, o *op, run work) error {
	o.run = run
	return w.submit(ctx, o)
}

// submit queues an operation and waits for its commit or for ctx. When ctx ends the operation either never runs or runs as a whole.
func (w *writer) submit(ctx context.Context, o *op) error {
	if ctx.Err() != nil {
		return ended(ctx, o.doing)
	}
	if err := w.cfg.Before(ctx, o.doing); err != nil {
		return fmt.Errorf("%s: %w", o.doing, err)
	}
	if !w.queue(o) {
		return errClosed
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	o.claimed.CompareAndSwap(false, true) // the caller has won: the writer skips it
	return ended(ctx, o.doing)
}

func (w *writer) queue(o *op) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	if o.urgent {
		w.first = append(w.first, o)
	} else {
		w.then = append(w.then, o)
	}
	w.some.Signal()
	return true
}

// close lets what is queued finish and waits for the goroutine. It returns false when another call has closed before.
func (w *writer) close() bool {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.some.Signal()
	w.mu.Unlock()
	<-w.ended
	return !again
}

func (w *writer) age() time.Duration {
	since := w.working.Load()
	if since == 0 {
		return 0
	}
	return w.elapsed() - time.Duration(since)
}

func (w *writer) elapsed() time.Duration { return time.Since(w.born) } //nolint:forbidigo // monotonic, never stored

func (w *writer) loop(ctx context.Context) {
	defer close(w.ended)
	for {
		batch := w.next()
		if batch == nil {
			return
		}
		w.working.Store(int64(max(w.elapsed(), 1)))
		w.perform(ctx, batch)
		w.working.Store(0)
	}
}

// next waits for work and takes what is there, control operations first; nil = closed and nothing left. While few operations
// wait, goroutines that are ready run first, so that callers that got their results at the same moment are in one batch again.
func (w *writer) next() []*op {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.first)+len(w.then) == 0 {
		if w.closed {
			return nil
		}
		w.some.Wait()
	}
	if len(w.first)+len(w.then) < fewOps {
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	batch := make([]*op, 0, min(len(w.first)+len(w.then), maxBatch))
	batch, w.first = take(batch, w.first)
	batch, w.then = take(batch, w.then)
	return batch
}

// take moves operations from queue to batch until that is full. It releases a drained queue, so that a burst is not kept in memory.
func take(batch, queue []*op) (filled, rest []*op) {
	n := min(len(queue), maxBatch-len(batch))
	batch = append(batch, queue[:n]...)
	if n == len(queue) {
		return batch, nil
	}
	return batch, queue[n:]
}
