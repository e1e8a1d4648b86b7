package client

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Keep dials, runs session with the connection, and does it again when the connection is lost or the gateway cannot be reached,
// with growing pauses from 250 ms to 10 s. It returns nil when session does, the error of session or of dialling when that is not
// about the connection (a wrong token, a version), and the cause of ctx when that is over. lost, if not nil, is told of every
// loss. session should begin by reading the state it needs: events that came in between are not repeated.
func Keep(ctx context.Context, opts Options, lost func(err error, pause time.Duration), session func(context.Context, *Conn) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 250*time.Millisecond, 10*time.Second
	for {
		err := once(ctx, opts, pauses, session)
		if err == nil || !passing(err) {
			return err
		}
		pause := pauses.NextBackOff()
		if lost != nil {
			lost(err, pause)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func once(ctx context.Context, opts Options, pauses *backoff.ExponentialBackOff, session func(context.Context, *Conn) error) error {
	conn, err := Dial(ctx, opts)
	if err != nil {
		return err
	}
	pauses.Reset()
	err = session(ctx, conn)
	_ = conn.Close()
	return err
}

// passing reports whether a new connection may help.
func passing(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrNoGateway) || errors.Is(err, ErrUnavailable)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
