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
	// interval is the longest time between two claims; [Sender.Wake] shortens it.
	interval = time.Second
	// batch is how many rows are sent concurrently.
	batch = 64
	// flushTime is how long [Sender.Drain] still claims due rows; flushInterval is the time between two checks.
	flushTime     = time.Second
	flushInterval = 50 * time.Millisecond
	// claimTime bounds a claim. A connection that answers nothing must not end the sending; what the claim took is found by the next one.
	claimTime = 15 * time.Second
	// recordTime bounds recording the result of an abandoned attempt.
	recordTime = time.Second
)

// Store is the persistent side.
type Store interface {
	ClaimOutgoing(ctx context.Context, p store.ClaimOutgoingParams) ([]store.Outgoing, error)
	RecordProgress(ctx context.Context, nodeID, id, progress string) error
	Delivered(ctx context.Context, p store.DeliveredParams) (*store.ShownEntry, error)
	Undelivered(ctx context.Context, p store.UndeliveredParams) (store.Gone, error)
	OutboxCounts(ctx context.Context) (map[string]store.OutboxCount, error)
}

// Node is the incarnation of this process under which rows are claimed.
type Node interface {
	// Alive is the id of the current incarnation, or an error when none exists or its lease may have ended; nothing is then claimed or sent.
	Alive() (id string, err error)
	// Final makes a write that must not be lost: it is retried while the store is unavailable and this incarnation is alive.
	Final(ctx context.Context, what string, write func(context.Context) error) error
}

// Observer counts attempts.
type Observer interface {
	// Sent: one attempt ended. Channel is the name up to the first ':', result is delivered, retry, failed, gone, expired, stale (the claim had ended before
	// the request: nothing was sent), late (delivered, but another process may have taken the row and sends a duplicate) or maybe_sent. An attempt to send a
	// row that may have arrived before is also counted as resent.
	Sent(channel, kind, result string)
}

// Config configures a [Sender].
type Config struct {
	// Channels are the channels that send messages, by name. A row for another channel stays pending.
	Channels map[string]channel.Channel
	// Gone ends a row whose address no longer accepts messages, as Undelivered does; nil = Undelivered is used.
	Gone func(ctx context.Context, row store.Outgoing, p store.UndeliveredParams) error
	// Shown is called with an entry that a delivery has added to a conversation; nil = it is not published.
	Shown func(ctx context.Context, entry *store.ShownEntry)
}

// Sender sends the rows of the outbox. Create it with [New].
type Sender struct {
	cfg       Config
	names     []string // of the channels, sorted
	store     Store
	node      Node
	obs       Observer
	log       *slog.Logger
	cooldowns cooldowns
	rows      claimedRows
	wake      chan struct{} // capacity 1: claim again

	closing   chan struct{} // closed by Drain: nothing is claimed, and no request begins
	abandoned chan struct{} // closed by Drain: the requests in progress are abandoned
	ended     chan struct{} // closed when Run has returned
}

// New creates a sender. It does nothing before Run.
func New(cfg Config, st Store, node Node, obs Observer, log *slog.Logger) *Sender {
	return &Sender{
		cfg: cfg, names: slices.Sorted(maps.Keys(cfg.Channels)), store: st, node: node, obs: obs, log: log, wake: make(chan struct{}, 1),
		closing: make(chan struct{}), abandoned: make(chan struct{}), ended: make(chan struct{}),
	}
}

// Wake makes the loop claim immediately. It never blocks.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errClaimTime is the cause of a claim that took too long.
var errClaimTime = errors.New("the claim took too long")

// errAbandoned is the cause of an attempt that the end of the process interrupts.
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

// sendBatch claims due rows and starts sending them; true when more may be due.
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
		slots <- struct{}{} // this never blocks, because only this loop takes slots
		sends.Go(func() {
			defer func() { <-slots; s.Wake() }()
			s.rows.end(node, row.ID, s.attempt(work, node, row))
		})
	}
	return len(rows) == room
}

// claim takes due rows of the available channels, and a few of each channel that is probed. Rows that were claimed before an error are returned.
func (s *Sender) claim(ctx context.Context, node string, room int) ([]store.Outgoing, error) {
	serve, probes := s.cooldowns.split(s.names, s.down, time.Now())
	var rows []store.Outgoing
	take := func(names []string, limit int) error {
		if len(names) == 0 || limit <= 0 {
			return nil
		}
		p := store.ClaimOutgoingParams{Node: node, Channels: names, Limit: limit}
		p.Sending, p.Unrecorded = s.rows.of(node)
		ctx, cancel := context.WithTimeoutCause(ctx, claimTime, errClaimTime)
		defer cancel()
		more, err := s.store.ClaimOutgoing(ctx, p)
		if err == nil {
			s.rows.begin(p, more)
		}
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

// Drain ends the sending before this process leaves the table of nodes, because other processes may claim its rows afterwards. Due rows are still claimed, for
// at most a second. Then no request begins any more: waiting rows are returned, and another process continues after their last recorded part. Requests in
// progress have until ctx ends, but at least that second. The remaining ones are abandoned, and their rows end as maybe_sent. Run must be running. Call it
// once.
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

// flush returns when nothing is due on the channels of this process, or when ctx has ended.
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

// label is a channel's name without its account, suitable for a metric.
func label(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	return kind
}
