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
	// figuresShare limits the cost of counting: after a count, this many times its duration pass without one.
	figuresShare = 100
	// figuresTime limits one count.
	figuresTime = 15 * time.Second
)

// Figures are counts of the store for metrics, as last read. They include all processes that share the store.
type Figures struct {
	OutboxWaiting int
	Cron          cron.Summary // OldestDue negative = nothing is due
	// AgentMissing describes work that waits for an agent that no live process has, one sentence for each agent.
	AgentMissing []string
	// given are the agents among them that have been missing for [Config.AgentWait].
	given []string
}

// figures caches the counts, so that a scrape of the metrics needs no query.
type figures struct {
	*parts

	last atomic.Pointer[Figures]
	// left has, by agent, the work that the last count found without a live process, and warned the agents that were logged. Only the loop
	// uses them. since is when each agent was first missing.
	left   map[string]store.Unowned
	since  map[string]time.Time
	warned map[string]bool
}

// current does not block. Before the first count, everything is zero.
func (f *figures) current() Figures {
	if last := f.last.Load(); last != nil {
		return *last
	}
	return Figures{Cron: cron.Summary{OldestDue: -1}}
}

// run reads the figures periodically until ctx is done.
func (f *figures) run(ctx context.Context) {
	for {
		began := time.Now()
		f.read(ctx)
		if retry.Sleep(ctx, max(figuresEvery, figuresShare*time.Since(began))) != nil {
			return
		}
	}
}

// read reads the figures; a figure that cannot be read keeps its value.
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
		next.given = nil // a replica may have the agent now
	}
	f.last.Store(&next)
}

// given returns the agents that have been missing for too long.
func (f *figures) given() []string { return f.current().given }

// agentMissing lists the agents that no live process has and for which work waits. Two counts have to find an agent, because a process may
// restart between them. Each agent is logged once, until no work waits for it. The time restarts with this process, so that a gateway that
// starts first does not abandon the work of the next one.
func (f *figures) agentMissing(ctx context.Context, next *Figures) error {
	if f.node.Hold() != nil { // no process takes the work, and the hold is reported separately
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
