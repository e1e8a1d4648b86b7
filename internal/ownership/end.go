package ownership

import (
	"context"
	"time"
)

// leaveTime bounds [Node.Leave].
const leaveTime = time.Second

// Drain begins the end: nothing is taken over or claimed any more, and named leases are for other replicas. It writes that to the store as far as
// ctx, or two leases more, allow. Running work is the caller's.
func (n *Node) Drain(ctx context.Context) {
	n.draining.Store(true)
	me := n.current.Load()
	if me == nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.cfg.Lease)
	defer cancel()
	if _, err := n.store.Heartbeat(boundedBy(ctx, last), me.id, true); err != nil {
		n.log.WarnContext(ctx, "other nodes do not know that this one drains", "err", err)
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

// Leave takes this process out of the table of nodes: what it still owned is free for others at once. It is the last call before the context of Run
// ends. It takes at most a second.
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

// Restart replaces the incarnation. From its beginning to its end nothing is taken on ([Node.Alive] refuses); release gives up what runs and waits in
// memory and returns when that is done. Restart returns when the new incarnation is registered, or with the cause of ctx. Run has to be running.
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

// replace gives the current incarnation up and registers the next one. It runs on the goroutine of the heartbeat.
func (n *Node) replace(ctx context.Context) {
	if me := n.current.Swap(nil); me != nil {
		if err := n.store.Unregister(ctx, me.id); err != nil {
			n.log.WarnContext(ctx, "the old incarnation was not unregistered; its lease ends by itself", "err", err)
		}
	}
	n.restarting.Store(false)
	n.heartbeat(ctx)
}
