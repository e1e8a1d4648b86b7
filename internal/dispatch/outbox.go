package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
)

const (
	outboxEvery = time.Second
	outboxBatch = 64
	// sendTimeout bounds one attempt. A channel has shorter bounds of its own.
	sendTimeout = 60 * time.Second
	// fileTimeout is the bound for a file: the largest at two megabits a second, twice.
	fileTimeout = 7 * time.Minute
	// maxBackoff between two attempts that the channel gave no time for.
	maxBackoff = 5 * time.Minute
	// maxAttempts ends a message that a provider never takes.
	maxAttempts = 50
	// maxAge ends a message that was never at fault: an answer of yesterday is none any more. One that was never tried gets its attempt.
	maxAge = 24 * time.Hour
	// outagePause is the time between two attempts, plus or minus a quarter, while it is the provider that is out of reach.
	outagePause = 3 * time.Second
)

// outboxLoop sends what is in the outbox: claimed rows run beside each other, one per chat, so that a slow chat delays itself.
func (d *Dispatcher) outboxLoop(ctx context.Context) {
	if len(d.channels) == 0 {
		return
	}
	var sends sync.WaitGroup
	defer sends.Wait()
	slots := make(chan struct{}, outboxBatch)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(outboxEvery)
		case <-d.outboxNow:
		}
		for d.sendBatch(ctx, &sends, slots) {
		}
	}
}

// sendBatch claims what is due and starts sending it; true when there may be more.
func (d *Dispatcher) sendBatch(ctx context.Context, sends *sync.WaitGroup, slots chan struct{}) bool {
	room := cap(slots) - len(slots)
	me, err := d.alive()
	if room == 0 || err != nil {
		return false
	}
	names, probes := d.outages.split(d.silent.without(d.channelNames(), time.Now()), d.down, time.Now())
	rows, err := d.claimOutgoing(ctx, me.id, names, room)
	for _, name := range probes {
		if n := min(probeRows, room-len(rows)); err == nil && n > 0 {
			var probe []store.Outgoing
			probe, err = d.claimOutgoing(ctx, me.id, []string{name}, n)
			rows = append(rows, probe...)
		}
	}
	if err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "reading the outbox failed; trying again", "err", err)
	}
	for _, row := range rows {
		slots <- struct{}{} // there is room: only this loop takes places
		sends.Go(func() {
			defer func() { <-slots; wake(d.outboxNow) }()
			d.send(ctx, me.id, row)
		})
	}
	return len(rows) == room
}

func (d *Dispatcher) claimOutgoing(ctx context.Context, node string, channels []string, limit int) ([]store.Outgoing, error) {
	if len(channels) == 0 {
		return nil, nil
	}
	return d.store.ClaimOutgoing(ctx, node, channels, limit)
}

func (d *Dispatcher) channelNames() []string {
	names := make([]string, 0, len(d.channels))
	for name := range d.channels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// send makes one attempt and writes down how it went.
func (d *Dispatcher) send(ctx context.Context, node string, o store.Outgoing) {
	kind := channelKind(o.Target.Channel)
	if o.Expired {
		d.obs.Sent(kind, o.Kind, "expired")
		d.log.WarnContext(ctx, "an outgoing message came too late and was not sent", "outbox_id", o.ID, "channel", kind)
		return
	}
	if o.MaybeSent {
		d.obs.Sent(kind, o.Kind, "resent")
	}
	c := d.channels[o.Target.Channel]
	sendCtx, cancel := sending(ctx, o)
	defer cancel()
	sent, err := hand(sendCtx, c, chat.Reply{
		ID: o.ID, RunID: runOf(o), Target: o.Target, Principal: o.Principal, Kind: o.Kind, Text: outText(o), Choice: o.Choice, File: o.File, Attempt: o.Attempt,
	})
	if err == nil {
		d.outages.over(o.Target.Channel, time.Now())
		d.obs.Sent(kind, o.Kind, "delivered")
		d.note(ctx, o, d.final(ctx, "noting a delivery", func(ctx context.Context) error {
			return d.store.Delivered(ctx, node, o.ID, sent.ProviderID)
		}))
		return
	}
	p := undelivered(node, o, err, d.down(o.Target.Channel))
	if se, ok := errors.AsType[*channel.SendError](err); ok && se.Global {
		d.silent.keep(o.Target.Channel, time.Now().Add(p.RetryIn))
	}
	result, write := "retry", func(ctx context.Context) error { return d.store.Undelivered(ctx, p) }
	switch {
	case isGone(err):
		result, write = "gone", func(ctx context.Context) error { return d.addressGone(ctx, o, p) }
	case p.Permanent:
		result = "failed"
	}
	d.obs.Sent(kind, o.Kind, result)
	d.log.WarnContext(ctx, "a message was not delivered", "outbox_id", o.ID, "channel", kind, "attempt", o.Attempt, "permanent", p.Permanent, "reason", p.Error, "err", err)
	d.note(ctx, o, d.final(ctx, "noting a failed delivery", write))
}

// errSendTime is the cause of an attempt that was given up.
var errSendTime = errors.New("sending took too long")

// sending is the context of one attempt. A text goes out even while the process ends, because that takes moments. A file can take minutes: it is broken
// off then, and the next process sends it.
func sending(ctx context.Context, o store.Outgoing) (context.Context, context.CancelFunc) {
	if o.File != nil {
		return context.WithTimeoutCause(ctx, fileTimeout, errSendTime)
	}
	return context.WithTimeoutCause(context.WithoutCancel(ctx), sendTimeout, errSendTime)
}

// hand gives a reply to its channel: a file as such where files can be shown, a choice as buttons where there are some, else in words.
func hand(ctx context.Context, c channel.Channel, r chat.Reply) (chat.Sent, error) {
	if r.File != nil {
		if filer, ok := c.(channel.Filer); ok {
			return filer.SendFile(ctx, r)
		}
		r.File = nil
	}
	if r.Choice == nil {
		return c.Send(ctx, r)
	}
	if asker, ok := c.(channel.Asker); ok {
		return asker.Ask(ctx, r)
	}
	r.Text, r.Choice = inWords(r.Text, r.Choice), nil
	return c.Send(ctx, r)
}

// inWords is a text with its choice for those who have no buttons.
func inWords(text string, choice *chat.Choice) string {
	if choice == nil || choice.Typed == "" {
		return text
	}
	return text + "\n\n" + choice.Typed
}

// runOf is the run that a reply belongs to. To a URL and to the web a cron run has one id, whichever of its attempts has the answer.
func runOf(o store.Outgoing) string {
	if o.Target.Channel == webhookRoute || o.Target.Channel == webRoute {
		run, _, _ := strings.Cut(o.RunID, "/")
		return run
	}
	return o.RunID
}

func (d *Dispatcher) note(ctx context.Context, o store.Outgoing, err error) {
	if err != nil && !errors.Is(err, chat.ErrFenced) {
		d.log.ErrorContext(ctx, "how a message was sent could not be noted; it may be sent again", "outbox_id", o.ID, "err", err)
	}
}

// undelivered is what a failed attempt means for the row; down says that the whole channel is out of reach.
func undelivered(node string, o store.Outgoing, err error, down bool) store.UndeliveredParams {
	p := store.UndeliveredParams{Node: node, ID: o.ID, Error: chat.Cut(err.Error(), 500), RetryIn: backoff(o.Attempt)}
	se, ok := errors.AsType[*channel.SendError](err)
	if !ok {
		p.Permanent = o.Attempt >= maxAttempts
		return p
	}
	p.Error, p.Permanent, p.MaybeSent = se.Reason, se.Permanent, se.Unknown
	if !se.Blameless {
		p.Permanent = p.Permanent || o.Attempt >= maxAttempts
	} else if !p.Permanent && o.Attempt > 1 && time.Since(o.CreatedAt) >= maxAge {
		p.Permanent, p.Error = true, "given up after "+maxAge.String()+": "+se.Reason
	}
	// A message that may have arrived although the channel works is one whose answer gets lost: each attempt may double it, so it backs off.
	p.Spared = se.Blameless && (down || !se.Unknown || se.RetryAfter > 0)
	switch {
	case se.RetryAfter > 0:
		p.RetryIn = se.RetryAfter
	case p.Spared:
		p.RetryIn = spread(outagePause)
	}
	return p
}

// backoff is 1 s, 2 s, 4 s, … up to five minutes, plus or minus a quarter.
func backoff(attempt int) time.Duration {
	return spread(min(time.Second<<min(attempt-1, 12), maxBackoff))
}

// spread is a time plus or minus a quarter.
func spread(base time.Duration) time.Duration {
	return base*3/4 + rand.N(base/2) //nolint:gosec // spread, not secrecy
}

// flushOutbox gives the outbox a moment at the end: what is due and can be sent at once goes out before the channels stop.
func (d *Dispatcher) flushOutbox(ctx context.Context) {
	if len(d.channels) == 0 {
		return
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for {
		counts, err := d.store.OutboxCounts(flush)
		if err != nil || d.nothingWaits(counts) {
			return
		}
		wake(d.outboxNow)
		if !d.pause(flush, 50*time.Millisecond) {
			return
		}
	}
}

func (d *Dispatcher) nothingWaits(counts map[string]store.OutboxCount) bool {
	for name := range d.channels {
		if counts[name].Waiting > 0 {
			return false
		}
	}
	return true
}

// typingEvery is below the five seconds after which Telegram's sign goes out.
const typingEvery = 4 * time.Second

// typing shows that an answer is being made until the returned function is called.
func (d *Dispatcher) typing(ctx context.Context, to chat.Target) (stop func()) {
	ty, ok := d.channels[to.Channel].(channel.Typer)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(typingEvery)
		defer t.Stop()
		for {
			ty.Typing(ctx, to)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (d *Dispatcher) preview(to chat.Target, runID, text string) {
	if s, ok := d.channels[to.Channel].(channel.Streamer); ok {
		s.Update(to, runID, text)
	}
}

func (d *Dispatcher) endPreview(to chat.Target, runID string) {
	if s, ok := d.channels[to.Channel].(channel.Streamer); ok {
		s.Finish(to, runID)
	}
}
