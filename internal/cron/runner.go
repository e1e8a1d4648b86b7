package cron

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Defaults of a [RunnerConfig].
const (
	DefaultTick = time.Second
	// DefaultLookAhead is more than a tick with its jitter, so that every slot is claimed before its moment.
	DefaultLookAhead = 1250 * time.Millisecond
	DefaultBatch     = 1000

	// horizon is how far the loop looks for bursts, and the longest look-ahead.
	horizon = 10 * time.Second

	// tickJitter spreads the replicas.
	tickJitter = 50 * time.Millisecond
	// claimTime bounds one claim, withdrawTime the end of the loop.
	claimTime    = 30 * time.Second
	withdrawTime = 2 * time.Second
	// lockedAgain is when jobs are asked about again that another operation had locked: it takes a few milliseconds.
	lockedAgain = 20 * time.Millisecond
	// mostBatch is how far a batch grows when none of its jobs can be decided yet.
	mostBatch = 16_384
)

// RunnerConfig of a [Runner]. Zero values are defaults.
type RunnerConfig struct {
	// Tick is how often the store is asked what is due; LookAhead how far ahead; Batch how many jobs one claim takes.
	Tick, LookAhead time.Duration
	Batch           int
	// Node is the id under which runs are claimed; "" while this process may not claim anything. Required.
	Node func() string
}

// Launcher takes what a Runner has claimed. Its methods must not block.
type Launcher interface {
	// Launch submits a run to its lane. It is called at the moment of the fire.
	Launch(ctx context.Context, l Launched)
	// Claimed gets what a claim has written, before any of it is launched.
	Claimed(ctx context.Context, c Claimed)
}

// RunnerObserver counts what the loop does, for metrics. Its methods must not block.
type RunnerObserver interface {
	// Ticked: a tick has asked the store, with how long that took, how many claims it needed, and whether all went well.
	Ticked(took time.Duration, claims int, ok bool)
	// Fired: a run was launched this late after its moment; never negative.
	Fired(trigger Trigger, late time.Duration)
	// Recorded: a slot was noted without a run.
	Recorded(state RunState, reason Reason, slots int64)
	// Ended: a run that was started here is over for good; one that is tried again is not.
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

// Runner is the loop: it claims what is due and launches it on its moment. It keeps nothing that matters; it can die at any
// point and another one goes on from the store. Make it with [NewRunner], then call Run once.
type Runner struct {
	cfg      RunnerConfig
	store    JobStore
	planner  *Planner
	launcher Launcher
	obs      RunnerObserver
	log      *slog.Logger

	nudge  chan struct{} // capacity 1: look again
	clock  storeClock
	pace   pace
	starts starts
	claims claims
	ticked atomic.Int64 // unix nanoseconds of the last tick that the store answered
}

// NewRunner makes a runner. A nil observer or logger is none.
func NewRunner(cfg RunnerConfig, store JobStore, planner *Planner, launcher Launcher, obs RunnerObserver, log *slog.Logger) (*Runner, error) { //nolint:revive // a constructor with its dependencies
	if cfg.Node == nil || store == nil || planner == nil || launcher == nil {
		return nil, errors.New("a cron runner needs a node, a store, a planner and a launcher")
	}
	if cfg.Tick <= 0 {
		cfg.Tick = DefaultTick
	}
	if cfg.LookAhead <= 0 {
		cfg.LookAhead = DefaultLookAhead
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
	r.starts.wake = make(chan struct{}, 1)
	r.ticked.Store(time.Now().UnixNano())
	return r, nil
}

// Nudge makes the loop look at once; a job that was just written may be due before the next tick. It does not block.
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

// At does something when the store's clock shows t, in the goroutine that launches: do must not block. What is left when Run or Wait ends is not done.
func (r *Runner) At(t time.Time, do func(context.Context)) { r.starts.add(t, do) }

// Now is the store's clock, as far as its answers have shown.
func (r *Runner) Now() time.Time { return r.clock.now() }

// Wait calls the functions given to At until ctx is over, and claims nothing: half of Run, for a process where jobs do not fire.
func (r *Runner) Wait(ctx context.Context) error {
	r.starts.run(ctx, &r.clock)
	return nil
}

// Run runs the loop until ctx is over. What was claimed ahead by then is withdrawn, for the next process to claim; other runs that were not launched stay in
// the store as waiting messages.
func (r *Runner) Run(ctx context.Context) error {
	node := ""
	defer func() { r.withdrawAhead(ctx, node) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.starts.run(ctx, &r.clock)
	}()
	defer func() { <-done }()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-r.nudge:
		}
		if n := r.cfg.Node(); n != "" {
			node = n
		}
		t.Reset(r.tick(ctx))
	}
}

// withdrawAhead withdraws what was claimed ahead under the last id of this process. A process that takes over what is left starts it after the end of a lease,
// which is late.
func (r *Runner) withdrawAhead(ctx context.Context, node string) {
	if node == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), withdrawTime, errors.New("withdrawing what was claimed ahead took too long"))
	defer cancel()
	n, err := r.store.ReleaseClaims(ctx, node)
	if err != nil {
		r.log.WarnContext(ctx, "slots that were claimed ahead are not withdrawn; they start late", "err", err)
	}
	r.log.DebugContext(ctx, "slots that were claimed ahead are withdrawn", "slots", n)
}

// tick claims until nothing is due any more, and returns when to come again: at the next whole tick of the store's clock, or when a job
// that could not be decided yet has to be asked again.
func (r *Runner) tick(ctx context.Context) time.Duration {
	began := time.Now()
	claims, early, err := r.claimAll(ctx)
	r.obs.Ticked(time.Since(began), claims, err == nil)
	switch {
	case err != nil && ctx.Err() == nil:
		r.log.WarnContext(ctx, "cron could not ask what is due; trying again", "err", err)
	case err == nil:
		r.ticked.Store(time.Now().UnixNano())
	}
	now := r.clock.now()
	next := now.Truncate(r.cfg.Tick).Add(r.cfg.Tick).Sub(now) + rand.N(tickJitter) //nolint:gosec // spread, not secrecy
	if !early.IsZero() {
		next = min(next, max(early.Sub(now), time.Millisecond))
	}
	return next
}

// round is what one tick has claimed so far.
type round struct {
	ahead  time.Duration // how far it looks
	limit  int
	claims int
	early  time.Time // when a job has to be asked again
}

func (r *Runner) claimAll(ctx context.Context) (claims int, early time.Time, err error) {
	t := round{ahead: r.cfg.LookAhead, limit: r.cfg.Batch}
	for more := true; more && ctx.Err() == nil; {
		node := r.cfg.Node()
		if node == "" {
			break
		}
		if more, err = r.claim(ctx, node, &t); err != nil {
			break
		}
	}
	return t.claims, t.early, err
}

// goOn reports whether a tick has to claim again: because the claim was full, because one of its jobs has its next fire within the look-ahead, too, or
// because a burst is coming.
func (r *Runner) goOn(c Claimed, t *round) bool {
	if t.claims == 1 {
		if ahead := r.pace.ahead(c.Coming, r.cfg); ahead > t.ahead {
			t.ahead = ahead
			return true
		}
	}
	again := slices.ContainsFunc(c.Jobs, func(j Job) bool {
		return j.MayFire() && !j.State.NextRunAt.IsZero() && !j.State.NextRunAt.After(c.Now.Add(t.ahead))
	})
	if !c.More && !again {
		return false
	}
	if len(c.Jobs)+len(c.Launched) == 0 { // a whole batch of jobs that have to be asked again: look behind them
		t.limit *= 4
	}
	return t.limit <= mostBatch
}

// claim takes one batch, plans its launches, and reports whether to go on.
func (r *Runner) claim(ctx context.Context, node string, t *round) (more bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, claimTime, errors.New("claiming what is due took too long"))
	defer cancel()
	var early time.Time
	p := ClaimParams{
		Node: node, LookAhead: t.ahead, Limit: t.limit,
		Decide: func(now time.Time, due []DueJob) (list []Verdict) {
			list, early = r.planner.Decide(now, due)
			return list
		},
	}
	if t.claims == 0 {
		p.Horizon = horizon
	}
	began := time.Now()
	c, err := r.store.Claim(ctx, p)
	t.claims++
	if err != nil {
		return false, err
	}
	answered := time.Now()
	r.clock.observe(c.Now, answered)
	r.pace.learn(len(c.Jobs), answered.Sub(began))
	if again := c.Now.Add(lockedAgain); c.Passed > 0 && (early.IsZero() || again.Before(early)) {
		early = again
	}
	if t.early.IsZero() || (!early.IsZero() && early.Before(t.early)) {
		t.early = early
	}
	for _, row := range c.Recorded {
		r.obs.Recorded(row.State, row.Reason, row.SlotCount)
		r.log.InfoContext(ctx, "slot recorded without a run", "run_id", row.ID, "job", row.JobName, "slots", row.SlotCount, "outcome", string(row.State), "reason", string(row.Reason))
	}
	r.launcher.Claimed(ctx, c)
	for _, l := range c.Launched {
		at := startOf(l, c.Now)
		if at.After(c.Now) {
			r.claims.note(l)
		}
		r.At(at, func(ctx context.Context) { r.launch(ctx, l) })
	}
	return r.goOn(c, t), nil
}

// startOf is the moment to launch: the slot with its jitter, at once for what is late and for retries.
func startOf(l Launched, now time.Time) time.Time {
	if l.Run.FireAt.After(now) {
		return l.Run.FireAt
	}
	return now
}

func (r *Runner) launch(ctx context.Context, l Launched) {
	if !r.claims.take(l) {
		return
	}
	if l.Run.Attempt == 0 && l.Run.Trigger == TriggerSchedule {
		r.obs.Fired(l.Run.Trigger, max(0, time.Since(r.clock.local(l.Run.FireAt))))
	}
	r.launcher.Launch(ctx, l)
}
