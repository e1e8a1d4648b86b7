package telegram_test

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network is a connection that can be cut: while cut is set, it determines the result of calls.
type network struct {
	next  http.RoundTripper
	mu    sync.Mutex
	cut   func(context.Context) error
	tries []time.Time // while it was cut
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	cut := n.cut
	if cut != nil {
		n.tries = append(n.tries, time.Now())
	}
	n.mu.Unlock()
	if cut != nil {
		return nil, cut(r.Context())
	}
	return n.next.RoundTrip(r)
}

func (n *network) set(cut func(context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// The network is down for half an hour: the bot keeps polling at a bounded rate, shows its state, and receives the messages of that time within
// fifteen seconds of the end, once and in order.
func TestHalfAnHourWithoutANetworkCostsFifteenSeconds(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(context.Context) error{
		"no name": func(context.Context) error {
			return &net.DNSError{Err: "no such host", Name: "api.telegram.org", IsNotFound: true}
		},
		"certificate": func(context.Context) error { return x509.UnknownAuthorityError{} },
		"unreachable": func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp6", Err: net.UnknownNetworkError("unreachable")}
		},
		"black hole": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := &network{}
				b := newBot(t, func(s *setup) {
					s.network = func(next http.RoundTripper) http.RoundTripper { line.next = next; return line }
				})
				b.start()
				b.srv.Say(anna, anna, "before")
				after(time.Second)
				line.set(cut)
				after(40 * time.Second) // the running poll ends
				b.srv.Say(anna, anna, "during, one")
				b.srv.Say(anna, anna, "during, two")
				after(30 * time.Minute)
				if s := b.ch.Status(); s.State != "degraded" || s.LastError == "" || !s.Running {
					t.Errorf("the status is %+v", s)
				}
				if n := len(line.tries); n < 30 || n > 30*60/5 {
					t.Errorf("%d tries in half an hour", n)
				}
				line.set(nil)
				healed := time.Now()
				for len(b.texts()) < 3 && time.Since(healed) < time.Minute {
					after(50 * time.Millisecond)
				}
				took := time.Since(healed)
				if took > 15*time.Second {
					t.Errorf("heard again %s after the network was back", took)
				}
				t.Logf("%d tries; heard again %s after the network was back", len(line.tries), took)
				after(time.Minute)
				wantTexts(t, "received", b.texts(), "before", "during, one", "during, two")
				if s := b.ch.Status(); s.State != "connected" {
					t.Errorf("the status is %+v", s)
				}
				b.stop()
			})
		})
	}
}
