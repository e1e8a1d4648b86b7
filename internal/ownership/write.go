package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"laneway/internal/retry"
	"laneway/internal/store"
)

// pauses are the waits between two tries of a write. They have no jitter, because a process has few such writes at a time.
func pauses() retry.Policy {
	return retry.Policy{Base: 20 * time.Millisecond, Max: time.Second, Spread: -1}
}

// errEnded is the cause of waits that the end of [Node.Run] interrupts.
var errEnded = errors.New("the process ends")

// Final makes a write that must not be lost when its caller has gone away. It is retried while the store is unavailable and this incarnation is alive: giving
// up earlier would leave rows that no other process may change. When it fails, the next owner's sweep finds the rows. what names the write in the error of a
// try that took too long.
func (n *Node) Final(ctx context.Context, what string, write func(context.Context) error) error {
	wait, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(n.life, func() { cancel(errEnded) })
	defer stop()
	id := n.ID()
	return n.repeat(wait, what+" took too long", func(err error) bool { return store.CommitUnknown(err) && n.ID() == id }, write)
}

// WhileAlive retries an operation while the store is unavailable and ctx lasts.
func (n *Node) WhileAlive(ctx context.Context, op func(context.Context) error) error {
	return n.repeat(ctx, "the store took too long", store.CommitUnknown, op)
}

// repeat makes each try in a context of its own, bounded by the lease. The end of wait interrupts the waits but no try, because the caller must know whether a
// write was committed.
func (n *Node) repeat(wait context.Context, late string, again func(error) bool, op func(context.Context) error) error {
	return retry.Do(wait, retry.Options{Policy: pauses(), Retryable: again}, func(ctx context.Context) error {
		try, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), n.cfg.Lease, fmt.Errorf("%s: %w", late, context.DeadlineExceeded))
		defer cancel()
		return op(try)
	})
}
