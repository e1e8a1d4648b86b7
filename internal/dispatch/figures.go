package dispatch

import (
	"context"
	"time"

	"laneway/internal/cron"
	"laneway/internal/retry"
)

const (
	figuresEvery = 15 * time.Second
	// figuresShare bounds what counting may cost: a look is followed by this many times its own duration without one.
	figuresShare = 100
)

// Figures are counts of the store for metrics, as last read. They are of all processes that share the store.
type Figures struct {
	OutboxWaiting int
	Cron          cron.Summary // OldestDue negative = nothing is due, or there is no cron
}

// Figures answers at once, without the database. Before the first look nothing waits.
func (d *Dispatcher) Figures() Figures {
	if f := d.figures.Load(); f != nil {
		return *f
	}
	return Figures{Cron: cron.Summary{OldestDue: -1}}
}

// figuresLoop keeps the figures fresh, so that a scrape of the metrics asks the database nothing.
func (d *Dispatcher) figuresLoop(ctx context.Context) {
	for {
		began := time.Now()
		d.look(ctx)
		if retry.Sleep(ctx, max(figuresEvery, figuresShare*time.Since(began))) != nil {
			return
		}
	}
}

// look reads the figures; what cannot be read stays as it was.
func (d *Dispatcher) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.node.Lease())
	defer cancel()
	next := d.Figures()
	counts, err := d.store.OutboxCounts(ctx)
	if err == nil {
		next.OutboxWaiting = 0
		for _, c := range counts {
			next.OutboxWaiting += c.Waiting
		}
		if d.jobs != nil {
			next.Cron, err = d.jobs.Summary(ctx, "")
		}
	}
	if err != nil {
		d.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		return
	}
	d.figures.Store(&next)
}
