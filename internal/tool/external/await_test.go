package external_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/tool/external"
)

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTurnsWaitForTheFirstAttemptToConnectOnce(t *testing.T) {
	t.Parallel()
	hangs := transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	refuses := transport(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	for name, tt := range map[string]struct {
		by   transport
		want time.Duration
	}{"Hangs": {hangs, 10 * time.Second}, "Refuses": {refuses, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := external.New([]external.Config{{Name: "one", URL: "http://one.test"}, {Name: "other", URL: "http://other.test"}}, os.LookupEnv, tt.by, nil)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); set.Run(ctx) }()
				for turn, want := range []time.Duration{tt.want, 0} {
					start := time.Now()
					set.Await(t.Context(), []string{"one", "other"})
					if took := time.Since(start); took != want {
						t.Errorf("turn %d waited for %s, want %s", turn, took, want)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

func TestATurnWaitsForNoServerOfOtherAgents(t *testing.T) {
	t.Parallel()
	set := external.New([]external.Config{{Name: "one", URL: "http://one.test"}}, os.LookupEnv, nil, nil) // it does not run
	set.Await(t.Context(), []string{"other"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set.Await(ctx, []string{"one"})
}

func TestAServerThatAnswersNoUnknownMethodIsConnected(t *testing.T) {
	t.Parallel()
	set := open(t, program(t, "silent"))
	start := time.Now()
	set.Await(t.Context(), []string{"fake"})
	if state := set.Status()[0].State; state != external.StateConnected {
		t.Fatalf("after %s the server is %s", time.Since(start), state)
	}
	if got := call(t, set, "fake_echo", `{"a":1}`); got.IsError || got.Text != `{"a":1} value` {
		t.Errorf("got %+v, want the answer of the server", got)
	}
}
