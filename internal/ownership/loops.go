package ownership

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// sweepBatch is how many sessions a sweep takes, and how many hinted messages it reads at once.
const sweepBatch = 200

// Run extends the lease, passes stop requests on and sweeps until ctx ends; it returns when its goroutines have ended.
func (n *Node) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, n.end)
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){n.heartbeatLoop, n.sweepLoop} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
}

// heartbeatLoop registers this process and keeps its lease. It is the only goroutine that replaces the incarnation, and it waits only for the heartbeat itself:
// a slow sweep must not cost the lease. The heartbeat returns the stop requests of other replicas, so a hint about one brings it forward.
func (n *Node) heartbeatLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(n.heartbeat(ctx))
		case <-n.hints(store.HintStop):
			t.Reset(n.heartbeat(ctx))
		case done := <-n.renew:
			n.replace(ctx)
			close(done)
		}
	}
}

// heartbeat extends the lease or registers a new incarnation; it returns the wait until the next call.
func (n *Node) heartbeat(ctx context.Context) time.Duration {
	every := n.cfg.Heartbeat
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Lease/3, errors.New("the heartbeat took too long"))
	defer cancel()
	me := n.current.Load()
	if me == nil {
		if err := n.register(ctx); err != nil {
			n.log.WarnContext(ctx, "not registered yet; trying again", "err", err)
			return every / 3
		}
		return every
	}
	asked, known := time.Now(), n.peers.Load()
	beat, err := n.store.Heartbeat(ctx, me.id, n.draining.Load())
	switch {
	case err == nil:
		if sign, before := n.witness.sees(beat, n.handler.Running(), asked, n.cfg.Lease); sign != "" {
			n.startOver(ctx, me, sign, before, beat.History)
			return 0
		}
		n.current.Store(&incarnation{id: me.id, lease: n.until(asked), leases: me.leases})
		n.peers.CompareAndSwap(known, new(beat.OtherNodes > 0)) // a sign of a peer that arrived meanwhile is newer than the count of the store
		n.setHold(ctx, beat.Hold)
		n.stopAll(beat.Stops)
		return every
	case errors.Is(err, chat.ErrFenced) || me.over(time.Now()):
		n.loseLease(ctx, err)
		return 0
	default:
		n.log.WarnContext(ctx, "heartbeat missed; trying again", "err", err)
		return every / 3
	}
}

// loseLease abandons the incarnation and all its running work. The messages are rows in the store, where the next incarnation finds them.
func (n *Node) loseLease(ctx context.Context, cause error) {
	n.obs.LeaseLost()
	n.log.ErrorContext(ctx, "the lease of this process is lost; its turns are cancelled and run again from the database", "err", cause)
	n.current.Store(nil)
	n.handler.LeaseLost()
}

// sweepLoop takes over work without a live owner: periodically, after a hint from the store, and on request of this process.
func (n *Node) sweepLoop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(n.cfg.Sweep*9/10 + rand.N(n.cfg.Sweep/5)) //nolint:gosec // spread, not secrecy
		case <-n.sweepNow:
		case <-n.hints(store.HintMessage):
		}
		n.sweep(ctx)
		n.sweptAt.Store(time.Now().UnixNano())
	}
}

// hints delivers hints for the current incarnation; nil before the process is registered.
func (n *Node) hints(h store.Hint) <-chan struct{} {
	me := n.current.Load()
	if n.waker == nil || me == nil {
		return nil
	}
	return n.waker.Wakeups(me.id, h)
}

// sweep takes over sessions without a live owner and reads messages whose hint was lost.
func (n *Node) sweep(ctx context.Context) {
	me, err := n.alive()
	if err != nil || n.draining.Load() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Lease, errors.New("the sweep took too long"))
	defer cancel()
	agents := n.cfg.Agents
	if agents != nil && n.cfg.Given != nil {
		agents = append(slices.Clip(agents), n.cfg.Given()...)
	}
	taken, err := n.store.Sweep(ctx, store.SweepParams{Node: me.id, Limit: sweepBatch, Agents: agents})
	if err != nil {
		n.log.WarnContext(ctx, "sweep failed; trying again", "err", err)
		return
	}
	if len(taken) > 0 {
		n.obs.TakenOver(len(taken))
		n.log.InfoContext(ctx, "took over sessions", "sessions", len(taken))
		n.SweepNow() // more may exist, because a sweep is bounded in sessions and in bytes
	}
	n.handler.Resume(ctx, taken)
	for {
		asked := time.Now()
		hinted, err := n.store.Hinted(ctx, me.id, n.handler.Known, sweepBatch)
		switch {
		case err != nil:
			n.log.WarnContext(ctx, "reading hinted messages failed; trying again", "err", err)
			return
		case len(hinted) == 0:
			n.handler.AllRead(ctx, asked)
			return
		}
		n.handler.Resume(ctx, hinted)
		if first := hinted[0]; n.handler.Known(first.Session) < first.LastSeq {
			return // this incarnation is ending, and takes nothing any more
		}
	}
}

func (n *Node) stopAll(requests []store.StopRequest) {
	for _, r := range requests {
		n.handler.Stop(r)
	}
}
