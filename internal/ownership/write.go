package ownership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"laneway/internal/retry"
	"laneway/internal/store"
)

// pauses are the waits between two tries of a write. They have no spread: a process has few such writes at a time.
func pauses() retry.Policy {
	return retry.Policy{Base: 20 * time.Millisecond, Max: time.Second, Spread: -1}
}

// errEnded is the cause of waits that the end of [Node.Run] has ended.
var errEnded = errors.New("the process ends")

// Final makes a write that must not be lost because its caller went away. It is repeated while the store does not answer and this incarnation lives:
// to give up earlier would leave rows behind that no other process may touch. When it fails, the next owner's sweep finds the rows. what names the
// write in the error of a try that took too long.
func (n *Node) Final(ctx context.Context, what string, write func(context.Context) error) error {
	wait, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(n.life, func() { cancel(errEnded) })
	defer stop()
	id := n.ID()
	return n.repeat(wait, what+" took too long", func(err error) bool { return store.CommitUnknown(err) && n.ID() == id }, write)
}

// WhileAlive repeats an operation while the store does not answer and ctx lasts.
func (n *Node) WhileAlive(ctx context.Context, op func(context.Context) error) error {
	return n.repeat(ctx, "the store took too long", store.CommitUnknown, op)
}

// repeat makes each try in a context of its own, bounded by the lease: the end of wait ends the waits and no try, because the caller has to know whether
// a write was committed.
func (n *Node) repeat(wait context.Context, late string, again func(error) bool, op func(context.Context) error) error {
	return retry.Do(wait, retry.Options{Policy: pauses(), Retryable: again}, func(ctx context.Context) error {
		try, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), n.cfg.Lease, fmt.Errorf("%s: %w", late, context.DeadlineExceeded))
		defer cancel()
		return op(try)
	})
}
