package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"laneway/internal/cron"
	"laneway/internal/retry"
	"laneway/internal/store"
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
	// AgentMissing is work that waits for an agent that no live process has, one sentence for each agent.
	AgentMissing []string
	// given are those of these agents that have been missing for [Config.AgentWait].
	given []string
}

// figures keeps the counts fresh, so that a scrape of the metrics asks the database nothing.
type figures struct {
	*parts

	last atomic.Pointer[Figures]
	// left is what the last look found without a live process, by agent; warned are the agents in the log. They are touched by the loop only.
	// since is when each was found to be missing.
	left   map[string]store.Unowned
	since  map[string]time.Time
	warned map[string]bool
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
	if err == nil {
		err = f.agentMissing(ctx, &next)
	}
	if err != nil {
		f.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		next.given = nil // a replica may have the agent by now
	}
	f.last.Store(&next)
}

// given are the agents that have been missing for too long.
func (f *figures) given() []string { return f.current().given }

// agentMissing names the agents for which work waits and that no live process has. Two looks have to find it: between them a process may start again. Each agent is
// a warning once, until nothing waits for it. The time of an agent begins anew with this process, so that a gateway that starts first does not give up the work of
// the next one.
func (f *figures) agentMissing(ctx context.Context, next *Figures) error {
	if f.node.Hold() != nil { // every process leaves the work, and the hold is a problem of its own
		clear(f.left)
		clear(f.since)
		next.AgentMissing, next.given = nil, nil
		return nil
	}
	left, err := f.store.Unowned(ctx)
	if err != nil {
		return err
	}
	before := f.left
	f.left, next.AgentMissing, next.given = left, nil, nil
	for _, agent := range slices.Sorted(maps.Keys(left)) {
		if _, still := before[agent]; !still {
			f.since[agent] = time.Now()
			continue
		}
		n := left[agent]
		next.AgentMissing = append(next.AgentMissing, n.Sentence(agent)+": "+store.UnownedCure)
		if f.cfg.AgentWait > 0 && time.Since(f.since[agent]) >= f.cfg.AgentWait {
			next.given = append(next.given, agent)
		}
		if !f.warned[agent] {
			f.warned[agent] = true
			f.log.WarnContext(ctx, "work waits for an agent that no running gateway has", "agent", agent, "messages", n.Messages, "jobs", n.Jobs, "cure", store.UnownedCure)
		}
	}
	maps.DeleteFunc(f.warned, func(agent string, _ bool) bool {
		_, still := left[agent]
		return !still
	})
	return nil
}
