package modelhttp

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"laneway/internal/agent"
)

// Call is one request.
type Call struct {
	Body []byte
	// Once: the first failure is returned, whatever it is.
	Once bool
}

// Do posts the body of call and passes the answer to the Reader that begin makes, a new one for each attempt. It blocks until the
// answer is complete, the context is over or the attempts are used up. Its errors are *agent.Error or the cause of the
// context; see the package comment for what is tried again.
func (c *Client) Do(ctx context.Context, call Call, begin func() Reader) error {
	retries := max(0, c.cfg.Retries)
	if call.Once {
		retries = 0
	}
	pauses := &pauses{ctx: ctx, longest: c.cfg.MaxPause, growing: newGrowing()}
	try := 0
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		try++
		reader := begin()
		err := c.attempt(ctx, call.Body, reader)
		if ended := agent.Ended(ctx); err != nil && ended != nil {
			return struct{}{}, backoff.Permanent(ended)
		}
		if err != nil && (reader.Begun() || !again(err)) {
			return struct{}{}, backoff.Permanent(err)
		}
		pauses.wanted = wanted(err)
		return struct{}{}, err
	},
		backoff.WithBackOff(pauses),
		backoff.WithMaxTries(uint(1+retries)),
		backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, pause time.Duration) {
			c.log.WarnContext(ctx, "model request is tried again", "attempt", try+1, "pause_ms", pause.Milliseconds(),
				"reason", agent.ReasonOf(err), "err", err)
		}))
	if ended := agent.Ended(ctx); err != nil && ended != nil {
		return ended
	}
	return err
}

// again reports whether a second attempt may help now. Our own deadlines are not tried again: the slot has waited enough.
func again(err error) bool {
	var failed *agent.Error
	if !errors.As(err, &failed) {
		return false
	}
	return failed.Retryable && !errors.Is(err, errFirstByte) && !errors.Is(err, errSilence)
}

func wanted(err error) time.Duration {
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		return refusal.After
	}
	return 0
}

// newGrowing gives pauses of about 0.5, 1 and 2 seconds, spread by half, so that many turns do not come back at once.
func newGrowing() *backoff.ExponentialBackOff {
	growing := backoff.NewExponentialBackOff()
	growing.InitialInterval = 500 * time.Millisecond
	growing.Multiplier = 2
	return growing
}

// pauses returns how long to wait: at least what the server asked for. It stops where the wait would be in vain.
type pauses struct {
	ctx     context.Context //nolint:containedctx // lives as long as one call of Do; the interface of backoff has no context
	longest time.Duration
	wanted  time.Duration
	growing *backoff.ExponentialBackOff
}

// Reset implements backoff.BackOff.
func (p *pauses) Reset() { p.growing.Reset() }

// NextBackOff implements backoff.BackOff.
func (p *pauses) NextBackOff() time.Duration {
	pause := max(p.wanted, p.growing.NextBackOff())
	deadline, bounded := p.ctx.Deadline()
	if pause > p.longest || (bounded && time.Until(deadline) <= pause) {
		return backoff.Stop
	}
	return pause
}
