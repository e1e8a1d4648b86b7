package telegram_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/testtelegram"
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

// The network is down for half an hour: the bot keeps polling at a bounded rate, shows its state,
// and receives the messages of that time within fifteen seconds of the end, once and in order.
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

// Telegram does not answer for five minutes, from the first call on, with each kind of outage.
// Nothing else is delayed: jobs fire on time, other channels are answered at once, the gateway is
// ready. Within fifteen seconds after the end of the outage the bot answers.
func TestFiveMinutesWithoutTelegramAtTheStartDelayNothingElse(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, fault := range map[string]testtelegram.Fault{
		"hangs": {Hang: true}, "resets": {Reset: true}, "bad gateway": {HTML: 502}, "garbage": {Garbage: true}, "500": testtelegram.Refuse(500, "Internal Server Error"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { awayAtTheStart(t, fault) })
		})
	}
}

func awayAtTheStart(t *testing.T, fault testtelegram.Fault) {
	t.Helper()
	h := newHome(t)
	h.srv.BreakAlways(fault)
	h.begin()
	began := time.Now()
	key := chat.MainKey("main")
	say := func(id, text string) {
		t.Helper()
		asked := time.Now()
		_, err := h.d.Receive(t.Context(), chat.Message{Session: key, ID: id, Principal: "gateway", Scope: "operator.admin", Channel: "web", Content: chat.Content{Text: text}})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if end, err := h.d.Wait(ctx, id); err != nil || end.Outcome != chat.OutcomeAnswered || time.Since(asked) > time.Second {
			t.Errorf("%s: %+v, %v after %s", text, end, err, time.Since(asked))
		}
	}
	say("add", "/cron add every 30s look at the mail")
	for i := range 10 {
		after(time.Until(began.Add(time.Duration(i+1) * 30 * time.Second)))
		say(fmt.Sprint("m", i), fmt.Sprint("message ", i))
		if err := h.d.Ready(t.Context()); err != nil {
			t.Errorf("not ready after %s: %v", time.Since(began), err)
		}
	}
	if s := h.ch.Status(); s.State != "degraded" || s.LastError == "" || !s.Running {
		t.Errorf("the status is %+v", s)
	}
	after(5 * time.Second) // the last fire ends
	runs, err := h.st.Runs(t.Context(), cron.RunFilter{IncludeActive: true, Ascending: true})
	if err != nil {
		t.Fatal(err)
	}
	late := time.Duration(0)
	for _, r := range runs.Runs {
		if late = max(late, r.StartedAt.Sub(r.ScheduledFor)); r.State != cron.RunOK {
			t.Errorf("run %+v", r)
		}
	}
	if len(runs.Runs) < 9 || late > time.Second {
		t.Errorf("%d runs in five minutes, the latest %s late", len(runs.Runs), late)
	}

	h.srv.Mend()
	h.srv.Say(anna, anna, "are you there?")
	healed := time.Now()
	for len(h.srv.Texts(anna)) == 0 && time.Since(healed) < time.Minute {
		after(100 * time.Millisecond)
	}
	if took := time.Since(healed); took > 15*time.Second {
		t.Errorf("the first update was handled %s after Telegram was back", took)
	}
	t.Logf("%d runs, at most %s late; the bot answered %s after Telegram was back", len(runs.Runs), late, time.Since(healed))
	h.wantLast("anna", anna, "laneway pair approve")
	h.end()
}

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

// TestADeadLineIsSeenWithinAMinuteAndForgottenWithinFifteenSeconds cuts the connection during a
// long poll. Messages sent meanwhile arrive within fifteen seconds of the end of the cut. If only
// one connection is dead, they arrive within fifteen seconds of the moment at which the bot closes
// it.
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

// dieAndHeal cuts the connection for five minutes and bit, and checks that the bot notices both the
// cut and its end in time.
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

// outages are the ways in which Telegram cannot be reached; each function returns one that ends the
// outage.
var outages = map[string]func(h *home) (end func()){
	"unreachable": func(h *home) func() {
		h.line.set(func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: net.UnknownNetworkError("unreachable")}
		})
		return func() { h.line.set(nil) }
	},
	"black hole": func(h *home) func() {
		h.line.set(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		return func() { h.line.set(nil) }
	},
	"page of a proxy": func(h *home) func() {
		h.srv.BreakAlways(testtelegram.Fault{HTML: 502})
		return h.srv.Mend
	},
	"refused by Telegram's own servers": func(h *home) func() {
		h.srv.BreakAlways(testtelegram.Refuse(503, "Service Unavailable"))
		return h.srv.Mend
	},
}

// TestAfterAnOutageEverythingThatWaitsGoesOut: answers that could not be sent for half an hour
// arrive within fifteen seconds after its end, in order; only the chat with the longer cooldown
// waits.
func TestAfterAnOutageEverythingThatWaitsGoesOut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHome(t)
				people := h.people(3)
				h.letIn(bob)
				h.begin()
				h.srv.Break("sendMessage", testtelegram.Flood(2400))
				h.srv.Say(bob, bob, "think 1s patience")
				after(3 * time.Second)
				for _, p := range people {
					h.srv.Say(p, p, "think 20s first")
				}
				after(3 * time.Second)
				for _, p := range people {
					h.srv.Say(p, p, "think 20s second")
				}
				after(10 * time.Second)
				end := begin(h)
				after(30 * time.Minute)
				end()
				healed := time.Now()
				after(15 * time.Second)
				for _, p := range people {
					got := strings.Join(h.srv.Texts(p), "|")
					if a, b := strings.Index(got, "first"), strings.LastIndex(got, "second"); a < 0 || b < a {
						t.Errorf("%d reads %q fifteen seconds after the outage", p, got)
					}
				}
				var took time.Duration
				for _, p := range people {
					for _, m := range h.srv.Messages(p) {
						took = max(took, m.SentAt.Sub(healed))
					}
				}
				t.Logf("the last answer came %s after the outage", took)
				after(15 * time.Minute)
				h.wantLast("when the cooldown of the chat has ended", bob, "patience")
				h.end() // a call inside of the cooldown is a violation
			})
		})
	}
}

// TestAnOutageUsesUpNoAttempts: ten hours without Telegram, or sixty times a 429, lose no answer;
// an answer of the day before is given up, with the reason.
func TestAnOutageUsesUpNoAttempts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for name, begin := range outages {
		for _, hours := range []int{10, 25} {
			if hours == 25 && name != "unreachable" {
				continue // the end does not depend on the kind of outage
			}
			t.Run(fmt.Sprintf("%s for %d hours", name, hours), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := newHome(t)
					h.letIn(anna)
					h.begin()
					h.srv.Say(anna, anna, "think 30s still there")
					after(10 * time.Second)
					end := begin(h)
					after(time.Duration(hours) * time.Hour)
					end()
					after(15 * time.Second)
					h.srv.Say(anna, anna, "think 1s news")
					after(15 * time.Second)
					h.wantLast("after the outage", anna, "news")
					if got := strings.Join(h.srv.Texts(anna), "|"); strings.Contains(got, "still there") != (hours < 24) {
						t.Errorf("after %d hours anna reads %q", hours, got)
					}
					if given := strings.Contains(h.log.String(), "given up after 24h"); given != (hours > 24) {
						t.Errorf("after %d hours the log says that the answer was given up: %t", hours, given)
					}
					h.end()
				})
			})
		}
	}
	t.Run("sixty floods", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := newHome(t)
			h.letIn(anna)
			h.begin()
			for range 60 {
				h.srv.Break("sendMessage", testtelegram.Flood(20))
			}
			h.srv.Say(anna, anna, "hello")
			after(30 * time.Minute)
			h.wantLast("after the floods", anna, "hello")
			h.end()
		})
	})
}
