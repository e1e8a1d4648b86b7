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
