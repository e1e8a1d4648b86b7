package dispatch

import (
	"context"
	"errors"
	"strings"
	"time"

	"laneway/internal/store"
)

// joinBy carries the reason of a stop together with who asked: through the scheduler's cause, and through the store to other processes.
func joinBy(reason, who string) string { return reason + " " + who }

// reasonOf is the reason in what joinBy made. A name alone, as older versions have stored it, is a plain stop.
func reasonOf(by string) string {
	reason, _, ok := strings.Cut(by, " ")
	if !ok {
		return reasonStop
	}
	return reason
}

// Reasons of stops that chat events know.
const (
	reasonStop    = "stop"
	reasonStopAll = "stopall"
	reasonReset   = "reset"
)

// abortReason is the reason of an end as watchers know it: a closed set, in which whatever cancelled a job's run is a stop.
func abortReason(reason string) string {
	switch reason {
	case reasonStopAll, reasonReset, store.ReasonSuperseded, "stale", "cleared", "draining":
		return reason
	default:
		return reasonStop
	}
}

// hintStop wakes the process that runs what was asked to stop. A lost hint is made good by its heartbeat.
func (d *Dispatcher) hintStop(node string) {
	if w, ok := d.store.(store.Waker); ok && node != "" {
		w.NotifyStop(node)
	}
}

// stopLoop stops what other processes ask this one to stop, as soon as they say so. It has a goroutine of its own, because neither a sweep nor a
// heartbeat may delay a stop.
func (d *Dispatcher) stopLoop(ctx context.Context) {
	w, ok := d.store.(store.Waker)
	if !ok {
		return
	}
	again := time.NewTicker(d.cfg.Sweep) // an incarnation that was registered meanwhile has another channel
	defer again.Stop()
	for {
		var hints <-chan struct{}
		me := d.node.Load()
		if me != nil {
			hints = w.StopWakeups(me.id)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-hints:
			d.stopAsked(ctx, w, me.id)
		}
	}
}

// stopAsked stops what the store says this node was asked to stop.
func (d *Dispatcher) stopAsked(ctx context.Context, w store.Waker, node string) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Lease/3, errors.New("reading stop requests took too long"))
	defer cancel()
	stops, err := w.StopRequests(ctx, node)
	if err != nil {
		d.log.WarnContext(ctx, "stop requests of other processes could not be read; the heartbeat brings them", "err", err)
		return
	}
	d.stopRequested(stops)
}

// stopRequested cancels turns of this process. One that was cancelled before keeps its cause.
func (d *Dispatcher) stopRequested(stops []store.StopRequest) {
	for _, s := range stops {
		d.sched.StopRun(s.Session.String(), s.RunID, s.By)
	}
}
