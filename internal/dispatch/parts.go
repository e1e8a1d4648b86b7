package dispatch

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
	"laneway/internal/usage"
)

// node is the incarnation of this process, see [ownership.Node].
type node interface {
	ID() string
	Alive() (id string, err error)
	Draining() bool
	Hold() *store.Hold
	HasPeers() bool
	SweepAge() time.Duration
	SweepNow()
	Held(name string) (store.Lease, bool)
	Hint(node string)
	HintStop(node string)
	Final(ctx context.Context, what string, write func(context.Context) error) error
	WhileAlive(ctx context.Context, op func(context.Context) error) error
}

// publisher publishes what happens to runs and sessions, see [events.Publisher].
type publisher interface {
	Publish(e chat.Event) bool
	PublishSession(key chat.SessionKey, principal, reason, runID string)
	Send(topic string, e any, shorten func())
	Ended(e chat.RunEnd)
	Known(session chat.SessionKey, id string) bool
	Log(session chat.SessionKey, id string) *events.RunLog
	Start(info events.RunInfo) *events.Run
	Stop(r *events.Run)
	RunsOf(key chat.SessionKey, sender string) []string
	Wait(ctx context.Context, id string, read func(ctx context.Context, id string) (end chat.RunEnd, done bool, err error)) (chat.RunEnd, error)
}

// waker makes the sender of the outbox look at once, see [outbox.Sender].
type waker interface{ Wake() }

// parts is what every part of the dispatcher needs. It does not change after New.
type parts struct {
	cfg      Config
	store    Store
	node     node
	events   publisher
	outbox   waker
	jobs     jobService
	trees    *trees
	sched    *scheduler.Scheduler[work]
	agents   map[string]Agent
	channels map[string]channel.Channel
	meter    *usage.Meter
	// bounded reports whose turns at once are bounded, those of their jobs included: chat users, hooks, and credentials that see their own only.
	bounded func(principal string) bool
	obs     Observer
	log     *slog.Logger
	// background is short work beside turns and calls; Run waits for it.
	background sync.WaitGroup
}

// work is what the scheduler holds for one message or for one recovered run: the inbox rows, the claim under which they were
// taken, where it comes from, and the log of what is published about the leading message.
type work struct {
	claim store.Claim
	rows  []store.Waiting
	from  source
	log   *events.RunLog
}

// source is where the work of a turn comes from and what its end is written into. It is chosen where work is made ([queue.fromInbox], [jobTurns.Launch]), and
// a turn takes it from its work. Today it is always the inbox; rows of the ledger of jobs can be another one. The edge cases of the operations are those of
// [store.Inbox].
type source interface {
	// Start turns waiting work into a run, Join adds work to a run that runs.
	Start(ctx context.Context, p store.StartParams) (store.Started, error)
	Join(ctx context.Context, p store.StartParams) ([]int64, error)
	// Finish writes the end of a run. EndStopping writes that the goroutine of a run that was finished before has returned.
	Finish(ctx context.Context, p store.FinishParams) (store.Finished, error)
	EndStopping(ctx context.Context, c store.Claim, runID string) error
}

func (p *parts) channelNames() []string {
	names := make([]string, 0, len(p.channels))
	for name := range p.channels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
