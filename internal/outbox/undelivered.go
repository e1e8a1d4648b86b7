package outbox

import (
	"errors"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

const (
	// maxAttempts ends a message that a provider never accepts.
	maxAttempts = 50
	// maxAge ends a message whose attempts do not count: an answer that old is not useful any more. A message that was never tried gets its attempt.
	maxAge = 24 * time.Hour
	// maxError bounds the recorded reason, in bytes.
	maxError = 500
)

// backoff is the wait after a counted attempt when the provider requested none: 1 s, 2 s, 4 s, … up to five minutes, plus or minus a quarter.
func backoff() retry.Policy { return retry.Policy{Base: time.Second, Max: 5 * time.Minute} }

// outage is the wait after an attempt that does not count: it is short, so that the rows are sent quickly when the provider is reachable again.
func outage() retry.Policy { return retry.Policy{Base: 3 * time.Second} }

// undelivered is the change of the row after a failed attempt; down reports that the channel's provider is unreachable.
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
	case !p.Permanent && row.Attempt > 1 && time.Since(row.CreatedAt) >= maxAge:
		p.Permanent, p.Error = true, "given up after "+maxAge.String()+": "+failed.Reason
	}
	// When a message may have arrived although the channel works, its responses get lost: each attempt may duplicate it, so it counts.
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

// abandon adapts the result of a failed attempt that the shutdown has interrupted. A request that may have arrived ends the row, because sending it again could
// duplicate it. A message that was not sent is due immediately.
func abandon(p *store.UndeliveredParams, failed *channel.SendError) {
	if failed.Unknown {
		p.Permanent = true
		return
	}
	p.RetryIn = 0
}
