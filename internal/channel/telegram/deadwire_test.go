package telegram_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection that also breaks running calls, including the poll that waits for updates.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	dead chan struct{}                   // closed when the connection is cut
	cut  func(ctx context.Context) error // nil means that the connection works
	open func(w *wire)                   // called for a new connection
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	dead, cut := w.dead, w.cut
	w.mu.Unlock()
	if cut != nil {
		return nil, cut(r.Context())
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // this server sends complete answers
	type answer struct {
		resp *http.Response
		err  error
	}
	came := make(chan answer, 1)
	go func() {
		resp, err := w.next.RoundTrip(r.WithContext(ctx)) //nolint:bodyclose // the bot closes it
		came <- answer{resp, err}
	}()
	select {
	case a := <-came:
		return a.resp, a.err
	case <-dead:
		w.mu.Lock()
		cut = w.cut
		w.mu.Unlock()
		return nil, cut(r.Context())
	}
}

// CloseIdleConnections is called by the bot to use a new connection.
func (w *wire) CloseIdleConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil && w.open != nil {
		w.open(w)
	}
}

func (w *wire) kill(cut func(context.Context) error, open func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.open = cut, open
	close(w.dead)
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repair()
}

func (w *wire) repair() { w.cut, w.dead = nil, make(chan struct{}) }

// silent is a connection on which nothing arrives, without an error.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func reset(context.Context) error {
	return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// TestADeadLineIsSeenWithinAMinuteAndForgottenWithinFifteenSeconds cuts the connection during a long poll. Messages sent meanwhile arrive within
// fifteen seconds of the end of the cut. If only one connection is dead, they arrive within fifteen seconds of the moment at which the bot closes it.
func TestADeadLineIsSeenWithinAMinuteAndForgottenWithinFifteenSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut  func(context.Context) error
		open func(*wire) // nil means that a new connection is as dead as the old one
		poll time.Duration
	}{
		"black hole":                        {cut: silent},
		"black hole under the longest poll": {cut: silent, poll: 50 * time.Second},
		"reset":                             {cut: reset},
		"half-open":                         {cut: silent, open: (*wire).repair},
		"half-open under the longest poll":  {cut: silent, open: (*wire).repair, poll: 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := &wire{dead: make(chan struct{})}
				b := newBot(t, func(s *setup) {
					s.cfg.PollTimeout = c.poll
					s.network = func(next http.RoundTripper) http.RoundTripper { line.next = next; return line }
				})
				b.start()
				b.srv.Say(anna, anna, "before")
				after(7 * time.Second)
				if s := b.ch.Status(); s.State != "connected" {
					t.Fatalf("the status before is %+v", s)
				}
				heard := []string{"before"}
				for i := range 10 {
					seen, took := b.dieAndHeal(line, c.cut, c.open, time.Duration(i)*1300*time.Millisecond)
					heard = append(heard, "during")
					t.Logf("degraded after %s, heard again after %s", seen, took)
					after(time.Minute + time.Duration(i)*time.Second)
					wantTexts(t, "received", b.texts(), heard...)
					if s := b.ch.Status(); s.State != "connected" {
						t.Errorf("the status afterwards is %+v", s)
					}
				}
				b.stop()
			})
		})
	}
}

// dieAndHeal cuts the connection for five minutes and bit, and checks that the bot notices both the cut and its end in time.
func (b *bot) dieAndHeal(line *wire, cut func(context.Context) error, open func(*wire), bit time.Duration) (seen, took time.Duration) {
	b.t.Helper()
	before := len(b.texts())
	line.kill(cut, open)
	began := time.Now()
	b.srv.Say(anna, anna, "during")
	for b.ch.Status().State != "degraded" && time.Since(began) < 5*time.Minute {
		after(50 * time.Millisecond)
	}
	if seen = time.Since(began); seen > time.Minute {
		b.t.Errorf("shown as degraded after %s", seen)
	}
	if open == nil {
		after(5*time.Minute + bit - seen)
		if s := b.ch.Status(); s.State != "degraded" || s.LastError == "" {
			b.t.Errorf("after five minutes the status is %+v", s)
		}
		line.heal()
	}
	healed := time.Now()
	for len(b.texts()) == before && time.Since(healed) < time.Minute {
		after(50 * time.Millisecond)
	}
	if took = time.Since(healed); took > 15*time.Second {
		b.t.Errorf("heard again after %s", took)
	}
	return seen, took
}
