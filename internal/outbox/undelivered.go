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
	// maxAttempts ends a message that a provider never takes.
	maxAttempts = 50
	// maxAge ends a message whose attempts do not count: an answer of yesterday is none any more. One that was never tried gets its attempt.
	maxAge = 24 * time.Hour
	// maxError bounds the recorded reason, in bytes.
	maxError = 500
)

// backoff is the wait after an attempt that counts, where the provider asked for none: 1 s, 2 s, 4 s, … up to five minutes, plus or minus a quarter.
func backoff() retry.Policy { return retry.Policy{Base: time.Second, Max: 5 * time.Minute} }

// outage is the wait after an attempt that does not count: the rows come due soon, so that they go out at once when the provider is back.
func outage() retry.Policy { return retry.Policy{Base: 3 * time.Second} }

// undelivered is what a failed attempt means for the row; down reports that the channel's provider is unreachable.
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
	// A message that may have arrived although the channel works is one whose answer gets lost: each attempt may double it, so it counts.
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

// abandon changes what a failed attempt means when the end of the process has ended it. A request that may have been answered ends the row: to send it
// again could duplicate it. What was not sent is due at once.
func abandon(p *store.UndeliveredParams, failed *channel.SendError) {
	if failed.Unknown {
		p.Permanent = true
		return
	}
	p.RetryIn = 0
}
