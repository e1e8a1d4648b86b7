package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/client"
	"laneway/internal/config"
)

// Before, a command during the start of the gateway failed with "gateway unavailable".
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

// Before, a command during the first laneway serve found no token file, which is created right before the gateway listens, and failed.
func TestACommandWaitsForTheFirstStartOfAGateway(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, row := range map[string]struct {
		args          []string
		token, listen time.Duration
		code          int
		took          time.Duration // at most
	}{
		"starts in time":     {[]string{"send", "hello"}, 2 * time.Second, 3 * time.Second, exitOK, 4 * time.Second},
		"no gateway":         {[]string{"send", "hello"}, never, never, exitFailure, 7 * time.Second},
		"it never listens":   {[]string{"send", "hello"}, 2 * time.Second, never, exitFailure, 7 * time.Second},
		"not to wait":        {[]string{"send", "hello", "--connect-wait", "0"}, 2 * time.Second, 3 * time.Second, exitFailure, 0},
		"not the first time": {[]string{"send", "hello"}, 0, never, exitFailure, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench("", "LANEWAY_DATA", data), time.Now()
				lookup, dial := b.env.lookupEnv, b.env.dial
				b.env.lookupEnv = func(name string) (string, bool) {
					if name == "LANEWAY_TOKEN" {
						return "", false
					}
					return lookup(name)
				}
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if time.Since(began) < row.listen {
						return nil, client.ErrNoGateway
					}
					return dial(ctx, to)
				}
				write := func() {
					if err := os.WriteFile(config.TokenPath(data), []byte("right"), 0o600); err != nil {
						t.Error(err)
					}
				}
				if row.token == 0 {
					write()
				} else {
					defer time.AfterFunc(row.token, write).Stop()
				}
				b.run(t, row.code, row.args...)
				if took := time.Since(began); took > row.took {
					t.Errorf("it took %s, want at most %s", took, row.took)
				}
				if row.token == never && !strings.Contains(b.stderr.String(), "start a gateway with laneway serve") {
					t.Errorf("it printed %q", b.stderr.String())
				}
			})
		})
	}
}

// With several replicas, a command uses the first that serves, and waits while all of them refuse.
func TestACommandTriesSeveralGateways(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		serves string        // the address that serves
		after  time.Duration // start of its service
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
