package client

import (
	"context"
	"errors"
	"time"

	"laneway/internal/retry"
)

// Keep dials, runs session with the connection, and does it again when the connection is lost or the gateway cannot be reached,
// with growing pauses from 250 ms to 10 s. It returns nil when session does, the error of session or of dialling when that is not
// about the connection (a wrong token, a version), and the cause of ctx when that is over. lost, if not nil, is called with every
// loss. session should begin by reading the state it needs: events that came in between are not repeated.
func Keep(ctx context.Context, opts Options, lost func(err error, pause time.Duration), session func(context.Context, *Conn) error) error {
	policy := retry.Policy{Base: 250 * time.Millisecond, Max: 10 * time.Second}
	for attempt := 1; ; attempt++ {
		connected, err := once(ctx, opts, session)
		if err == nil || !passing(err) {
			return err
		}
		if connected {
			attempt = 1
		}
		pause := policy.Wait(attempt)
		if lost != nil {
			lost(err, pause)
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// once dials and runs session; connected reports whether the dial succeeded.
func once(ctx context.Context, opts Options, session func(context.Context, *Conn) error) (connected bool, err error) {
	conn, err := Dial(ctx, opts)
	if err != nil {
		return false, err
	}
	err = session(ctx, conn)
	_ = conn.Close()
	return true, err
}

// passing reports whether a new connection may help.
func passing(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrNoGateway) || errors.Is(err, ErrUnavailable)
}
