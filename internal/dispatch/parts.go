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

// publisher publishes events of runs and sessions, see [events.Publisher].
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

// waker wakes the sender of the outbox, see [outbox.Sender].
type waker interface{ Wake() }

// parts has what every part of the dispatcher needs. It does not change after New.
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
	// bounded reports whether the concurrent turns of a principal, including those of their jobs, are limited: of chat users, hooks, and
	// credentials that see only their own data.
	bounded func(principal string) bool
	obs     Observer
	log     *slog.Logger
	// background is short work beside turns and calls; Run waits for it.
	background sync.WaitGroup
}

// work is the scheduler's data for one message or one recovered run: the inbox rows, the claim under which they were taken, their source,
// and the log of published events about the leading message.
type work struct {
	claim store.Claim
	rows  []store.Waiting
	from  source
	log   *events.RunLog
}

// source is the input of a turn's work and the destination of its end. It is chosen where work is created ([queue.fromInbox],
// [jobTurns.Launch]). Currently it is always the inbox; rows of the job ledger could be another source. The edge cases of the operations
// are those of [store.Inbox].
type source interface {
	// Start turns waiting work into a run, Join adds work to a running one.
	Start(ctx context.Context, p store.StartParams) (store.Started, error)
	Join(ctx context.Context, p store.StartParams) ([]int64, error)
	// Finish writes the end of a run. EndStopping records that the goroutine of a finished run has returned.
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
