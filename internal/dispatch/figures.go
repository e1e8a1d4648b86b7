package dispatch

import (
	"context"
	"sync/atomic"
	"time"

	"laneway/internal/cron"
	"laneway/internal/retry"
)

const (
	figuresEvery = 15 * time.Second
	// figuresShare bounds what counting may cost: a look is followed by this many times its own duration without one.
	figuresShare = 100
	// figuresTime bounds one look.
	figuresTime = 15 * time.Second
)

// Figures are counts of the store for metrics, as last read. They are of all processes that share the store.
type Figures struct {
	OutboxWaiting int
	Cron          cron.Summary // OldestDue negative = nothing is due
}

// figures keeps the counts fresh, so that a scrape of the metrics asks the database nothing.
type figures struct {
	*parts

	last atomic.Pointer[Figures]
}

// current answers at once, without the database. Before the first look nothing waits.
func (f *figures) current() Figures {
	if last := f.last.Load(); last != nil {
		return *last
	}
	return Figures{Cron: cron.Summary{OldestDue: -1}}
}

// run reads the figures now and then until ctx is over.
func (f *figures) run(ctx context.Context) {
	for {
		began := time.Now()
		f.read(ctx)
		if retry.Sleep(ctx, max(figuresEvery, figuresShare*time.Since(began))) != nil {
			return
		}
	}
}

// read reads the figures; what cannot be read stays as it was.
func (f *figures) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, figuresTime)
	defer cancel()
	next := f.current()
	counts, err := f.store.OutboxCounts(ctx)
	if err == nil {
		next.OutboxWaiting = 0
		for _, c := range counts {
			next.OutboxWaiting += c.Waiting
		}
		next.Cron, err = f.store.Summary(ctx, "")
	}
	if err != nil {
		f.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		return
	}
	f.last.Store(&next)
}
