package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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
}

// figures keeps the counts fresh, so that a scrape of the metrics asks the database nothing.
type figures struct {
	*parts

	last atomic.Pointer[Figures]
	// left is what the last look found without a live process, by agent; warned are the agents in the log. They are touched by the loop only.
	left   map[string]store.Unowned
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
		next.AgentMissing, err = f.agentMissing(ctx, next.AgentMissing)
	}
	if err != nil {
		f.log.DebugContext(ctx, "the figures of the store cannot be read; the last ones stay", "err", err)
		return
	}
	f.last.Store(&next)
}

// agentMissing names the agents for which work waits and that no live process has. was is what the last look named. Two looks have to find it: between
// them a process may start again. Each agent is a warning once, until nothing waits for it.
func (f *figures) agentMissing(ctx context.Context, was []string) ([]string, error) {
	if f.node.Hold() != nil { // every process leaves the work, and the hold is a problem of its own
		f.left = nil
		return nil, nil
	}
	left, err := f.store.Unowned(ctx)
	if err != nil {
		return was, err
	}
	before := f.left
	f.left = left
	var missing []string
	for _, agent := range slices.Sorted(maps.Keys(left)) {
		if _, still := before[agent]; !still {
			continue
		}
		n := left[agent]
		missing = append(missing, missingSentence(agent, n))
		if !f.warned[agent] {
			f.warned[agent] = true
			f.log.WarnContext(ctx, "work waits for an agent that no running gateway has", "agent", agent, "messages", n.Messages, "jobs", n.Jobs, "cure", missingCure)
		}
	}
	maps.DeleteFunc(f.warned, func(agent string, _ bool) bool {
		_, still := left[agent]
		return !still
	})
	return missing, nil
}

const missingCure = "start a gateway that has the agent in its configuration, or reset the sessions and disable the jobs"

func missingSentence(agent string, n store.Unowned) string {
	var what []string
	if n.Messages > 0 {
		what = append(what, waiting(n.Messages, "message"))
	}
	if n.Jobs > 0 {
		what = append(what, waiting(n.Jobs, "job"))
	}
	return fmt.Sprintf("agent %s: %s for it, and no running gateway has it: %s", agent, strings.Join(what, " and "), missingCure)
}

// waiting is "1 message waits" or "2 messages wait".
func waiting(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " waits"
	}
	return fmt.Sprintf("%d %ss wait", n, noun)
}
