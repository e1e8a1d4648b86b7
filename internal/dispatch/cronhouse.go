package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

// CronConfig is what the operator decided about jobs. Zero values are defaults.
type CronConfig struct {
	// Fires: this process claims what is due. Jobs are kept and shown all the same; Enabled says whether they fire anywhere.
	Fires, Enabled bool
	// Rules of schedules: the least interval and the default zone. UserMinInterval is the least for chat users and agents.
	Rules           schedule.Rules
	UserMinInterval time.Duration
	// MaxJobs in all and MaxJobsOfUser of one chat user or agent; 0 = no bound, negative = none are allowed.
	MaxJobs, MaxJobsOfUser int
	// MaxRunsPerDay of one chat user or agent; 0 = no bound.
	MaxRunsPerDay int
	// Payloads are the kinds that may run on this host: command, script.
	Payloads []cron.PayloadKind
	// CheckWebhook refuses a URL that can be seen to lead where nothing may be sent; nil = only its form is checked.
	CheckWebhook func(url string) error
	// Retention and RetentionRuns are how long and how many ledger rows of a job are kept; 0 = no bound.
	Retention     time.Duration
	RetentionRuns int
	Observer      cron.RunnerObserver // nil = nobody is told
}

// openCron makes the cron half when the store has one.
func (d *Dispatcher) openCron() error {
	jobs, ok := d.store.(cron.JobStore)
	if !ok {
		return nil
	}
	d.jobs = announcing{jobs, d}
	if d.cfg.Cron.Observer == nil {
		d.cfg.Cron.Observer = cron.NopRunnerObserver{}
	}
	d.planner = cron.NewPlanner(schedule.NewCompiler(0), d.answersTo,
		d.cfg.Cron.MaxRunsPerDay, func(owner string) bool { return !OperatorOwner(owner) })
	var err error
	d.cron, err = cron.NewRunner(cron.RunnerConfig{Node: d.claimant}, d.jobs, d.planner, house{d}, d.cfg.Cron.Observer, d.log)
	if err != nil {
		return fmt.Errorf("making the cron runner: %w", err)
	}
	return nil
}

// claimant is the id under which runs are claimed, "" while this process takes nothing on.
func (d *Dispatcher) claimant() string {
	id, err := d.node.Alive()
	if err != nil || d.node.Draining() {
		return ""
	}
	return id
}

// RunCron turns the cron loop until ctx is over. A process without the role only waits for the moments of runs that it took over. It is stopped
// before Drain is called, so that nothing is claimed that this process would not run.
func (d *Dispatcher) RunCron(ctx context.Context) error {
	switch {
	case d.cron == nil:
		<-ctx.Done()
		return nil
	case !d.cfg.Cron.Fires || !d.cfg.Cron.Enabled:
		return d.cron.Wait(ctx)
	}
	d.keepMaintenance(ctx)
	return d.cron.Run(ctx)
}

// NudgeCron makes the loop look at once. Whoever writes jobs past this process may call it; it does not block.
func (d *Dispatcher) NudgeCron() {
	if d.cron != nil {
		d.cron.Nudge()
	}
}

// house is what the cron loop sees of the dispatcher.
type house struct{ d *Dispatcher }

// Launch hands a claimed run to its lane. A run in a session of another process is found by its owner.
func (h house) Launch(ctx context.Context, l cron.Launched) {
	d := h.d
	if !l.Mine {
		d.node.Hint(l.Owner)
		return
	}
	claim := store.Claim{Session: l.Message.Session, Node: l.Owner, Epoch: l.Epoch}
	acc := store.Accepted{Seq: l.Seq, AcceptedAt: l.Run.ClaimedAt, Owner: l.Owner, Epoch: l.Epoch, Mine: true, Principal: l.Message.Principal, Behind: l.Behind}
	d.queue.submitNew(ctx, l.Message, acc, claim)
}

// Claimed stops what made room, and tells people of slots that were skipped.
func (h house) Claimed(ctx context.Context, c cron.Claimed) {
	for _, end := range c.Cancelled {
		h.d.stopRun(end, joinBy(string(cron.ReasonReplaced), cron.Channel))
	}
	byID := map[string]cron.Job{}
	for _, j := range c.Jobs {
		byID[j.ID] = j
	}
	skipped := map[string][]cron.Run{}
	for _, r := range c.Recorded {
		if r.State == cron.RunSkipped && (r.Reason == cron.ReasonOverlap || r.Reason == cron.ReasonBudget || r.Reason == cron.ReasonBufferFull) {
			skipped[r.JobID] = append(skipped[r.JobID], r)
		}
	}
	for id, runs := range skipped {
		if told := h.d.skipNote(byID[id], runs); told != cron.TellNothing { // the loop does not wait for the note
			h.d.small.Go(func() { h.d.alert(context.WithoutCancel(ctx), byID[id], runs[len(runs)-1], told) })
		}
	}
}

// skipNote is what people are to hear about slots of a job that were just skipped.
func (d *Dispatcher) skipNote(job cron.Job, runs []cron.Run) cron.Told {
	byBudget := slices.ContainsFunc(runs, func(r cron.Run) bool { return r.Reason == cron.ReasonBudget })
	switch {
	case byBudget && !job.Alert.Off && d.budgetNotes.first(job.Owner, time.Now()):
		return cron.TellBudget
	case job.Skipping(len(runs)):
		return cron.TellSkipping
	default:
		return cron.TellNothing
	}
}

// budgetNotes remembers who was told that the runs of the day are used up: once in as much time as the budget is for, whichever job it is.
type budgetNotes struct {
	mu   sync.Mutex
	told map[string]time.Time
}

const budgetTime = 24 * time.Hour

// first reports whether the owner has not been told for a day, and takes note that they are now.
func (b *budgetNotes) first(owner string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.told, func(_ string, at time.Time) bool { return now.Sub(at) >= budgetTime })
	if _, known := b.told[owner]; known {
		return false
	}
	if b.told == nil {
		b.told = map[string]time.Time{}
	}
	b.told[owner] = now
	return true
}

// cronStarted tells watchers that the first attempt of a run has begun.
func (d *Dispatcher) cronStarted(ctx context.Context, t *turn) {
	if t.cron == nil || t.cron.attempt > 1 || t.started.Attempt > 1 {
		return
	}
	job, err := d.jobOfTurn(ctx, t.cron)
	if err != nil {
		d.log.WarnContext(ctx, "a run began and cannot be read; no event is sent", "run_id", t.cron.runID, "err", err)
		return
	}
	_, _, slot, err := cron.ParseRunID(t.cron.runID)
	if err != nil {
		return
	}
	d.tellCron(cron.Event{Action: cron.ActionStarted, Job: job, Run: &cron.Run{
		ID: t.cron.runID, JobID: job.ID, JobName: job.Name, Owner: job.Owner, Agent: job.Agent, Lane: t.run.Lane, Trigger: t.cron.trigger,
		ScheduledFor: slot, State: cron.RunRunning, StartedAt: t.started.StartedAt, Attempt: 1, SlotCount: 1, SessionKey: t.run.Session.String(),
	}})
}

// jobOfTurn is the job of a run that begins: of a job that is gone, because an earlier run has removed it, what the run says.
func (d *Dispatcher) jobOfTurn(ctx context.Context, c *cronTurn) (cron.Job, error) {
	if job := d.readJob(ctx, c); job != nil {
		return *job, nil
	}
	run, err := d.jobs.Run(ctx, c.runID, "")
	return jobOf(run), err
}

// HostPayload gives the runner of a job that runs a program, with what goes to its standard input.
type HostPayload func(job cron.Job) (agent.Runner, string, error)
