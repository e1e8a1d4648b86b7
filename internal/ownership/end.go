package ownership

import (
	"context"
	"time"
)

// leaveTime bounds [Node.Leave].
const leaveTime = time.Second

// Drain begins the shutdown: this process takes over and claims nothing any more, and releases its named leases to other replicas. It writes that to the store
// within ctx, or two further leases. The caller handles running work.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	me := n.current.Load()
	if me == nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.cfg.Lease)
	defer cancel()
	if _, err := n.store.Heartbeat(boundedBy(ctx, last), me.id, true); err != nil {
		n.log.WarnContext(ctx, "the drain could not be recorded for other nodes", "err", err)
	}
	if n.releasing() {
		n.releaseAll(boundedBy(ctx, last), me)
	}
}

// boundedBy is ctx while it lasts, else last.
func boundedBy(ctx, last context.Context) context.Context {
	if ctx.Err() == nil {
		return ctx
	}
	return last
}

// Leave removes this process from the table of nodes: its remaining sessions are free for other replicas immediately. It is the last call before the context of
// Run ends. It takes at most a second.
func (n *Node) Leave(ctx context.Context) {
	me := n.current.Load()
	if me == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := n.store.Unregister(ctx, me.id); err != nil {
		n.log.WarnContext(ctx, "this process was not unregistered; others wait for its lease to end", "err", err)
	}
}

// Restart replaces the incarnation. During the call [Node.Alive] refuses new work; release abandons the running and waiting work in memory and returns when
// that is done. Restart returns when the new incarnation is registered, or with the cause of ctx. Run must be running.
func (n *Node) Restart(ctx context.Context, release func(ctx context.Context) error) error {
	n.restarting.Store(true)
	defer n.restarting.Store(false)
	if err := release(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	select {
	case n.renew <- done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replace abandons the current incarnation and registers the next one. It runs on the goroutine of the heartbeat.
func (n *Node) replace(ctx context.Context) {
	if me := n.current.Swap(nil); me != nil {
		if err := n.store.Unregister(ctx, me.id); err != nil {
			n.log.WarnContext(ctx, "the old incarnation was not unregistered; its lease ends by itself", "err", err)
		}
	}
	n.restarting.Store(false)
	n.heartbeat(ctx)
}
