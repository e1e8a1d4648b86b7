package modelhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"laneway/internal/agent"
	"laneway/internal/retry"
)

// Call is one request.
type Call struct {
	Body []byte
	// Header returns headers for each attempt, which are added to Config.Header and replace headers of the same name; nil means none. It is called
	// for each attempt because a signature contains the time.
	Header func() http.Header
	// Once disables retries: the first failure is returned.
	Once bool
}

// Do posts the body of call and passes the answer to the Reader that begin makes, a new one for each attempt. It blocks until the
// answer is complete, the context is done or the attempts are used up. It returns an *agent.Error or the cause of the context.
// The package comment lists what is retried.
func (c *Client) Do(ctx context.Context, call Call, begin func() Reader) error {
	retries := max(0, c.cfg.Retries)
	if call.Once {
		retries = 0
	}
	begun := false // the reader has emitted something
	err := retry.Do(ctx, retry.Options{
		// About 0.5, 1 and 2 seconds, with a spread of one half, so that many turns do not retry at once.
		Policy:    retry.Policy{Base: 500 * time.Millisecond, Max: time.Minute, Spread: 0.5},
		Attempts:  1 + retries,
		Retryable: func(err error) bool { return ctx.Err() == nil && !begun && again(err) },
		After:     wanted,
		MaxWait:   c.cfg.MaxPause,
		Notify: func(err error, attempt int, pause time.Duration) {
			c.log.WarnContext(ctx, "model request is tried again", "attempt", attempt+1, "pause_ms", pause.Milliseconds(),
				"reason", agent.ReasonOf(err), "err", err)
		},
	}, func(ctx context.Context) error {
		reader := begin()
		err := c.attempt(ctx, call, reader)
		begun = reader.Begun()
		return err
	})
	if ended := agent.Ended(ctx); err != nil && ended != nil {
		return ended
	}
	return err
}

// again reports whether a retry may help now. A call that exceeded our own deadlines is not retried: its slot has waited long enough.
func again(err error) bool {
	var failed *agent.Error
	if !errors.As(err, &failed) {
		return false
	}
	return failed.Retryable && !errors.Is(err, errFirstByte) && !errors.Is(err, errSilence)
}

// wanted returns the pause that the server asks for.
func wanted(err error) time.Duration {
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		return refusal.After
	}
	return 0
}
