package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/retry"
	"laneway/internal/store"
)

const (
	figuresEvery = 15 * time.Second
	// figuresShare limits the cost of counting: after a count, this many times its duration pass without one.
	figuresShare = 100
	// takenLong is longer than a row can be taken: the delivery of a file ends after seven minutes, an allowed call after one.
	takenLong = 10 * time.Minute
	// figuresTime limits one count.
	figuresTime = 15 * time.Second
)

// Figures are counts of the store for metrics, as last read. They include all processes that share the store.
type Figures struct {
	OutboxWaiting int
	Cron          cron.Summary // OldestDue negative = nothing is due
	// AgentMissing describes work that waits for an agent that no live process has, one sentence for each agent.
	AgentMissing []string
	// TakenLong counts the rows that a process has taken for longer than is possible, and TakenWords describes them.
	TakenLong  int
	TakenWords []string
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
	// taken has the rows that the last count found taken, with the time of the first count that did. Only the loop uses it.
	taken map[store.TakenRow]time.Time
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
	if err == nil {
		err = f.takenTooLong(ctx, &next)
	}
	if err != nil {
		f.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		next.given = nil // a replica may have the agent now
	}
	f.last.Store(&next)
}

// takenTooLong finds rows that a process has taken for longer than is possible. Such a row blocks what comes after it until its process ends.
func (f *figures) takenTooLong(ctx context.Context, next *Figures) error {
	rows, err := f.store.TakenRows(ctx)
	if err != nil {
		return err
	}
	now, before := time.Now(), f.taken
	f.taken = make(map[store.TakenRow]time.Time, len(rows))
	long := map[string]int{}
	next.TakenLong, next.TakenWords = 0, nil
	for _, row := range rows {
		since, seen := before[row]
		if !seen {
			since = now
		}
		f.taken[row] = since
		if now.Sub(since) >= takenLong {
			next.TakenLong++
			long[row.Kind+" by gateway "+row.Node]++
		}
	}
	for _, what := range slices.Sorted(maps.Keys(long)) {
		words := fmt.Sprintf("%d × %s: taken for more than %s, which is longer than it can last; restart that gateway, then another attempt follows", long[what], what, command.DurationWords(takenLong))
		next.TakenWords = append(next.TakenWords, words)
		if !slices.Contains(f.current().TakenWords, words) {
			f.log.ErrorContext(ctx, "work has been taken for longer than it can last", "what", what, "rows", long[what])
		}
	}
	return nil
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
