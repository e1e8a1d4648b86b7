package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/events"
	"laneway/internal/files"
	"laneway/internal/outbox"
	"laneway/internal/ownership"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// Defaults of a Config.
const (
	DefaultLease   = ownership.DefaultLease
	DefaultTimeout = 10 * time.Minute
	// maxTimeout is the ceiling of a turn that asked for no limit.
	maxTimeout = 24 * time.Hour
	// DefaultSweep is how often work without an owner is looked for.
	DefaultSweep = ownership.DefaultSweep
	// defaultGroup is how many turns of a group session run at once.
	defaultGroup = 3
)

// Store is what dispatch needs of the durable side.
type Store = store.Store

// Config of a Dispatcher. Zero values are defaults.
type Config struct {
	// Version and Addr are shown to other nodes and to people. BootID names this start of the process.
	Version, Addr, BootID string
	// Lease is how long this process counts as alive without a heartbeat; 0 = 15 s. Heartbeat is how often it is extended; 0 = a fifth.
	Lease, Heartbeat time.Duration
	// Sweep is how often unowned work is looked for; 0 = 1 s.
	Sweep time.Duration
	// Exclusive: no other process can use the store, so what earlier processes owned is free at once.
	Exclusive bool
	// Lanes that the scheduler has; empty = its defaults.
	Lanes []scheduler.Lane
	// Queue says how sessions of an agent behave on a channel (its name up to the first ':'; "" = none); kind is that of the session
	// key. nil = the scheduler's defaults, three turns at once in groups.
	Queue func(agent, channel, kind string) QueueRules
	// ThrottleAt is the share of the context window from which on a session runs one turn at a time; 0 = 0.6.
	ThrottleAt float64
	// UserTurns is how many turns a chat user, a hook or a credential that sees its own only has at once in this process, their jobs included,
	// see [scheduler.Config.PrincipalTurns]; 0 = no bound.
	UserTurns int
	// SeesOwn reports whether a principal is a credential that sees its own sessions and jobs only; nil = none is known besides
	// those that a [chat.Caller] says it of. It is asked for each message and must answer from memory.
	SeesOwn func(principal string) bool
	// Space returns an error while a disk has too little free space: new messages are refused then. It is asked for each message and
	// must answer from memory nearly always; nil = there is always enough.
	Space func() error
	// OwnWaiting is how many messages of one hook, or of one credential that sees its own only, may wait in this process; CallerWaiting of any other
	// credential. What is over it is refused with chat.CodeRateLimited. Jobs and chat users are not refused. 0 = no bound.
	OwnWaiting, CallerWaiting int
	// OwnSessions and CallerSessions are how many sessions the same may name, see [chat.SessionKey.Named]: more are refused with chat.CodeLimit.
	// 0 = no bound.
	OwnSessions, CallerSessions int
	// Agents, the default one first; at least one.
	Agents []Agent
	// Cron is what the operator decided about jobs.
	Cron CronConfig
	// Retention is how long messages that are over, and what was sent, are kept; 0 = for ever. At least as long as any sender repeats itself.
	Retention time.Duration
	// HostPayload runs payloads of kind command and script; nil = they are refused.
	HostPayload HostPayload
	// CronBody writes the body of a webhook about a finished run; nil = webhooks are not delivered.
	CronBody func(job cron.Job, run cron.Run) []byte
	// Files keeps what agents make for people; nil = agents can send text only.
	Files *files.Dir
	// StopGrace is how long a stopped turn may take to return before it is finished without it; 0 = 2 s.
	StopGrace time.Duration
}

// Agent is a runner under a name.
type Agent struct {
	Info   agent.Info
	Runner agent.Runner
	// ContextWindow in tokens; 0 = unknown: the history is cut to 24 000 tokens and the throttle is off.
	ContextWindow int
	// Timeout of a turn; 0 = 10 minutes.
	Timeout time.Duration
	// SystemPrompt goes before every conversation.
	SystemPrompt string
	// AtMostOnce: a turn whose process died is told to the person instead of run again.
	AtMostOnce bool
}

// Deps are the parts that the dispatcher brings together.
type Deps struct {
	Store    Store
	Commands *command.Table
	// Needs of the methods that the commands stand for, by name. [New] refuses a command whose method is not among them.
	Needs map[string]chat.Need
	// Channels send what is in the outbox.
	Channels []channel.Channel
	Observer Observer
	Lanes    scheduler.Observer
	Logger   *slog.Logger
}

// Dispatcher is the middle of the house. Make it with New.
type Dispatcher struct {
	cfg         Config
	store       Store
	commands    *command.Table
	needs       map[string]chat.Need
	sched       *scheduler.Scheduler[work]
	agents      map[string]Agent
	channels    map[string]channel.Channel
	obs         Observer
	log         *slog.Logger
	events      *events.Publisher
	running     runningTurns
	handover    handover
	starting    seqSet
	admissions  admissions
	namings     namings
	started     time.Time
	node        *ownership.Node
	queue       atomic.Pointer[func(agent, channel, kind string) QueueRules]
	outbox      *outbox.Sender
	refused     atomic.Int64 // messages that a full queue refused
	figures     atomic.Pointer[Figures]
	bursts      bursts
	jobs        cron.JobStore // nil = the store keeps no jobs
	planner     *cron.Planner
	cron        *cron.Runner
	cronEvents  events.Hub[cron.Event]
	budgetNotes budgetNotes
	small       sync.WaitGroup
	executing   executing
}

// work is what the scheduler holds for one message or for one recovered run: the inbox rows, the claim under which they were
// taken, and the log of what is published about the leading message.
type work struct {
	claim store.Claim
	rows  []store.Waiting
	log   *events.RunLog
}

// New makes a dispatcher. ctx is the work context: the parent of every turn, cancelled with a cause when running work has to be
// abandoned. Nothing runs before Run.
func New(ctx context.Context, cfg Config, deps Deps) (*Dispatcher, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		cfg: cfg, store: deps.Store, commands: deps.Commands, needs: deps.Needs, obs: deps.Observer, log: deps.Logger,
		agents: map[string]Agent{}, channels: map[string]channel.Channel{}, started: time.Now(),
	}
	if d.obs == nil {
		d.obs = NopObserver{}
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	for _, use := range d.commands.Uses() {
		if d.needs[use.Method].Scope == "" {
			return nil, fmt.Errorf("the command /%s %s stands for %q, which is no method of the gateway", use.Command, use.Verb, use.Method)
		}
	}
	for _, a := range cfg.Agents {
		d.agents[a.Info.ID] = a
	}
	for _, c := range deps.Channels {
		d.channels[c.Name()] = c
	}
	d.node = ownership.New(ownership.Config{
		Version: cfg.Version, Addr: cfg.Addr, Lease: cfg.Lease, Heartbeat: cfg.Heartbeat, Sweep: cfg.Sweep, Exclusive: cfg.Exclusive,
	}, d.store, owner{d}, d.obs, d.log)
	d.events = events.New(events.Config{
		DefaultAgent: cfg.Agents[0].Info.ID, Topics: events.Topics{topicCron: d.receiveCron},
	}, d.store, d.node, d.log)
	d.outbox = outbox.New(outbox.Config{Channels: d.channels, Gone: d.addressGone}, d.store, d.node, d.obs, d.log)
	if err := d.openCron(); err != nil {
		return nil, err
	}
	d.queue.Store(&cfg.Queue)
	d.sched, err = scheduler.New(ctx, scheduler.Config[work]{
		Lanes: cfg.Lanes, Run: d.runTurn, Begins: true, ThrottleAt: cfg.ThrottleAt, TokenEstimate: d.estimate,
		PrincipalTurns: cfg.UserTurns, StopGrace: cfg.StopGrace, OnStuck: d.stuck, Observer: deps.Lanes, Logger: d.log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the scheduler: %w", err)
	}
	return d, nil
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

// DefaultAgent is the id of the agent that answers when nobody else is named.
func (d *Dispatcher) DefaultAgent() string { return d.cfg.Agents[0].Info.ID }

// Agents lists the agents, the default one first.
func (d *Dispatcher) Agents() []agent.Info {
	infos := make([]agent.Info, 0, len(d.cfg.Agents))
	for _, a := range d.cfg.Agents {
		infos = append(infos, a.Info)
	}
	return infos
}

// Commands lists the chat commands.
func (d *Dispatcher) Commands() []chat.CommandInfo { return d.commands.Infos() }

// Subscribe calls fn for every event of this process until cancel is called, and for those of others that share the store and are about something
// durable: ends of runs and changes of sessions. Of those, one with a long text comes only while wanted answers true for it without that text.
// Neither may block; fn is never called after cancel has returned, unless it is running.
func (d *Dispatcher) Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func()) {
	return d.events.Subscribe(fn, wanted)
}

// InFlight is the oldest running turn of a session on this process.
func (d *Dispatcher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	return d.events.InFlight(key)
}
