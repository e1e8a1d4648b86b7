package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// reasonStale is the reason of an attempt whose claim had ended before a request.
const reasonStale = "stale"

var (
	errStale   = errors.New("the claim of this process has ended")
	errClosing = errors.New("the process ends, the next one sends the message")
)

// claim is the claim of one attempt, see [channel.Claim].
type claim struct {
	s        *Sender
	node, id string
	mark     string // before the progress, see plannedMark

	mu       sync.Mutex
	progress string      // what has arrived, "" = nothing new
	parts    []chat.Part // the messages of it that are not recorded
}

// Check implements [channel.Claim]: the incarnation that claimed the row still holds its lease, and
// the process is not shutting down.
func (c *claim) Check() error {
	select {
	case <-c.s.closing:
		return stale(errClosing)
	default:
	}
	if node, err := c.s.node.Alive(); err != nil || node != c.node {
		return stale(errStale)
	}
	return nil
}

// Record implements [channel.Claim]. Progress that cannot be written now is written with the result
// of the attempt.
func (c *claim) Record(ctx context.Context, progress string, arrived ...chat.Part) error {
	progress = c.mark + progress
	c.mu.Lock()
	c.progress, c.parts = progress, append(c.parts, arrived...)
	parts := c.parts
	c.mu.Unlock()
	err := c.s.store.RecordProgress(ctx, c.node, c.id, progress, parts)
	switch {
	case errors.Is(err, chat.ErrFenced):
		return stale(errStale)
	case err != nil:
		c.s.log.WarnContext(ctx, "a part of a message was not recorded; after a crash it is sent again", "outbox_id", c.id, "err", err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = nil
	return nil
}

// arrived returns what has arrived, "" = nothing new, and the messages of it that are not recorded.
func (c *claim) arrived() (progress string, parts []chat.Part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress, c.parts
}

func stale(cause error) error {
	return &channel.SendError{Reason: reasonStale, Uncounted: true, Cause: cause}
}

// rowOf is a row under the incarnation that claimed it: the next incarnation may claim the row
// while the attempt of the former one still ends.
type rowOf struct{ node, id string }

// claimedRows are the rows that this process has claimed and whose result is not recorded, so that
// a claim finds those that it does not know.
type claimedRows struct {
	mu    sync.Mutex
	ended map[rowOf]bool // true = the attempt has ended
}

// of returns the rows of an incarnation that are being sent, and those whose attempt ended without
// a recorded result.
func (c *claimedRows) of(node string) (sending, unrecorded []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for row, ended := range c.ended {
		switch {
		case row.node != node && ended: // the store finds it by the end of its node
			delete(c.ended, row)
		case row.node != node:
		case ended:
			unrecorded = append(unrecorded, row.id)
		default:
			sending = append(sending, row.id)
		}
	}
	return sending, unrecorded
}

// begin records the result of a claim: the unrecorded rows are due again, and the claimed ones are
// being sent.
func (c *claimedRows) begin(p store.ClaimOutgoingParams, rows []store.Outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range p.Unrecorded {
		delete(c.ended, rowOf{p.Node, id})
	}
	if c.ended == nil {
		c.ended = map[rowOf]bool{}
	}
	for i := range rows {
		c.ended[rowOf{p.Node, rows[i].ID}] = false
	}
}

// end records the end of an attempt.
func (c *claimedRows) end(node, id string, recorded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if recorded {
		delete(c.ended, rowOf{node, id})
	} else {
		c.ended[rowOf{node, id}] = true
	}
}

const (
	// probeInterval is the time between two probes of a channel that reports its provider as
	// unreachable, of probeRows messages each. A failed attempt may still have arrived, so probes
	// are rare.
	probeInterval = time.Minute
	probeRows     = 4
	// provenTime is how long a delivery takes precedence over the status that the channel reports.
	provenTime = time.Minute
)

// cooldowns records for each channel until when nothing is claimed. It is safe for concurrent use;
// no lock is held while a channel is called.
type cooldowns struct {
	mu sync.Mutex
	by map[string]cooldown
}

type cooldown struct {
	until  time.Time // the provider requested a pause in every chat
	probe  time.Time // the next probe while the provider is unreachable; zero while it is reachable
	proven time.Time // the last delivery while it was reported unreachable
}

// split divides channels into those to serve and those to probe; all others are left out. A channel
// to probe counts as probed.
func (c *cooldowns) split(names []string, down func(name string) bool, now time.Time) (serve, probe []string) {
	for _, name := range names {
		unreachable := down(name)
		c.mu.Lock()
		at := c.by[name]
		switch {
		case now.Before(at.until):
		case !unreachable:
			c.set(name, cooldown{until: at.until})
			serve = append(serve, name)
		case now.Before(at.proven.Add(provenTime)):
			serve = append(serve, name)
		case now.Before(at.probe):
		default:
			at.probe = now.Add(probeInterval)
			c.set(name, at)
			probe = append(probe, name)
		}
		c.mu.Unlock()
	}
	return serve, probe
}

// hold claims nothing for a channel until the given time, unless a later time is set already.
func (c *cooldowns) hold(name string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[name]; until.After(at.until) {
		at.until = until
		c.set(name, at)
	}
}

// delivered records that a message has arrived although the channel may report its provider as
// unreachable.
func (c *cooldowns) delivered(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[name]; !at.probe.IsZero() {
		at.proven = now
		c.set(name, at)
	}
}

func (c *cooldowns) set(name string, at cooldown) {
	if c.by == nil {
		c.by = map[string]cooldown{}
	}
	c.by[name] = at
}

const (
	// maxAttempts ends a message that a provider never accepts.
	maxAttempts = 50
	// maxAge ends a message whose attempts do not count: an answer that old is not useful any more.
	// A message that was never tried gets its attempt, and one about a moment, such as a reminder,
	// is tried until it arrives.
	maxAge = 24 * time.Hour
	// maxError bounds the recorded reason, in bytes.
	maxError = 500
)

// backoff is the wait after a counted attempt when the provider requested none: 1 s, 2 s, 4 s, … up
// to five minutes, plus or minus a quarter.
func backoff() retry.Policy { return retry.Policy{Base: time.Second, Max: 5 * time.Minute} }

// outage is the wait after an attempt that does not count: it is short, so that the rows are sent
// quickly when the provider is reachable again.
func outage() retry.Policy { return retry.Policy{Base: 3 * time.Second} }

// undelivered is the change of the row after a failed attempt; down reports that the channel's
// provider is unreachable.
func undelivered(node string, row store.Outgoing, err error, down bool) store.UndeliveredParams {
	p := store.UndeliveredParams{Node: node, ID: row.ID, Error: chat.Cut(err.Error(), maxError), RetryIn: backoff().Wait(row.Attempt)}
	failed, ok := errors.AsType[*channel.SendError](err)
	if !ok {
		p.Permanent = row.Attempt >= maxAttempts
		return p
	}
	p.Error, p.Permanent, p.MaybeSent = failed.Reason, failed.Permanent, failed.Unknown
	switch {
	case !failed.Uncounted:
		p.Permanent = p.Permanent || row.Attempt >= maxAttempts
	case !p.Permanent && !once(&row) && row.Attempt > 1 && time.Since(row.CreatedAt) >= maxAge:
		p.Permanent, p.Error = true, "given up after "+maxAge.String()+": "+failed.Reason
	}
	// When a message may have arrived although the channel works, its responses get lost: each
	// attempt may duplicate it, so it counts.
	p.Uncounted = failed.Uncounted && (down || !failed.Unknown || failed.RetryAfter > 0)
	switch {
	case failed.Reason == reasonStale:
		p.RetryIn = 0
	case failed.RetryAfter > 0:
		p.RetryIn = failed.RetryAfter
	case p.Uncounted:
		p.RetryIn = outage().Wait(1)
	}
	return p
}

// abandon adapts the result of a failed attempt that the shutdown has interrupted. A request that
// may have arrived ends the row, because sending it again could duplicate it. A message that was
// not sent is due immediately.
func abandon(p *store.UndeliveredParams, failed *channel.SendError) {
	if failed.Unknown {
		p.Permanent = true
		return
	}
	p.RetryIn = 0
}
