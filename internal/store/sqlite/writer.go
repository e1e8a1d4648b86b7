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

// maxBatch is how many operations share one commit. A larger batch would gain nothing (the flush is then some percent of it) and would make the first operation
// wait for the last.
const maxBatch = 256

// fewOps is the number of waiting operations below which the writer lets more operations join.
const fewOps = 16

// work is one operation of the port: statements inside the writer's transaction. It may run after its caller has returned, so it owns its inputs. It may run a
// second time after a rollback, so it changes nothing but the database and its result, which the caller receives only after the commit.
type work func(ctx context.Context, t *tx) error

// op is a queued operation.
type op struct {
	doing   string
	run     work
	batched sqlstore.Batched // used instead of run
	urgent  bool
	applied bool  // completed together with others: its only result is the commit
	alone   bool  // it was not completed together with others
	err     error // for the caller
	cause   error // the same before explain
	// claimed is won by the writer (it runs) or by a caller whose context ended first (it never runs).
	claimed atomic.Bool
	done    chan struct{}
}

// writer owns the only connection that writes. Its goroutine runs all waiting operations in one transaction: one flush of the disk for up to maxBatch
// operations, which is the reason for the throughput. The queue needs no bound: every entry is a waiting caller.
type writer struct {
	cfg  Config
	gate *store.Gate
	born time.Time // for the age, which must not depend on the wall clock

	mu      sync.Mutex
	some    *sync.Cond // signals that something is queued, or the writer is closed
	first   []*op      // control operations
	then    []*op
	closed  bool
	ended   chan struct{}
	working atomic.Int64 // start of the current batch, as nanoseconds after born; 0 = idle

	conn    *conn // used only by the goroutine until it has ended; nil when it must be opened
	version int64 // version of the data at the start of the last transaction; also used only by the goroutine
}

// newWriter starts the goroutine; close ends it. c is its first connection.
func newWriter(ctx context.Context, c *conn, gate *store.Gate, cfg Config) *writer {
	w := &writer{cfg: cfg, conn: c, gate: gate, born: time.Now(), ended: make(chan struct{})} //nolint:forbidigo // monotonic, never stored
	w.some = sync.NewCond(&w.mu)
	go w.loop(ctx)
	return w
}

// result is an operation with a result. The writer's goroutine writes it, and the caller reads it after the commit; if the caller has already returned, the
// result is discarded.
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

// ordinary operations wait in order; urgent ones do not wait for a burst of messages.
func ordinary(doing string) *op { return &op{doing: doing, done: make(chan struct{})} }

func urgent(doing string) *op { return &op{doing: doing, done: make(chan struct{}), urgent: true} }

// do queues an operation without a result.
func (w *writer) do(ctx context.Context, o *op, run work) error {
	o.run = run
	return w.submit(ctx, o)
}

// submit queues an operation and waits for its commit or for ctx. When ctx ends, the operation either never runs or runs as a whole.
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
	o.claimed.CompareAndSwap(false, true) // if the caller wins, the writer skips it
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

// close completes the queued operations and waits for the goroutine. It returns false when an earlier call has closed the writer.
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

// next waits for work and takes what is queued, control operations first; nil when the writer is closed and the queue empty. While few operations wait, ready
// goroutines run first, so that callers that got their results together are in one batch again.
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

// take moves operations from queue to batch until the batch is full. It releases a drained queue, so that a burst does not stay in memory.
func take(batch, queue []*op) (filled, rest []*op) {
	n := min(len(queue), maxBatch-len(batch))
	batch = append(batch, queue[:n]...)
	if n == len(queue) {
		return batch, nil
	}
	return batch, queue[n:]
}
