package dispatch

import (
	"context"
	"fmt"
	"time"

	"laneway/internal/scheduler"
)

// Reconfigure changes the limits of lanes and the rules of queues while turns run: growing lanes take effect at once, shrinking ones
// as turns end. Messages that wait keep the rules under which they came.
func (d *Dispatcher) Reconfigure(lanes map[string]int, queue func(agent, channel, kind string) scheduler.Settings) error {
	for name, n := range lanes {
		if _, err := d.sched.GetOrCreate(name, n); err != nil {
			return fmt.Errorf("lane %s: %w", name, err)
		}
		if err := d.sched.Resize(name, n); err != nil {
			return fmt.Errorf("lane %s: %w", name, err)
		}
	}
	if queue != nil {
		d.queue.Store(&queue)
	}
	return nil
}

// Restart restarts the scheduler in place: running turns are cancelled and wait again, what waits in memory is forgotten, and a new incarnation
// of this process takes everything over from the store, as another process would. Nothing is lost and nothing is counted as a crash. It
// returns when the new incarnation is registered, or with the cause of ctx.
func (d *Dispatcher) Restart(ctx context.Context) error {
	d.restarting.Store(true)
	defer d.restarting.Store(false)
	d.sched.ResetAll()
	d.handover.clear()
	for d.sched.Stats().Sessions.Undecided > 0 {
		if !d.pause(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	select {
	case d.renew <- done:
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

// renewed gives the current incarnation up and registers the next one. It runs on the goroutine of the heartbeat.
func (d *Dispatcher) renewed(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	if me := d.node.Swap(nil); me != nil {
		if err := d.store.Unregister(ctx, me.id); err != nil {
			d.log.WarnContext(ctx, "the old incarnation could not be given up; its lease ends by itself", "err", err)
		}
	}
	d.restarting.Store(false)
	d.beat(ctx)
}
