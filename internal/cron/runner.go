package cron

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Defaults of a [RunnerConfig].
const (
	DefaultTick  = time.Second
	DefaultBatch = 500

	// tickJitter spreads the replicas.
	tickJitter = 50 * time.Millisecond
	// claimTime bounds one claim.
	claimTime = 30 * time.Second
	// lockedRetry is the wait before claiming due jobs that another operation had locked: such an
	// operation takes a few milliseconds.
	lockedRetry = 20 * time.Millisecond
)

// RunnerConfig is the configuration of a [Runner]. Zero values are defaults.
type RunnerConfig struct {
	// Tick is the longest wait between two claims, Batch the number of jobs that one claim takes.
	Tick  time.Duration
	Batch int
	// Agents are the agents of this process: jobs of others are not claimed. nil = all.
	Agents []string
	// Given are agents that no process has and for whose jobs no process waits any more: their
	// slots end as missed once they are older than the catch-up window of the job. May be nil. It
	// does not block.
	Given func() []string
	// Node is the id under which runs are claimed; "" while this process must not claim. Required.
	Node func() string
}

// Launcher receives the claims of a Runner. Its methods must not block.
type Launcher interface {
	// Launch submits a run to its lane.
	Launch(ctx context.Context, l Launched)
	// Claimed receives the result of a claim, before any of its runs is launched.
	Claimed(ctx context.Context, c Claimed)
}

// RunnerObserver counts what the loop does, for metrics. Its methods must not block.
type RunnerObserver interface {
	// Ticked: a tick has called the store; took is the duration, claims the number of claims, ok
	// whether all succeeded.
	Ticked(took time.Duration, claims int, ok bool)
	// Fired: a run was launched with this lateness; never negative.
	Fired(trigger Trigger, late time.Duration)
	// Recorded: a slot was recorded without a run.
	Recorded(state RunState, reason Reason, slots int64)
	// Ended: a run that this process started has its final outcome; one that is retried has not.
	Ended(trigger Trigger, state RunState)
}

// NopRunnerObserver observes nothing.
type NopRunnerObserver struct{}

// Ticked does nothing.
func (NopRunnerObserver) Ticked(time.Duration, int, bool) {}

// Fired does nothing.
func (NopRunnerObserver) Fired(Trigger, time.Duration) {}

// Recorded does nothing.
func (NopRunnerObserver) Recorded(RunState, Reason, int64) {}

// Ended does nothing.
func (NopRunnerObserver) Ended(Trigger, RunState) {}

// Runner is the loop: it sleeps until the next due time, a change or a tick, claims due jobs and
// launches their runs. It has no durable state; it can end at any point, and another one continues
// from the store. Create it with [NewRunner], then call Run once.
type Runner struct {
	cfg      RunnerConfig
	store    JobStore
	planner  *Planner
	launcher Launcher
	obs      RunnerObserver
	log      *slog.Logger

	nudge  chan struct{} // capacity 1: claim again
	clock  storeClock    // belongs to the loop
	ticked atomic.Int64  // unix nanoseconds of the last claim that the store answered
}

// NewRunner creates a runner. The observer and the logger may be nil.
func NewRunner(cfg RunnerConfig, store JobStore, planner *Planner, launcher Launcher, obs RunnerObserver, log *slog.Logger) (*Runner, error) {
	if cfg.Node == nil || store == nil || planner == nil || launcher == nil {
		return nil, errors.New("a cron runner needs a node, a store, a planner and a launcher")
	}
	if cfg.Tick <= 0 {
		cfg.Tick = DefaultTick
	}
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if obs == nil {
		obs = NopRunnerObserver{}
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{cfg: cfg, store: store, planner: planner, launcher: launcher, obs: obs, log: log, nudge: make(chan struct{}, 1)}
	r.ticked.Store(time.Now().UnixNano())
	return r, nil
}

// Nudge makes the loop claim immediately; a job that was just written may be due before the next
// tick. It does not block.
func (r *Runner) Nudge() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Age is the time since the store last answered a tick, and LastTick when that was.
func (r *Runner) Age() time.Duration { return time.Since(r.LastTick()) }

// LastTick is when the store last answered.
func (r *Runner) LastTick() time.Time { return time.Unix(0, r.ticked.Load()) }

// Run runs the loop until ctx is done. Runs that were claimed but not launched by then stay in the
// store as waiting messages.
func (r *Runner) Run(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-r.nudge:
		}
		t.Reset(r.tick(ctx))
	}
}

// tick claims until nothing is due, and returns how long to wait: until the next due time, and at
// most until the next whole tick of the store's clock.
func (r *Runner) tick(ctx context.Context) time.Duration {
	began := time.Now()
	claims, next, err := r.claimAll(ctx)
	r.obs.Ticked(time.Since(began), claims, err == nil)
	switch {
	case err != nil && ctx.Err() == nil:
		r.log.WarnContext(ctx, "cron could not claim what is due; trying again", "err", err)
	case err == nil:
		r.ticked.Store(time.Now().UnixNano())
	}
	now := r.clock.at(time.Now())
	wait := now.Truncate(r.cfg.Tick).Add(r.cfg.Tick).Sub(now) + rand.N(tickJitter) // spread, not secrecy
	if err == nil && !next.IsZero() {
		wait = min(wait, max(next.Sub(now), time.Millisecond))
	}
	return wait
}

// claimAll claims batches until one is empty, and returns when something becomes due; zero when
// nothing is planned.
func (r *Runner) claimAll(ctx context.Context) (claims int, next time.Time, err error) {
	for ctx.Err() == nil {
		node := r.cfg.Node()
		if node == "" {
			break
		}
		c, err := r.claim(ctx, ClaimParams{Node: node, Limit: r.cfg.Batch, Agents: r.cfg.Agents, Decide: r.planner.Decide})
		claims++
		if err != nil {
			return claims, time.Time{}, err
		}
		if len(c.Jobs)+len(c.Launched) > 0 {
			continue
		}
		if c.Passed > 0 || !c.Next.After(c.Now) && !c.Next.IsZero() {
			return claims, c.Now.Add(lockedRetry), nil
		}
		return claims, c.Next, r.giveUp(ctx, node)
	}
	return claims, time.Time{}, nil
}

// giveUp ends slots of agents that have been missing for too long.
func (r *Runner) giveUp(ctx context.Context, node string) error {
	if r.cfg.Given == nil {
		return nil
	}
	agents := r.cfg.Given()
	if len(agents) == 0 {
		return nil
	}
	_, err := r.claim(ctx, ClaimParams{Node: node, Limit: r.cfg.Batch, Agents: agents, Decide: r.planner.GiveUp})
	return err
}

// claim takes one batch and launches it.
func (r *Runner) claim(ctx context.Context, p ClaimParams) (Claimed, error) {
	within, cancel := context.WithTimeoutCause(ctx, claimTime, errors.New("claiming what is due took too long"))
	defer cancel()
	c, err := r.store.Claim(within, p)
	if err != nil {
		return c, err
	}
	r.clock.observe(c.Now, time.Now())
	for _, row := range c.Recorded {
		r.obs.Recorded(row.State, row.Reason, row.SlotCount)
		r.log.InfoContext(ctx, "slot recorded without a run", "run_id", row.ID, "job", row.JobName, "slots", row.SlotCount, "outcome", string(row.State), "reason", string(row.Reason))
	}
	r.launcher.Claimed(ctx, c)
	for _, l := range c.Launched {
		if l.Run.Attempt == 0 && l.Run.Trigger == TriggerSchedule {
			r.obs.Fired(l.Run.Trigger, max(0, r.clock.at(time.Now()).Sub(l.Run.FireAt)))
		}
		r.launcher.Launch(ctx, l)
	}
	return c, nil
}

// clockSamples is the number of results from which the difference of the clocks is estimated.
const clockSamples = 16

// storeClock estimates how the store's clock differs from the local one. Every result gives a
// bound: the store read its clock before the result arrived. The largest of the last bounds is the
// estimate. So the loop wakes late by at most the duration of one call, and one slow call does no
// harm. A loop that wakes early finds nothing due and waits again.
type storeClock struct {
	offsets [clockSamples]time.Duration
	n       int
}

// observe records that the store's clock showed now in a result that arrived at the local time at.
func (c *storeClock) observe(now, at time.Time) {
	c.offsets[c.n%clockSamples] = now.Sub(at)
	c.n++
}

// at is the time of the store's clock at a local time.
func (c *storeClock) at(local time.Time) time.Time {
	if c.n == 0 {
		return local
	}
	best := c.offsets[0]
	for _, o := range c.offsets[:min(c.n, clockSamples)] {
		best = max(best, o)
	}
	return local.Add(best)
}
