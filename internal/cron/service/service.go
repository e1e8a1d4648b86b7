// Package service is the job service: it manages jobs, starts their runs, and decides about the
// consequences of the end of a run.
//
// Package cron has the vocabulary, the decisions and the loop; package store has the rows. This
// package connects both with the process, through [Deps].
//
// # Ideas
//
// A run of a job is a message: the store creates its row in the transaction of its ledger row,
// [Turns].Launch submits it to its lane, and a turn executes it like every other message. [Service]
// has one part for each idea:
//
//   - [Editor] reads, adds, changes, pauses and removes jobs. It decides within the transaction of
//     the store, and compares revisions with what it read before.
//   - [Runs] starts runs by hand, backfills past slots, cancels, and lists the ledger.
//   - [Attempt] is the run from the view of its turn: the start and the end in the ledger, the work
//     that needs no agent, and the state of the run after it. Turns use it through an interface of
//     their own.
//   - [Delivery] decides where answers and alerts go, and pauses the delivery to an address that no
//     longer accepts messages.
//   - [Events] publishes events about jobs, in this process and to other replicas.
//   - maintenance implements the built-in jobs, which delete old data.
//   - launcher receives the claims of the loop of package cron.
//
// # Access to the store
//
// The parts use the store through publishingStore, which publishes the runs that an operation has
// ended, so that callers need not. Functions that run within an operation of the store are pure:
// their input is read before the operation.
//
// # Crash points
//
// The service has no durable state in memory. A launched run is a message, which another process
// can take over. The end of an attempt, the next state of its job and the outgoing rows are one
// transaction, see [Attempt.End]; events and alerts follow it. An alert is a row of the outbox: a
// process that dies between the end of a run and its alert loses the alert, except the one about a
// missing address, which is written with the pause of the delivery.
//
// # Goroutines and the end
//
// [Service.Run] owns the loop; it returns when its context ends. Alerts about skipped slots are
// sent on goroutines that [Deps].Go starts and its owner waits for. Everything else runs on the
// goroutine of its caller.
package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/metrics"
	"laneway/internal/store"
)

// Config is the operator's configuration of jobs. Zero values are defaults.
type Config struct {
	// Fires: this process claims due jobs. Without it, jobs are still stored and listed; Enabled
	// reports whether they fire in any process.
	Fires, Enabled bool
	// Rules of schedules: the minimum interval and the default zone. UserMinInterval is the minimum
	// for callers without the scope operator.admin.
	Rules           schedule.Rules
	UserMinInterval time.Duration
	// MaxJobs in total, and MaxJobsOfUser of one owner when a caller without the scope
	// operator.admin creates one more; 0 = no bound, negative forbids it.
	MaxJobs, MaxJobsOfUser int
	// MaxRunsPerDay of one chat user or agent; 0 = no bound.
	MaxRunsPerDay int
	// OverBudget reports whether today's budget of tokens or money prevents a job from running. It
	// is called within a claim and must not do I/O; nil = no budgets.
	OverBudget func(job cron.Job) bool
	// Payloads are the kinds that may run on this host: command, script.
	Payloads []cron.PayloadKind
	// HostPayload returns the runner of such a payload; nil = they are refused.
	HostPayload HostPayload
	// CheckWebhook refuses URLs to which sending is not allowed; nil checks only their form.
	CheckWebhook func(url string) error
	// WebhookBody encodes the body of a webhook about a finished run; nil = webhooks are not
	// delivered.
	WebhookBody func(job cron.Job, run cron.Run) []byte
	// Retention and RetentionRuns are how long and how many ledger rows of a job are kept; 0 = no
	// bound.
	Retention     time.Duration
	RetentionRuns int
	// MessageRetention is how long ended messages and their outgoing messages are kept; 0 =
	// forever. It must be at least the longest delay after which a sender repeats a message.
	MessageRetention time.Duration
	// RollUp makes the table of contents of the conversations at a level, with the agent of this
	// name; nil = off. It returns a report.
	RollUp      func(ctx context.Context, level store.TocLevel, by agent.Summariser) (report string, err error)
	RollUpAgent string
	Metrics     prometheus.Registerer // where the service registers its metrics; nil if nobody reads them
	Observer    cron.RunnerObserver   // nil = the metrics
}

// HostPayload returns the runner of a job that runs a program, and its standard input.
type HostPayload func(job cron.Job) (runner agent.Runner, input string, err error)

// Deps are the dependencies of the service in its process. All are required, except SweepFiles.
type Deps struct {
	Store store.Store
	Node  Node
	Turns Turns
	// Admit takes n places among the waiting messages of a caller, or refuses all
	// (chat.CodeRateLimited). leave returns them. If no message of the caller waits, n may exceed
	// the bound.
	Admit func(ctx context.Context, principal string, own bool, n int) (leave func(), err error)
	// MayUse refuses a session that the principal may not use (chat.CodeSessionNotFound).
	MayUse func(ctx context.Context, key chat.SessionKey, principal string) error
	// Send sends a cluster event to the other replicas. e points to plain data; shorten shortens it
	// when it is too long to be sent.
	Send func(topic string, e any, shorten func())
	// Wake wakes the outbox when a row is due.
	Wake func()
	// SweepFiles sweeps the attachment directory, see [files.Dir.Sweep]; nil when agents make no
	// files.
	SweepFiles func(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error)
	Log        *slog.Logger
	// Go runs short work outside of the loop; its owner waits for it.
	Go func(work func())
	// Agents are the agents of this process; it does not claim jobs of others. The first one is
	// used for jobs that name none, and for the built-in ones.
	Agents []string
	// Given is as in [cron.RunnerConfig].
	Given func() []string
	// Channels are the names of the configured channels, sorted.
	Channels []string
}

// shared is the state that every part of the service needs. It does not change after New.
type shared struct {
	cfg    Config
	store  store.Store
	node   Node
	turns  Turns
	admit  func(ctx context.Context, principal string, own bool, n int) (leave func(), err error)
	mayUse func(ctx context.Context, key chat.SessionKey, principal string) error
	send   func(topic string, e any, shorten func())
	wake   func()
	sweep  func(ctx context.Context, now, before time.Time, inUse func(context.Context) ([]string, error)) (int, error)
	log    *slog.Logger

	background func(work func())
	agents     []string // the default one first
	channels   []string

	accounts *accounts
	jobs     cron.JobStore // the jobs of store; it also publishes the runs that each operation has ended
	planner  *cron.Planner
	events   *Events
}

// Service is the job service. Create it with [New].
type Service struct {
	*shared

	// Its parts, see the package comment. Callers of jobs need three of them at once.
	*Editor
	*Runs
	*Events

	Delivery *Delivery

	attempts    *attempts
	maintenance *maintenance
	loop        *cron.Runner
}

// New creates a service. The loop starts with [Service.Run]; runs can be started and read before.
func New(cfg Config, deps Deps) (*Service, error) {
	if cfg.Observer == nil {
		cfg.Observer = newCounters(cfg.Metrics)
	}
	p := &shared{
		cfg: cfg, store: deps.Store, node: deps.Node, turns: deps.Turns, admit: deps.Admit, mayUse: deps.MayUse, send: deps.Send, wake: deps.Wake,
		sweep: deps.SweepFiles, log: deps.Log, background: deps.Go, agents: deps.Agents, channels: deps.Channels,
	}
	s := &Service{shared: p, Events: &Events{shared: p}}
	p.events = s.Events
	p.accounts = &accounts{store: deps.Store}
	s.Delivery = &Delivery{shared: p}
	p.jobs = publishingStore{p.store, p.events, p.accounts, s.Delivery.taken}
	compiler := schedule.NewCompiler(0)
	p.planner = cron.NewPlanner(compiler, cron.PlannerConfig{
		Target: s.Delivery.replyTarget, PerDay: cfg.MaxRunsPerDay, Bounded: boundedOwner, OverBudget: cfg.OverBudget,
	})
	s.Editor = &Editor{shared: p, delivery: s.Delivery}
	s.Runs = &Runs{shared: p}
	s.maintenance = &maintenance{shared: p, release: compiler.Release()}
	s.attempts = &attempts{shared: p, delivery: s.Delivery, maintenance: s.maintenance}
	var err error
	s.loop, err = cron.NewRunner(cron.RunnerConfig{Node: p.claimant, Agents: deps.Agents, Given: deps.Given}, p.jobs, p.planner, &launcher{shared: p, delivery: s.Delivery}, cfg.Observer, p.log)
	if err != nil {
		return nil, fmt.Errorf("making the cron runner: %w", err)
	}
	s.Editor.nudge, s.Runs.nudge, s.maintenance.nudge = s.loop.Nudge, s.loop.Nudge, s.loop.Nudge
	return s, nil
}

// boundedOwner reports whether an owner of jobs is a chat user or a hook, whose daily runs are
// bounded. Credentials of the gateway are not.
func boundedOwner(owner string) bool { return chat.Caller{Principal: owner}.InChat() }

// claimant is the id under which runs are claimed, "" while this process must not claim.
func (p *shared) claimant() string {
	id, err := p.node.Alive()
	if err != nil || p.node.Draining() {
		return ""
	}
	return id
}

// Run runs the loop that claims due jobs until ctx is done. It does nothing in a process where jobs
// do not fire. It must end before the turns are drained, so that no run is claimed that this
// process would not execute.
func (s *Service) Run(ctx context.Context) error {
	if !s.firesHere() {
		<-ctx.Done()
		return nil
	}
	s.maintenance.addBuiltIn(ctx)
	var planning sync.WaitGroup
	planning.Go(func() { s.maintenance.followZones(ctx) })
	defer planning.Wait()
	return s.loop.Run(ctx)
}

func (s *Service) firesHere() bool { return s.cfg.Fires && s.cfg.Enabled }

// Nudge makes the loop claim immediately: a job that another part of the process has written may be
// due. It does not block.
func (s *Service) Nudge() { s.loop.Nudge() }

// Age is the time since the store last answered the loop; -1 where jobs do not fire.
func (s *Service) Age() time.Duration {
	if !s.firesHere() {
		return -1
	}
	return s.loop.Age()
}

// Ticked is when the store last answered the loop; running reports whether the loop claims jobs in
// this process.
func (s *Service) Ticked() (last time.Time, running bool) { return s.loop.LastTick(), s.firesHere() }

// Clock is the store's time and the name of the default zone of schedules.
func (s *Service) Clock(ctx context.Context) (now time.Time, zone string, err error) {
	zone = s.cfg.Rules.DefaultTZ
	zone = cmp.Or(zone, "UTC")
	now, err = s.store.Now(ctx)
	return now, zone, err
}

// countTime bounds Counts.
const countTime = time.Second

// Counts counts the jobs that a caller sees, for status pages; values that cannot be read are zero.
// enabled reports whether jobs fire in any process. It takes at most a second.
func (s *Service) Counts(ctx context.Context, by chat.Caller) (sum cron.Summary, enabled bool) {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	sum, err := s.jobs.Summary(ctx, visible(by))
	if err != nil {
		s.log.WarnContext(ctx, "the jobs cannot be counted", "err", err)
		sum = cron.Summary{OldestDue: -1}
	}
	return sum, s.cfg.Enabled
}

// visible is the owner whose jobs a caller sees; "" = every owner.
func visible(by chat.Caller) string {
	if by.Own {
		return by.Principal
	}
	return ""
}

// hasWebhooks reports whether this process sends webhooks about runs.
func (p *shared) hasWebhooks() bool {
	return p.cfg.WebhookBody != nil && slices.Contains(p.channels, webhookChannel)
}

// Node is this process as an owner of sessions.
type Node interface {
	// Alive returns the id of the incarnation, or why it must not accept work. Draining reports
	// whether the process is shutting down.
	Alive() (id string, err error)
	Draining() bool
	// Final makes a write that must not be lost when its caller has gone away; what names it in
	// errors.
	Final(ctx context.Context, what string, write func(context.Context) error) error
	// WhileAlive retries an operation while the store is unavailable and ctx lasts.
	WhileAlive(ctx context.Context, op func(context.Context) error) error
}

// Turns executes the runs of jobs. Its methods do not block.
type Turns interface {
	// Launch submits a claimed run to its lane, or wakes the process that owns its session.
	Launch(ctx context.Context, l cron.Launched)
	// Stop cancels a run that was cancelled in the store: it drops a waiting one, and stops a
	// running one, here or in the process that runs it. cause is the result of [store.StopCause].
	Stop(run cron.CancelledRun, cause string)
	// Lanes are the names of the lanes.
	Lanes() []string
}

// newCounters registers the metrics of the loop.
func newCounters(r prometheus.Registerer) counters {
	in := metrics.In(r)
	o := counters{
		late:     in.Histogram("cron_start_lag_seconds", "Time from the scheduled time of a run to its start.", metrics.WaitBuckets()),
		claim:    in.Histogram("cron_tick_seconds", "Duration of one check for due jobs.", metrics.WaitBuckets()),
		recorded: in.Counters("cron_slots_not_run_total", "Scheduled times that did not run, by reason.", "state", "reason"),
		ended:    in.Counters("cron_runs_total", "Runs of jobs that ended, by trigger and outcome.", "trigger", "outcome"),
		failed:   in.Counter("cron_tick_failures_total", "Checks for due jobs that failed."),
	}
	for _, trigger := range []cron.Trigger{cron.TriggerSchedule, cron.TriggerManual, cron.TriggerCatchup, cron.TriggerBackfill} {
		for _, state := range []cron.RunState{cron.RunOK, cron.RunError, cron.RunCancelled, cron.RunInterrupted} {
			o.ended.WithLabelValues(string(trigger), string(state))
		}
	}
	for state, reasons := range map[cron.RunState][]cron.Reason{
		cron.RunSkipped: {cron.ReasonOverlap, cron.ReasonBudget, cron.ReasonPaused, cron.ReasonBufferFull},
		cron.RunMissed:  {cron.ReasonWindow, cron.ReasonPolicy, cron.ReasonMaxCatchup, cron.ReasonNoAgent},
	} {
		for _, reason := range reasons {
			o.recorded.WithLabelValues(string(state), string(reason))
		}
	}
	return o
}

// counters are the metrics of the loop and of attempts.
type counters struct {
	late, claim prometheus.Histogram
	recorded    *prometheus.CounterVec
	ended       *prometheus.CounterVec
	failed      prometheus.Counter
}

// Ticked implements cron.RunnerObserver.
func (o counters) Ticked(took time.Duration, _ int, ok bool) {
	o.claim.Observe(took.Seconds())
	if !ok {
		o.failed.Inc()
	}
}

// Fired implements cron.RunnerObserver.
func (o counters) Fired(_ cron.Trigger, late time.Duration) { o.late.Observe(late.Seconds()) }

// Recorded implements cron.RunnerObserver.
func (o counters) Recorded(state cron.RunState, reason cron.Reason, slots int64) {
	o.recorded.WithLabelValues(string(state), string(reason)).Add(float64(slots))
}

// Ended implements cron.RunnerObserver.
func (o counters) Ended(trigger cron.Trigger, state cron.RunState) {
	o.ended.WithLabelValues(string(trigger.Kind()), string(state)).Inc()
}
