package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/client"
)

// A command that came while the gateway was starting failed with "gateway unavailable".
func TestACommandWaitsForAGatewayThatStarts(t *testing.T) {
	t.Parallel()
	starting := fmt.Errorf("%w: try again in a moment", client.ErrUnavailable)
	for name, row := range map[string]struct {
		args  []string
		ready time.Duration
		err   error
		code  int
	}{
		"starts in time":    {[]string{"send", "hello"}, 4 * time.Second, starting, exitOK},
		"takes too long":    {[]string{"send", "hello"}, time.Minute, starting, exitFailure},
		"not to wait":       {[]string{"send", "hello", "--connect-wait", "0"}, time.Second, starting, exitFailure},
		"no gateway at all": {[]string{"send", "hello"}, time.Second, client.ErrNoGateway, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench(""), time.Now()
				dial := b.env.dial
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if time.Since(began) < row.ready {
						return nil, row.err
					}
					return dial(ctx, to)
				}
				b.run(t, row.code, row.args...)
				if took := time.Since(began); took > 7*time.Second || row.code == exitFailure && errors.Is(row.err, client.ErrNoGateway) && took > 0 {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// Of several replicas a command takes the first that serves, and waits while all of them refuse.
func TestACommandTriesSeveralGateways(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		serves string        // the address that serves
		after  time.Duration // from when on
		refuse error
		code   int
	}{
		"the first":                         {"ws://a:1", 0, client.ErrNoGateway, exitOK},
		"the second":                        {"wss://b", 0, client.ErrNoGateway, exitOK},
		"the second, the first is starting": {"wss://b", 0, client.ErrUnavailable, exitOK},
		"the second, after two seconds":     {"wss://b", 2 * time.Second, client.ErrNoGateway, exitOK},
		"none":                              {"", 0, client.ErrNoGateway, exitFailure},
		"a wrong token":                     {"wss://b", 0, client.ErrUnauthorized, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench(""), time.Now()
				dial := b.env.dial
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if to.URL != row.serves || time.Since(began) < row.after {
						return nil, row.refuse
					}
					return dial(ctx, to)
				}
				b.run(t, row.code, "send", "hello", "--url", "a:1", "--url", "https://b")
			})
		})
	}
}
