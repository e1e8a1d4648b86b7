// Package outbox sends the outgoing messages of the store through their channels.
//
// # The stages of a row
//
// A claimed row goes through a fixed list of stages ([Sender.pipeline]): expire, transmit, confirm,
// reschedule. Each has one task, and ends the row's attempt or passes it to the next stage. Rows
// are claimed for the channels that are available now, at most one per chat, and are sent
// concurrently, so that a slow chat delays only itself.
//
// # Cooldowns
//
// The type [cooldowns] records for each channel until when nothing is claimed: because the provider
// requested a pause in every chat, or because the channel reports its provider as unreachable.
// Claiming rows of such a channel would only use up their attempts. An unreachable channel is
// probed with a few rows each minute; the channel itself checks its provider with calls that are
// safe to repeat.
//
// # Retries
//
// The next attempt of a row is a time in the row, not a waiting goroutine: it survives a restart.
// The channel decides whether an error is transient ([channel.SendError]); the wait follows the
// formula of package retry, or the request of the provider. Attempts that failed for reasons other
// than the message do not count; the message then ends by its age.
//
// # Crash points
//
// Before transmit: the row is claimed again when the node's lease has ended. Between transmit and
// confirm: the provider may have the message, the row is claimed again with MaybeSent and may
// arrive twice. This is the only place where people can notice at-least-once delivery. It concerns
// one request: a channel that sends a message in parts records each part ([channel.Claim]), and the
// next attempt continues after it.
//
// # A claim that ends
//
// A process that was suspended for longer than its lease still runs the code of its attempts.
// Immediately before each request, after any wait, the channel checks the claim with
// [channel.Claim]. Without the claim nothing is sent, and the row is returned if this process still
// owns it. At most one request per chat can already be on the wire.
//
// # Goroutines and the end
//
// [Sender.Run] owns the loop and one goroutine for each row that is being sent, at most [batch] of
// them; it returns when they have ended. [Sender.Drain] ends the sending while the process is still
// in the table of nodes: it claims due rows for a second, then prevents new requests, and waits for
// those in progress. Rows that are left at its deadline end as maybe_sent, because a repetition
// could duplicate them.
//
// # What it does not do
//
// It does not handle commands, turns and jobs. A row whose address no longer exists is passed to
// [Config.Gone], which pauses the delivery of its job.
package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/metrics"
	"laneway/internal/retry"
	"laneway/internal/store"
)

const (
	// interval is the longest time between two claims; [Sender.Wake] shortens it.
	interval = time.Second
	// batch is how many rows are sent concurrently.
	batch = 64
	// flushTime is how long [Sender.Drain] still claims due rows; flushInterval is the time between
	// two checks.
	flushTime     = time.Second
	flushInterval = 50 * time.Millisecond
	// claimTime bounds a claim. A connection that answers nothing must not end the sending; what
	// the claim took is found by the next one.
	claimTime = 15 * time.Second
	// recordTime bounds recording the result of an abandoned attempt.
	recordTime = time.Second
)

// Node is the incarnation of this process under which rows are claimed.
type Node interface {
	// Alive is the id of the current incarnation, or an error when none exists or its lease may
	// have ended; nothing is then claimed or sent.
	Alive() (id string, err error)
	// Final makes a write that must not be lost: it is retried while the store is unavailable and
	// this incarnation is alive.
	Final(ctx context.Context, what string, write func(context.Context) error) error
}

// counters are the metrics of a [Sender]. An attempt ends delivered, retry, failed, gone, expired,
// stale (the claim had ended before the request: nothing was sent), late (delivered, but another
// process may have taken the row and sends a duplicate) or maybe_sent. An attempt to send a row
// that may have arrived before is also counted as resent.
type counters struct{ attempts *prometheus.CounterVec }

func newCounters(r prometheus.Registerer, channels map[string]channel.Channel) *counters {
	c := &counters{metrics.In(r).Counters("outbox_sends_total", "Attempts to send a message, by result.", "channel", "kind", "result")}
	for name := range channels {
		for _, result := range []string{"delivered", "retry", "failed", "expired", "resent", "gone"} {
			c.attempts.WithLabelValues(chat.ChannelKind(name), store.KindReply, result)
		}
	}
	return c
}

func (c *counters) sent(channel, kind, result string) {
	c.attempts.WithLabelValues(channel, kind, result).Inc()
}

// Config configures a [Sender].
type Config struct {
	// Channels are the channels that send messages, by name. A row for another channel stays
	// pending.
	Channels map[string]channel.Channel
	// Metrics is where the sender registers its metrics; nil if nobody reads them.
	Metrics prometheus.Registerer
	// Gone ends a row whose address no longer accepts messages, as Undelivered does; nil =
	// Undelivered is used.
	Gone func(ctx context.Context, row store.Outgoing, p store.UndeliveredParams) (store.Gone, error)
	// Expired is called with a row that was not sent in time; nil = nothing is called.
	Expired func(ctx context.Context, row store.Outgoing)
	// Shown is called with an entry that a delivery has added to a conversation; nil = it is not
	// published.
	Shown func(ctx context.Context, entry *store.ShownEntry)
}

// Sender sends the rows of the outbox. Create it with [New].
type Sender struct {
	cfg       Config
	names     []string // of the channels, sorted
	store     store.Store
	node      Node
	counters  *counters
	log       *slog.Logger
	cooldowns cooldowns
	rows      claimedRows
	wake      chan struct{} // capacity 1: claim again

	closing   chan struct{} // closed by Drain: nothing is claimed, and no request begins
	abandoned chan struct{} // closed by Drain: the requests in progress are abandoned
	ended     chan struct{} // closed when Run has returned
}

// New creates a sender. It does nothing before Run.
func New(cfg Config, st store.Store, node Node, log *slog.Logger) *Sender {
	return &Sender{
		cfg: cfg, names: slices.Sorted(maps.Keys(cfg.Channels)), store: st, node: node, counters: newCounters(cfg.Metrics, cfg.Channels), log: log, wake: make(chan struct{}, 1),
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

// Run sends until ctx ends or [Sender.Drain] is called, and returns when every attempt has ended.
// The end of ctx abandons them.
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

// claim takes due rows of the available channels, and a few of each channel that is probed. Rows
// that were claimed before an error are returned.
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

// Drain ends the sending before this process leaves the table of nodes, because other processes may
// claim its rows afterwards. Due rows are still claimed, for at most a second. Then no request
// begins any more: waiting rows are returned, and another process continues after their last
// recorded part. Requests in progress have until ctx ends, but at least that second. The remaining
// ones are abandoned, and their rows end as maybe_sent. Run must be running. Call it once.
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

const (
	// sendTimeout bounds one attempt. A channel has shorter bounds of its own.
	sendTimeout = 60 * time.Second
	// fileTimeout bounds an attempt with a file: twice the time for the largest file at two
	// megabits a second.
	fileTimeout = 7 * time.Minute
)

// errSendTime is the cause of an attempt that took too long.
var errSendTime = errors.New("sending took too long")

// delivery is one attempt to send one row.
type delivery struct {
	node string
	row  store.Outgoing
	kind string // kind of the channel: the label of metrics and logs
	// claim is the right to send the row.
	claim *claim
	sent  chat.Sent
	err   error
	// abandoned: the shutdown of the process interrupted the attempt.
	abandoned bool
	// unrecorded: the result of the attempt could not be written.
	unrecorded bool
}

// stage does one step of an attempt; ended = the attempt has ended.
type stage func(ctx context.Context, d *delivery) (ended bool)

// pipeline is the order of the stages.
func (s *Sender) pipeline() []stage {
	return []stage{s.expire, s.transmit, s.confirm, s.reschedule}
}

// attempt makes one attempt to send a row and records its result; false when that failed.
func (s *Sender) attempt(ctx context.Context, node string, row store.Outgoing) (recorded bool) {
	mark := datePlanned(&row, time.Now())
	d := &delivery{node: node, row: row, kind: label(row.Target.Channel), claim: &claim{s: s, node: node, id: row.ID, mark: mark}}
	for _, run := range s.pipeline() {
		if run(ctx, d) {
			break
		}
	}
	return !d.unrecorded
}

// expire ends the attempt for a row that has expired. The store has ended it, unless a person may
// have seen a part of it.
func (s *Sender) expire(ctx context.Context, d *delivery) bool {
	if !d.row.Expired {
		return false
	}
	s.counters.sent(d.kind, d.row.Kind, "expired")
	s.log.WarnContext(ctx, "an outgoing message expired before it was sent", "outbox_id", d.row.ID, "channel", d.kind)
	if d.row.PartlySeen() {
		s.endExpired(ctx, d)
	}
	if s.cfg.Expired != nil {
		s.cfg.Expired(ctx, d.row)
	}
	return true
}

// endExpired ends an expired row of which a person may have seen a part.
func (s *Sender) endExpired(ctx context.Context, d *delivery) {
	p := store.UndeliveredParams{Node: d.node, ID: d.row.ID, Error: store.NotInTime, Permanent: true, Expired: true}
	p.Shown = s.seen(d, p)
	var done store.Gone
	s.record(ctx, d, "ending an expired message", func(ctx context.Context) (err error) {
		done, err = s.store.Undelivered(ctx, p)
		return err
	})
	s.publish(ctx, done.Entry)
}

// transmit passes the message to its channel.
func (s *Sender) transmit(ctx context.Context, d *delivery) bool {
	if d.row.MaybeSent {
		s.counters.sent(d.kind, d.row.Kind, "resent")
	}
	bounded, cancel := sendContext(ctx, d.row)
	defer cancel()
	d.sent, d.err = send(bounded, s.cfg.Channels[d.row.Target.Channel], reply(d.row), d.claim)
	d.abandoned = errors.Is(context.Cause(ctx), errAbandoned)
	return false
}

// confirm records a delivery.
func (s *Sender) confirm(ctx context.Context, d *delivery) bool {
	if d.err != nil {
		return false
	}
	s.cooldowns.delivered(d.row.Target.Channel, time.Now())
	s.counters.sent(d.kind, d.row.Kind, "delivered")
	var entry *store.ShownEntry
	p := store.DeliveredParams{Node: d.node, ID: d.row.ID, ProviderID: d.sent.ProviderID, Shown: s.shown(d, reply(d.row).Text, d.sent.At)}
	_, p.Parts = d.claim.arrived()
	p.Parts = append(p.Parts, d.sent.Parts...)
	fenced := s.record(ctx, d, "recording a delivery", func(ctx context.Context) (err error) {
		entry, err = s.store.Delivered(ctx, p)
		return err
	})
	s.publish(ctx, entry)
	if fenced {
		s.counters.sent(d.kind, d.row.Kind, "late")
	}
	return true
}

// reschedule records a failure: with the time of the next attempt, or as the end of the row.
func (s *Sender) reschedule(ctx context.Context, d *delivery) bool {
	name := d.row.Target.Channel
	p := undelivered(d.node, d.row, d.err, s.down(name))
	failed, _ := errors.AsType[*channel.SendError](d.err)
	if failed != nil && failed.Global {
		s.cooldowns.hold(name, time.Now().Add(p.RetryIn))
	}
	if d.abandoned && failed != nil {
		abandon(&p, failed)
	}
	p.Progress, p.Parts = d.claim.arrived()
	if p.Permanent {
		p.Shown = s.seen(d, p)
	}
	var done store.Gone
	result, write := "retry", func(ctx context.Context) (err error) {
		done, err = s.store.Undelivered(ctx, p)
		return err
	}
	switch {
	case failed != nil && failed.Gone && s.cfg.Gone != nil:
		result, write = "gone", func(ctx context.Context) (err error) {
			done, err = s.cfg.Gone(ctx, d.row, p)
			return err
		}
	case p.State() == store.OutMaybeSent:
		result = "maybe_sent"
	case p.Permanent:
		result = "failed"
	case failed != nil && failed.Reason == reasonStale:
		result = "stale"
	}
	s.counters.sent(d.kind, d.row.Kind, result)
	s.log.WarnContext(ctx, "a message was not delivered", "outbox_id", d.row.ID, "channel", d.kind, "attempt", d.row.Attempt,
		"permanent", p.Permanent, "reason", p.Error, "err", d.err)
	s.record(ctx, d, "recording a failed delivery", write)
	s.publish(ctx, done.Entry)
	return true
}

// shown is the entry of a row in the conversation where it has arrived, at its address unless at is
// set; nil when the row has no origin, nothing was seen, the conversation has the text already
// because it made the row, or the channel has no conversations of its own.
func (s *Sender) shown(d *delivery, text string, at chat.Target) *store.Shown {
	c, ok := s.cfg.Channels[d.row.Target.Channel].(channel.Converser)
	if !ok || d.row.Origin == nil || text == "" {
		return nil
	}
	if at.IsZero() {
		at = d.row.Target
	}
	key, principal, err := c.Conversation(at)
	if err != nil || key.String() == d.row.Origin.By {
		return nil
	}
	run := cmp.Or(d.row.RunID, d.row.ID)
	return &store.Shown{Session: key, Principal: principal, Entry: chat.TranscriptEntry{
		RunID: run, Role: chat.RoleAssistant, Text: text, StopReason: "stop", Origin: d.row.Origin, Outside: d.row.Origin.Outside,
	}}
}

// seen is [Sender.shown] for a row that ends without its delivery: the entry has what a person has
// seen of it, or may have.
func (s *Sender) seen(d *delivery, p store.UndeliveredParams) *store.Shown {
	c, ok := s.cfg.Channels[d.row.Target.Channel].(channel.Converser)
	if !ok {
		return nil
	}
	r := reply(d.row)
	if p.Progress != "" {
		r.Progress = strings.TrimPrefix(p.Progress, plannedMark)
	}
	text, at := "", chat.Target{}
	if r.Progress != "" {
		text, at = c.Arrived(r)
	}
	switch {
	case p.MaybeSent || d.row.MaybeSent:
		text = r.Text + "\n(may not have arrived)"
	case text != "":
		text += "\n(the rest was not delivered)"
	}
	return s.shown(d, text, at)
}

func (s *Sender) publish(ctx context.Context, entry *store.ShownEntry) {
	if entry != nil && s.cfg.Shown != nil {
		s.cfg.Shown(ctx, entry)
	}
}

// record writes the result of an attempt. A fenced write is not an error: the row now belongs to
// another node.
func (s *Sender) record(ctx context.Context, d *delivery, what string, write func(context.Context) error) (fenced bool) {
	err := s.node.Final(ctx, what, write)
	fenced = errors.Is(err, chat.ErrFenced)
	if err != nil && !fenced {
		d.unrecorded = true
		s.log.ErrorContext(ctx, "the result of an attempt to send was not recorded; the message may be sent again", "outbox_id", d.row.ID, "err", err)
	}
	return fenced
}

// sendContext bounds one attempt.
func sendContext(ctx context.Context, row store.Outgoing) (context.Context, context.CancelFunc) {
	if row.File != nil {
		return context.WithTimeoutCause(ctx, fileTimeout, errSendTime)
	}
	return context.WithTimeoutCause(ctx, sendTimeout, errSendTime)
}

// lateAfter is how late a message about one moment names its planned time.
const lateAfter = 5 * time.Minute

// plannedMark begins the progress of a row whose text names its planned time, so that a later
// attempt continues the same text.
const plannedMark = "planned\n"

// datePlanned lets the text of a row that is late begin with its planned time, see
// [chat.Origin].Once, and returns the mark of its progress.
func datePlanned(row *store.Outgoing, now time.Time) (mark string) {
	progress, marked := strings.CutPrefix(row.Progress, plannedMark)
	row.Progress = progress
	o := row.Origin
	if !marked && (progress != "" || !once(row) || row.Kind != store.KindReply || row.File != nil || now.Sub(o.Slot) <= lateAfter) {
		return ""
	}
	layout := "15:04"
	if now.In(o.Slot.Location()).Format(time.DateOnly) != o.Slot.Format(time.DateOnly) {
		layout = "Mon 2 Jan 15:04"
	}
	row.Text = "(planned " + o.Slot.Format(layout) + ") " + row.Text
	return plannedMark
}

// once reports whether a row is sent however late it is.
func once(row *store.Outgoing) bool { return row.Origin != nil && row.Origin.Once }

// reply is a row in the form that a channel sends.
func reply(row store.Outgoing) chat.Reply {
	return chat.Reply{
		ID: row.ID, RunID: runID(row), Target: row.Target, Principal: row.Principal, Kind: row.Kind, Text: row.Words(), Choice: row.Choice, File: row.File,
		Attempt: row.Attempt, Progress: row.Progress, Origin: row.Origin,
	}
}

// runID is the run of a reply. To URLs and the web all attempts of a run have one id, by which
// receivers recognise a repetition.
func runID(row store.Outgoing) string {
	if row.Target.Channel == channel.Webhook || row.Target.Channel == channel.Web {
		run, _, _ := strings.Cut(row.RunID, "/")
		return run
	}
	return row.RunID
}

// send passes a reply to a channel: a file as a file and a choice as buttons where the channel
// supports them, else as text.
func send(ctx context.Context, c channel.Channel, r chat.Reply, claim *claim) (chat.Sent, error) {
	if r.File != nil {
		if filer, ok := c.(channel.Filer); ok {
			return filer.SendFile(ctx, r, claim)
		}
		r.File = nil
	}
	if r.Choice == nil {
		return c.Send(ctx, r, claim)
	}
	if asker, ok := c.(channel.Asker); ok {
		return asker.Ask(ctx, r, claim)
	}
	r.Text, r.Choice = channel.InWords(r.Text, r.Choice), nil
	return c.Send(ctx, r, claim)
}
