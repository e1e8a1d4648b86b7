package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"laneway/internal/retry"
	"laneway/internal/scheduler"
)

const (
	// previewTime is how long the shutdown and the end of a turn wait for previews that are being shown.
	previewTime = 2 * time.Second
	// resetPoll is the interval of the checks whether a reset of the scheduler has cancelled every turn.
	resetPoll = 10 * time.Millisecond
)

// Register registers this process in the store before it serves anything, see [ownership.Node.Register]. From then on other replicas send
// it their events, which it already receives.
func (d *Dispatcher) Register(ctx context.Context) error {
	d.publisher.Listen(ctx)
	if err := d.owner.Register(ctx); err != nil {
		return err
	}
	if err := d.access.name(ctx, d.cfg.Names); err != nil {
		return err
	}
	d.publisher.Announce()
	d.gauges.load(ctx)
	return nil
}

// NodeID returns the id of the current incarnation, or "".
func (d *Dispatcher) NodeID() string { return d.owner.ID() }

// Lease acquires or renews a named lease for this process; a channel polls only while it holds its own.
func (d *Dispatcher) Lease(ctx context.Context, name string) (ok bool, err error) {
	return d.owner.Acquire(ctx, name)
}

// Run runs the loops until ctx is done. It returns when they, and the short work beside turns and calls, have ended. It does not end the
// turns: Drain does.
func (d *Dispatcher) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){d.owner.Run, d.sender.Run, d.figures.run, d.publisher.Run, d.meter.Run, d.questions.run, d.trees.run, d.gauges.run} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
	d.background.Wait()
	return nil
}

// Reconfigure changes the limits of lanes and the rules of queues while turns run. A larger lane takes effect at once, a smaller one as
// turns end. Waiting messages keep the rules with which they were submitted.
func (d *Dispatcher) Reconfigure(lanes []scheduler.Lane, queue func(agent, channel, kind string) QueueRules) error {
	for _, lane := range lanes {
		if _, err := d.sched.GetOrCreate(lane); err != nil {
			return fmt.Errorf("lane %s: %w", lane.Name, err)
		}
		if err := d.sched.Resize(lane); err != nil {
			return fmt.Errorf("lane %s: %w", lane.Name, err)
		}
	}
	if queue != nil {
		d.queue.rules.Store(&queue)
	}
	return nil
}

// Restart restarts the scheduler in place. Running turns are cancelled and wait again, waiting messages are removed from memory, and a new
// incarnation of this process takes them over from the store, as another process would. Nothing is lost or counted as a crash. It returns
// when the new incarnation is registered, or with the cause of ctx.
func (d *Dispatcher) Restart(ctx context.Context) error {
	return d.owner.Restart(ctx, func(ctx context.Context) error {
		d.queue.order.clear(d.sched)
		for d.sched.Stats().Sessions.Undecided > 0 {
			if err := retry.Sleep(ctx, resetPoll); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drain is the shutdown, see the package comment: it ends previews, refuses new messages, lets turns finish and stops sending. ctx limits
// the wait for running turns and for active requests; the whole takes at most one grace period more. Channels may run meanwhile; call Leave
// after they have ended.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.owner.Drain(ctx)
	var previews sync.WaitGroup
	previews.Go(func() { // another replica may send the text that a preview shows
		ctx, cancel := context.WithTimeout(ctx, previewTime)
		defer cancel()
		d.signs.endPreviews(ctx)
	})
	err := d.sched.Drain(ctx)
	previews.Wait()
	d.sender.Drain(ctx)
	return err
}

// Leave removes this process from the table of nodes. It is the last step before the context of Run ends, after Drain and after the
// channels have ended. It takes at most a second.
func (d *Dispatcher) Leave(ctx context.Context) { d.owner.Leave(ctx) }
