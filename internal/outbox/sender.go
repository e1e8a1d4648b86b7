package outbox

import (
	"context"
	"errors"
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
	// flushTime is how long [Sender.Drain] still claims what is due; flushInterval is the time between two looks at it.
	flushTime     = time.Second
	flushInterval = 50 * time.Millisecond
	// recordTime is how long an abandoned attempt may take to be recorded.
	recordTime = time.Second
)

// Store is the durable side.
type Store interface {
	ClaimOutgoing(ctx context.Context, nodeID string, channels []string, limit int) ([]store.Outgoing, error)
	RecordProgress(ctx context.Context, nodeID, id, progress string) error
	Delivered(ctx context.Context, nodeID, id, providerID string) error
	Undelivered(ctx context.Context, p store.UndeliveredParams) (store.Gone, error)
	OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error)
}

// Node is the incarnation of this process under which rows are claimed.
type Node interface {
	// Alive is the id of the current incarnation, or an error while there is none or its lease may have ended; nothing is claimed or sent then.
	Alive() (id string, err error)
	// Final makes a write that must not be lost: it is repeated while the store does not answer and this incarnation lives.
	Final(ctx context.Context, what string, write func(context.Context) error) error
}

// Observer counts attempts.
type Observer interface {
	// Sent: one attempt ended. Channel is the name up to the first ':', result is delivered, retry, failed, gone, expired, stale (the claim had ended
	// before the request: nothing was sent), late (delivered, but another process may have taken the row: what it sends is a duplicate) or
	// maybe_sent. An attempt at a row that may have arrived before is counted once more, as resent.
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

	closing   chan struct{} // closed by Drain: nothing is claimed, and no request begins
	abandoned chan struct{} // closed by Drain: the requests under way are given up
	ended     chan struct{} // closed when Run has returned
}

// New makes a sender; nothing happens before Run.
func New(cfg Config, st Store, node Node, obs Observer, log *slog.Logger) *Sender {
	return &Sender{
		cfg: cfg, names: slices.Sorted(maps.Keys(cfg.Channels)), store: st, node: node, obs: obs, log: log, wake: make(chan struct{}, 1),
		closing: make(chan struct{}), abandoned: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Wake makes the loop look at once. It never blocks.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errAbandoned is the cause of an attempt that the end of the process has ended.
var errAbandoned = errors.New("the process ends")

// Run sends until ctx ends or [Sender.Drain] is called, and returns when every attempt has ended. The end of ctx abandons them.
func (s *Sender) Run(ctx context.Context) {
	defer close(s.ended)
	if len(s.cfg.Channels) == 0 {
		return
	}
	work, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	var sends sync.WaitGroup
	s.loop(ctx, work, &sends)
	done := make(chan struct{})
	go func() { // ends with this function
		defer close(done)
		sends.Wait()
	}()
	select {
	case <-done:
	case <-s.abandoned:
	case <-ctx.Done():
	}
	abandon(errAbandoned)
	<-done
}

// loop claims until ctx ends or Drain is called. work is the context of the attempts.
func (s *Sender) loop(ctx, work context.Context, sends *sync.WaitGroup) {
	slots := make(chan struct{}, batch)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		case <-tick.C:
			tick.Reset(interval)
		case <-s.wake:
		}
		for s.sendBatch(ctx, work, sends, slots) {
		}
	}
}

// sendBatch claims what is due and starts sending it; true when there may be more.
func (s *Sender) sendBatch(ctx, work context.Context, sends *sync.WaitGroup, slots chan struct{}) bool {
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
			s.attempt(work, node, row)
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

// Drain ends the sending before this process leaves the table of nodes, because others may claim its rows from then on. What is due is still claimed, for
// at most a second. Then no request begins any more: what waits is given back, and another process continues after its last recorded part. Requests under
// way have until ctx ends, at least that second. Those that are left are abandoned, and their rows end as maybe_sent. Run has to be running.
// Call it once.
func (s *Sender) Drain(ctx context.Context) {
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	s.flush(flush)
	close(s.closing)
	select {
	case <-s.ended:
		return
	case <-flush.Done():
	}
	select {
	case <-s.ended:
		return
	case <-ctx.Done():
	}
	close(s.abandoned)
	t := time.NewTimer(recordTime)
	defer t.Stop()
	select {
	case <-s.ended:
	case <-t.C:
		s.log.WarnContext(ctx, "results of attempts to send are not recorded yet; their messages may be sent again")
	}
}

// flush returns when nothing is due any more on the channels of this process, or when ctx has ended.
func (s *Sender) flush(ctx context.Context) {
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
