package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/retry"
	"laneway/internal/store"
)

const (
	// interval is the longest time between two looks at the outbox; [Sender.Wake] shortens it.
	interval = time.Second
	// batch is how many rows are sent beside each other.
	batch = 64
	// flushInterval is the time between two looks while [Sender.Flush] waits.
	flushInterval = 50 * time.Millisecond
)

// Store is the durable side.
type Store interface {
	ClaimOutgoing(ctx context.Context, nodeID string, channels []string, limit int) ([]store.Outgoing, error)
	Delivered(ctx context.Context, nodeID, id, providerID string) error
	Undelivered(ctx context.Context, p store.UndeliveredParams) error
	OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error)
}

// Node is the incarnation of this process under which rows are claimed.
type Node interface {
	// Alive is the id of the current incarnation, or an error while there is none; nothing is claimed then.
	Alive() (id string, err error)
	// Final makes a write that must not be lost: it is repeated while the store does not answer and this incarnation lives.
	Final(ctx context.Context, what string, write func(context.Context) error) error
}

// Observer counts attempts.
type Observer interface {
	// Sent: one attempt ended. Channel is the name up to the first ':', result is delivered, retry, failed, gone, expired or resent.
	Sent(channel, kind, result string)
}

// Config of a [Sender].
type Config struct {
	// Channels by which messages are sent, by name. A row for another channel stays where it is.
	Channels map[string]channel.Channel
	// Gone ends a row whose address takes nothing any more, as Undelivered does; nil = nothing else is done.
	Gone func(ctx context.Context, row store.Outgoing, p store.UndeliveredParams) error
}

// Sender sends what is in the outbox. Make it with [New].
type Sender struct {
	cfg       Config
	names     []string // of the channels, sorted
	store     Store
	node      Node
	obs       Observer
	log       *slog.Logger
	cooldowns cooldowns
	wake      chan struct{} // capacity 1: look again
}

// New makes a sender; nothing happens before Run.
func New(cfg Config, st Store, node Node, obs Observer, log *slog.Logger) *Sender {
	return &Sender{
		cfg: cfg, names: slices.Sorted(maps.Keys(cfg.Channels)), store: st, node: node, obs: obs, log: log, wake: make(chan struct{}, 1),
	}
}

// Wake makes the loop look at once. It never blocks.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run sends until ctx is over and returns when every attempt has ended.
func (s *Sender) Run(ctx context.Context) {
	if len(s.cfg.Channels) == 0 {
		return
	}
	var sends sync.WaitGroup
	defer sends.Wait()
	slots := make(chan struct{}, batch)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(interval)
		case <-s.wake:
		}
		for s.sendBatch(ctx, &sends, slots) {
		}
	}
}

// sendBatch claims what is due and starts sending it; true when there may be more.
func (s *Sender) sendBatch(ctx context.Context, sends *sync.WaitGroup, slots chan struct{}) bool {
	room := cap(slots) - len(slots)
	node, err := s.node.Alive()
	if room == 0 || err != nil {
		return false
	}
	rows, err := s.claim(ctx, node, room)
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "reading the outbox failed; it is read again", "err", err)
	}
	for _, row := range rows {
		slots <- struct{}{} // there is room: only this loop takes places
		sends.Go(func() {
			defer func() { <-slots; s.Wake() }()
			s.attempt(ctx, node, row)
		})
	}
	return len(rows) == room
}

// claim takes due rows of the channels that may be sent to, and a few of each channel that is probed. Rows that were claimed before an error count.
func (s *Sender) claim(ctx context.Context, node string, room int) ([]store.Outgoing, error) {
	serve, probes := s.cooldowns.split(s.names, s.down, time.Now())
	var rows []store.Outgoing
	take := func(names []string, limit int) error {
		if len(names) == 0 || limit <= 0 {
			return nil
		}
		more, err := s.store.ClaimOutgoing(ctx, node, names, limit)
		rows = append(rows, more...)
		return err
	}
	err := take(serve, room)
	for _, name := range probes {
		if err == nil {
			err = take([]string{name}, min(probeRows, room-len(rows)))
		}
	}
	return rows, err
}

// down reports whether a channel reports its provider as unreachable.
func (s *Sender) down(name string) bool { return s.cfg.Channels[name].Status().Down }

// Flush returns when nothing is due any more on the channels of this process, or when ctx is over. Run has to be running.
func (s *Sender) Flush(ctx context.Context) {
	if len(s.cfg.Channels) == 0 {
		return
	}
	for {
		counts, err := s.store.OutboxCounts(ctx)
		if err != nil || !slices.ContainsFunc(s.names, func(name string) bool { return counts[name].Waiting > 0 }) {
			return
		}
		s.Wake()
		if retry.Sleep(ctx, flushInterval) != nil {
			return
		}
	}
}

// label is a channel's name without its account, fit for a metric.
func label(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	return kind
}
