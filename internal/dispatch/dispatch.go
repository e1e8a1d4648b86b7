// Package dispatch connects the parts of the gateway: a message becomes a command or a turn, and a
// turn receives its history, its agent and its reply.
//
// # The path of a message
//
// [Dispatcher.Receive] executes a command at once, or makes the message durable (Store.Accept) and
// submits it to the scheduler when this process owns the session. The scheduler calls back with a
// turn. The turn is started in the store (fence first), the agent runs, its events are published,
// and Store.Finish writes outcome, transcript and outgoing messages in one transaction. No accepted
// message is kept only in memory: the store's row is the message, and the scheduler's item is a
// plan to run it.
//
// # Responsibilities
//
// The store decides what is accepted, dropped and stopped; its answer is authoritative. The
// scheduler decides when a turn runs. The two can race, for example when a message is dropped in
// the store while it is being started. Store.Start then decides: a message that has an outcome does
// not run.
//
// # The parts
//
// [Dispatcher] is the API. Each concept has its own type, listed in the order of the path of a
// message:
//
//   - receiver checks a message and makes it durable; admission and access limit who may do that;
//   - commands records, executes, answers and completes chat commands;
//   - queue submits messages to the scheduler in their order and writes the outcome of those that
//     never become a turn;
//   - turns starts a turn in the store, runs its agent and writes its end; [source] has the inputs
//     and outputs of a turn, and [attempt] is the attempt of a job's run that it executes;
//   - questions asks people for permission for what agents do: it makes the tool calls that they
//     allow, and wakes the turns that wait for an answer;
//   - trees are the sub-turns of turns: how they start, what they inherit, how a parent waits, what
//     is announced, what ends with a parent;
//   - stops stops, resets and deletes; signs shows people that their message waits or is being
//     answered;
//   - jobTurns executes the runs of the job service (package cron/service).
//
// Parts that others call themselves are fields of [Dispatcher]: the gateway gets them from the
// process, not through methods here.
//
// # Ownership
//
// Package ownership decides which sessions this process may run: it keeps the lease, sweeps, and
// forwards stop requests. [takeover] does the rest: unfinished messages of a session are submitted
// to the scheduler again, and a lost lease cancels every turn with cause lease lost.
//
// # Goroutines and shutdown
//
// [Dispatcher.Run] owns the loops and returns when they have ended. Turns run on goroutines of the
// scheduler. Short work beside a turn or a call (typing, the write of a stop) is counted and
// awaited. The order of the shutdown is: [Dispatcher.Drain] (refuse new work, end previews, let
// turns finish, cancel the rest, stop sending), the channels, [Dispatcher.Leave] (the table of
// nodes), the context of Run.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/service"
	"laneway/internal/events"
	"laneway/internal/files"
	"laneway/internal/outbox"
	"laneway/internal/ownership"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/tool"
	"laneway/internal/usage"
)

// Defaults of a Config.
const (
	DefaultLease   = ownership.DefaultLease
	DefaultTimeout = 10 * time.Minute
	// maxTimeout is the limit of a turn that requested no limit.
	maxTimeout = 24 * time.Hour
	// DefaultSweep is the default interval of the search for unowned work.
	DefaultSweep = ownership.DefaultSweep
	// defaultGroup is the default number of concurrent turns of a group session.
	defaultGroup = 3
)

// Store is the durable storage that dispatch needs: messages, jobs, usage and pairings.
type Store interface {
	store.Store
	usage.Store
	channel.Records
}

// Config of a Dispatcher. Zero values are defaults.
type Config struct {
	// Version and Addr are shown to other nodes and to people. BootID names this start of the
	// process.
	Version, Addr, BootID string
	// Lease is how long this process counts as alive without a heartbeat; 0 = 15 s. Heartbeat is
	// how often it is extended; 0 = a fifth.
	Lease, Heartbeat time.Duration
	// Sweep is the interval of the search for unowned work; 0 = 1 s.
	Sweep time.Duration
	// Exclusive: no other process can use the store, so sessions of earlier processes can be taken
	// over at once.
	Exclusive bool
	// Lanes of the scheduler; empty = its defaults.
	Lanes []scheduler.Lane
	// Queue returns the queue rules for sessions of an agent on a channel (its name up to the first
	// ':', or ""); kind is the kind of the session key. nil = the scheduler's defaults, three
	// concurrent turns in groups.
	Queue func(agent, channel, kind string) scheduler.Settings
	// ThrottleAt is the share of the context window above which a session runs one turn at a time;
	// 0 = 0.6.
	ThrottleAt float64
	// UserTurns is how many turns a chat user, a hook or a credential that sees only its own data
	// runs concurrently in this process, including those of their jobs, see
	// [scheduler.Config.PrincipalTurns]; 0 = no limit.
	UserTurns int
	// SeesOwn reports whether a principal is a credential that sees only its own sessions and jobs;
	// nil = only those that a [chat.Caller] marks. It is called for each message and must not
	// block.
	SeesOwn func(principal string) bool
	// Space returns an error while a disk has too little free space, so that new messages are
	// refused. It is called for each message and must normally not block; nil = there is always
	// enough.
	Space func() error
	// OwnWaiting is how many messages of one hook, or of one credential that sees only its own
	// data, may wait in this process; CallerWaiting is the same for any other credential. More are
	// refused with chat.CodeRateLimited. Jobs and chat users are not refused. 0 = no limit.
	OwnWaiting, CallerWaiting int
	// OwnSessions and CallerSessions are how many sessions the same callers may name, see
	// [chat.SessionKey.Named]. More are refused with chat.CodeLimit. 0 = no limit.
	OwnSessions, CallerSessions int
	// AgentWait is how long messages wait for an agent that no live process has, before they fail;
	// 0 = without limit.
	AgentWait time.Duration
	// Agents, the default one first; at least one.
	Agents []Agent
	// Cron has the operator's settings of jobs, and of what the built-in jobs remove.
	Cron service.Config
	// Usage has prices and budgets. When its zone or log is not set, those of
	// [service.Config.Rules] and [Deps] are used.
	Usage usage.Config
	// Access lets the programs of turns call their tools; nil = they have no access.
	Access ToolAccess
	// External are the tools of other servers, which agents name ([Tools.Servers]); may be nil.
	External tool.External
	// Names are the sessions that the configuration names, by the principals that write into them:
	// hooks.
	Names map[string]chat.SessionKey
	// Files stores what agents make for people; nil = agents can send only text.
	Files *files.Dir
	// KeptFiles are the bytes of files of answers that are kept for one principal, see
	// [files.Dir.Keep]; 0 = no limit.
	KeptFiles int64
	// StopGrace is how long a stopped turn may take to return before its end is written without it;
	// 0 = 2 s.
	StopGrace time.Duration
}

// Agent is a runner with a name.
type Agent struct {
	Info   agent.Info
	Runner agent.Runner
	// ContextWindow in tokens; 0 = unknown: the history is cut to 24 000 tokens and the throttle is
	// off.
	ContextWindow int
	// Gauge estimates how its model counts tokens; nil = the built-in estimate.
	Gauge *agent.Gauge
	// Compacts: the older part of its conversations is summarised when they fill the context
	// window.
	Compacts bool
	// Timeout of a turn; 0 = 10 minutes.
	Timeout time.Duration
	// SystemPrompt precedes every conversation.
	SystemPrompt string
	// AtMostOnce: the person gets a notice about a turn whose process died; it is not run again.
	AtMostOnce bool
	// Tools of the gateway that it may call.
	Tools Tools
	// EstimateUsage: the usage of requests that the runner does not report is estimated, on the
	// high side.
	EstimateUsage bool
	// Dirs are the working directories from which a conversation may choose one, the first is the
	// default; empty = its runner has no directories.
	Dirs []string
	// Outside is when its turns count as having read text from outside, besides what the gateway
	// gives them.
	Outside Outside
	// Program: its runner starts a program, which calls the tools over MCP. Kept: the program runs
	// for all turns of its session.
	Program, Kept bool
}

// Outside is what of an agent counts as text from outside. The zero value is nothing.
type Outside struct {
	// Always: each of its turns, from the beginning. Reads: what its runner reports, see
	// [agent.Request.Outside]. Answers: its answers, for the turns that wait for them, because the
	// gateway does not see what it has read.
	Always, Reads, Answers bool
}

// Deps are the dependencies of the dispatcher.
type Deps struct {
	Store    Store
	Commands *command.Table
	// Needs of the methods that correspond to commands, by name. [New] refuses a command whose
	// method is not among them.
	Needs map[string]chat.Need
	// Channels send the messages of the outbox.
	Channels []channel.Channel
	// Metrics is where the parts register their metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
	Logger  *slog.Logger
}

// Dispatcher is the API of the package: it has one part for each concept and delegates calls to it.
// Create it with New.
type Dispatcher struct {
	*parts
	conversations
	openQuestions
	health

	// Jobs is the job service, Meter counts what agents use, Pairings are the people in channels,
	// Uploads the files of clients; nil without [Config.Files].
	Jobs     *service.Service
	Meter    *usage.Meter
	Pairings *Pairings
	Uploads  *Uploads

	owner     *ownership.Node // node of parts, for the life cycle of the process only
	sender    *outbox.Sender
	publisher *events.Publisher
	receiver  *receiver
	commands  *commands
	admission *admission
	access    *access
	queue     *queue
	turns     *turns
	questions *questions
	stops     *stops
	signs     *signs
	gauges    *gauges
}

// New returns a dispatcher. ctx is the work context: the parent of every turn, cancelled with a
// cause when running work has to be abandoned. Nothing runs before Run.
func New(ctx context.Context, cfg Config, deps Deps) (*Dispatcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &parts{
		cfg: cfg, store: deps.Store, log: deps.Logger, agents: map[string]Agent{}, channels: map[string]channel.Channel{},
	}
	p.bounded = func(principal string) bool {
		return !OperatorOwner(principal) || (cfg.SeesOwn != nil && cfg.SeesOwn(principal))
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, a := range cfg.Agents {
		p.agents[a.Info.ID] = a
	}
	for _, c := range deps.Channels {
		p.channels[c.Name()] = c
	}
	p.counters = newCounters(deps.Metrics, cfg.Lanes, p.channelNames(), deps.Commands)
	d := &Dispatcher{parts: p}
	d.health = health{parts: p, started: time.Now(), figures: &figures{parts: p, warned: map[string]bool{}, since: map[string]time.Time{}}}
	if err := d.connect(ctx, deps); err != nil {
		return nil, err
	}
	d.registerGauges(deps.Metrics)
	return d, nil
}

// connect creates the parts and connects them.
func (d *Dispatcher) connect(ctx context.Context, deps Deps) error {
	p, cfg := d.parts, d.cfg
	d.signs = &signs{parts: p}
	d.queue = &queue{parts: p, signs: d.signs}
	d.queue.rules.Store(&cfg.Queue)
	d.gauges = &gauges{parts: p, saved: map[store.TokenRatio]int{}}
	d.questions = &questions{parts: p, outside: newOutsideCalls(), waiting: map[string]waiter{}, inHand: map[string]bool{}}
	d.conversations, d.openQuestions = conversations{p, d.queue, d.questions}, openQuestions{d.questions}
	d.turns = &turns{parts: p, queue: d.queue, signs: d.signs, questions: d.questions, compactions: newCompactions()}
	d.admission = &admission{parts: p}
	d.access = &access{parts: p}
	d.stops = &stops{parts: p, queue: d.queue, access: d.access}
	p.trees = &trees{parts: p, queue: d.queue, stops: d.stops, wake: make(chan struct{}, 1)}
	d.commands = &commands{parts: p, table: deps.Commands, needs: deps.Needs, queue: d.queue, access: d.access, actions: actions{d}}
	d.receiver = &receiver{parts: p, queue: d.queue, admission: d.admission, access: d.access, commands: d.commands}
	d.health.receiver, d.health.admission = d.receiver, d.admission
	d.turns.accept = d.receiver.acceptOwn
	if err := d.commands.checkNeeds(); err != nil {
		return err
	}
	d.figures.has = takeover{d.queue, &d.turns.running}
	d.owner = ownership.New(ownership.Config{
		Version: cfg.Version, Addr: cfg.Addr, Lease: cfg.Lease, Heartbeat: cfg.Heartbeat, Sweep: cfg.Sweep, Agents: d.agentIDs(), Given: d.figures.given, Fires: cfg.Cron.Fires, Exclusive: cfg.Exclusive,
		Metrics: deps.Metrics,
	}, p.store, d.figures.has, p.log)
	d.publisher = events.New(events.Config{
		DefaultAgent: d.DefaultAgent(), End: p.endEvent, Topics: events.Topics{
			service.Topic: func(ctx context.Context, text string) { d.Jobs.Events.Receive(ctx, text) }, topicAnswer: d.questions.receive,
		},
	}, p.store, d.owner, p.log)
	d.publisher.Subscribe(d.endAgentSession, func(chat.Event) bool { return false })
	d.sender = outbox.New(outbox.Config{Channels: p.channels, Gone: func(ctx context.Context, o store.Outgoing, u store.UndeliveredParams) (store.Gone, error) {
		return d.Jobs.Delivery.AddressGone(ctx, o, u)
	}, Expired: func(ctx context.Context, o store.Outgoing) { d.Jobs.Delivery.Expired(ctx, o) }, Shown: d.shown, Metrics: deps.Metrics}, p.store, d.owner, p.log)
	var err error
	if d.Meter, err = p.newMeter(deps.Metrics); err != nil {
		return err
	}
	p.meter = d.Meter
	p.cfg.Cron.OverBudget, p.cfg.Cron.Metrics = func(j cron.Job) bool { return d.Meter.Over(j.Owner, j.ID) }, deps.Metrics
	d.Pairings = NewPairings(p.store, d.sender.Wake, p.log)
	p.node, p.events, p.outbox = d.owner, d.publisher, d.sender
	d.turns.outputs = &outputs{dir: cfg.Files, kept: cfg.KeptFiles, log: p.log}
	d.turns.spending = &spending{meter: p.meter, store: p.store, node: p.node, outbox: p.outbox, log: p.log}
	p.sched, err = scheduler.New(ctx, scheduler.Config{
		Lanes: cfg.Lanes, Run: d.turns.run, ThrottleAt: cfg.ThrottleAt, TokenEstimate: d.turns.estimate,
		PrincipalTurns: cfg.UserTurns, StopGrace: cfg.StopGrace, OnStuck: d.turns.stuck, Observer: newLaneCounters(deps.Metrics, cfg.Lanes), Logger: p.log,
	})
	if err != nil {
		return fmt.Errorf("making the scheduler: %w", err)
	}
	return d.connectJobs()
}

// connectJobs creates the job service, and the tools of turns, some of which edit jobs.
func (d *Dispatcher) connectJobs() error {
	p := d.parts
	deps := service.Deps{
		Store: p.store, Node: p.node, Turns: jobTurns{p, d.queue}, Admit: d.admission.admit, MayUse: d.access.mayUse, Send: p.events.Send, Wake: p.outbox.Wake,
		Log: p.log, Go: p.background.Go, Agents: d.agentIDs(), Given: d.figures.given, Channels: p.channelNames(),
	}
	if p.cfg.Files != nil {
		deps.SweepFiles = p.cfg.Files.Sweep
		d.Uploads = NewUploads(p.cfg.Files, d.admission.diskFault, p.store.FilesInUse)
	}
	var err error
	if d.Jobs, err = service.New(p.cfg.Cron, deps); err != nil {
		return fmt.Errorf("making the job service: %w", err)
	}
	p.jobs = d.Jobs
	d.turns.tools = tool.New(tool.Deps{Jobs: actions{d}, Editor: d.Jobs, Sessions: toolSessions{d}, Questions: d.questions, External: p.cfg.External, Log: p.log})
	d.questions.tools = d.turns.tools
	d.turns.clocks = clocks{tools: d.turns.tools, log: p.log}
	return nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Queue == nil {
		c.Queue = defaultQueue
	}
	if len(c.Agents) == 0 {
		return c, errors.New("no agent is configured")
	}
	for _, a := range c.Agents {
		if !chat.ValidAgentID(a.Info.ID) || a.Runner == nil {
			return c, fmt.Errorf("agent %q has no valid id or no runner", a.Info.ID)
		}
	}
	return c, nil
}

// parts has what every part of the dispatcher needs. It does not change after New.
type parts struct {
	cfg      Config
	store    Store
	node     *ownership.Node
	events   *events.Publisher
	outbox   *outbox.Sender
	jobs     *service.Service
	trees    *trees
	sched    *scheduler.Scheduler
	agents   map[string]Agent
	channels map[string]channel.Channel
	meter    *usage.Meter
	// bounded reports whether the concurrent turns of a principal, including those of their jobs,
	// are limited: of chat users, hooks, and credentials that see only their own data.
	bounded  func(principal string) bool
	counters *counters
	log      *slog.Logger
	// background is short work beside turns and calls; Run waits for it.
	background sync.WaitGroup
}

func (p *parts) channelNames() []string {
	names := make([]string, 0, len(p.channels))
	for name := range p.channels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// newID returns a UUIDv7: sortable by time, and unique without the store.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
