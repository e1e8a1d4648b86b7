package gateway_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

// A client that requests no scope, or scopes that the credential does not have, can connect; such a connection may call nothing and
// receives no events.
func TestAConnectionWithoutScopesGetsTheTickAndTheShutdownAlone(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *bubble) {
		asks := map[string]struct {
			token  string
			scopes any
		}{
			"none": {adminToken, []string{}}, "absent": {adminToken, nil}, "unknown": {adminToken, []string{"operator.root", "*", "admin"}},
			"more than a read token gives": {readToken, []string{chat.ScopeWrite, chat.ScopeAdmin}},
		}
		mute := map[string]chan string{}
		for name, ask := range asks {
			s := t.open()
			f := connectFrame(ask.token, "laneway-ext", "tool-events")
			if p := f["params"].(map[string]any); ask.scopes == nil {
				delete(p, "scopes")
			} else {
				p["scopes"] = ask.scopes
			}
			s.send(f)
			if f := s.read(); !f.OK {
				t.Fatalf("%s: connect: %+v", name, f.Error)
			}
			for _, m := range t.srv.Methods() {
				if f := s.call(m.Name, []any{"no object"}); !refusedFor(f, m.Scope) {
					t.Errorf("%s: %s answered %+v", name, m.Name, f.Error)
				}
			}
			all := make(chan string, 100)
			mute[name] = all
			go func() { // ends with the socket
				defer close(all)
				for {
					var f frame
					if s.ws.ReadJSON(&f) != nil {
						return
					}
					all <- f.Event
				}
			}()
		}
		s := t.open().login(adminToken)
		s.must("sessions.subscribe", params{})
		s.must("chat.send", send("main", "hello", "run"))
		s.next(chatState("run", "final"))
		t.fakeBackend.publish(chat.Event{Kind: chat.EventSession, Session: chat.MainKey("main"), Principal: "gateway", Reason: "created"})
		s.next(func(f frame) bool { return f.Event == "sessions.changed" })
		t.fakeBackend.set(func() { t.fakeBackend.down = true })
		s.next(func(f frame) bool { return f.Event == "health" })
		s.next(func(f frame) bool { return f.Event == "tick" })
		pass(time.Second) // the other connections receive theirs at the same time
		t.srv.Drain()
		for name, all := range mute {
			var heard []string
			for event := range all {
				if !slices.Contains(heard, event) {
					heard = append(heard, event)
				}
				if event == "shutdown" {
					break
				}
			}
			slices.Sort(heard)
			if !slices.Equal(heard, []string{"shutdown", "tick"}) {
				t.Errorf("%s: heard %q", name, heard)
			}
		}
	})
}

// refusedJobs returns a backend with the methods of jobs, for calls that are refused before they reach it.
type refusedJobs struct {
	*fakeBackend
	jobEvents
}

type jobEvents struct {
	gateway.CronBackend

	publish chan func(cron.Event)
}

func (j jobEvents) SubscribeCron(fn func(cron.Event), _ func() bool) (cancel func()) {
	j.publish <- fn
	return func() {}
}

func withJobs(t *testing.T, change ...func(*gateway.Config)) *bench {
	t.Helper()
	h := newFakeBackend(t)
	return serve(t, h, refusedJobs{h, jobEvents{publish: make(chan func(cron.Event), 1)}}, change...)
}

func TestEventsOfAJobReachThoseWhoMayReadIt(t *testing.T) {
	t.Parallel()
	h, published := newFakeBackend(t), make(chan func(cron.Event), 1)
	b := serve(t, h, refusedJobs{h, jobEvents{publish: published}})
	mute := b.dial()
	f := connectFrame(adminToken)
	f["params"].(map[string]any)["scopes"] = []string{}
	mute.send(f)
	if f := mute.read(); !f.OK {
		t.Fatalf("connect: %+v", f.Error)
	}
	anna, otto, reader := b.login(annaToken), b.login(ottoToken), b.login(readToken)
	(<-published)(cron.Event{Action: cron.ActionRemoved, Job: cron.Job{ID: "j", Owner: "anna", Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}}})
	for name, s := range map[string]*socket{"its owner": anna, "who sees all": reader} {
		if f := s.read(); f.Event != "cron" {
			t.Errorf("%s heard %+v", name, f)
		}
	}
	for name, s := range map[string]*socket{"another owner": otto, "no scope": mute} {
		s.request("last", "no.such.method", nil)
		if f := s.read(); f.ID != "last" {
			t.Errorf("%s heard %+v", name, f)
		}
	}
}

// The allowance of cron writes is a member of the method table. Every method that changes jobs is counted in it. The three hundred and
// first call is refused, and no other method is affected.
func TestEveryMethodThatChangesJobsTakesFromTheAllowance(t *testing.T) {
	t.Parallel()
	b := withJobs(t)
	found := 0
	for _, m := range b.srv.Methods() {
		changes := strings.HasPrefix(m.Name, "cron.") && m.Audited || m.Name == "wake"
		if changes != (m.Limit == auth.LimitCronWrites) {
			t.Errorf("%s changes jobs: %v, and takes from %q", m.Name, changes, m.Limit)
		}
		if !changes {
			continue
		}
		found++
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			b := withJobs(t, func(c *gateway.Config) { c.RequestsPerSecond = auth.Off })
			s := b.login(adminToken)
			began := time.Now()
			for n := range 300 {
				if f := s.call(m.Name, []any{"no object"}); f.OK || f.Error.Details["code"] == "RATE_LIMITED" {
					t.Fatalf("call %d: %+v", n+1, f.Error)
				}
			}
			f := overdrawn(s, m.Name, began)
			if f.OK || f.Error.Code != "UNAVAILABLE" || !f.Error.Retryable || f.Error.Details["code"] != "RATE_LIMITED" || f.Error.Details["method"] != m.Name ||
				f.Error.Details["limit"] != 300.0 || f.Error.RetryAfterMs < 1 || f.Error.RetryAfterMs > 60_000 {
				t.Errorf("call 301: %+v", f.Error)
			}
			if again := overdrawn(b.login(adminToken), m.Name, began); again.OK || again.Error.Details["code"] != "RATE_LIMITED" {
				t.Errorf("over another connection: %+v", again.Error)
			}
			if f := s.call("cron.get", []any{"no object"}); f.Error == nil || f.Error.Details["code"] == "RATE_LIMITED" {
				t.Errorf("a read: %+v", f.Error)
			}
			s.must("chat.send", send("main", "hello", "run-"+strconv.Itoa(len(m.Name))))
		})
	}
	if found < 12 {
		t.Errorf("only %d methods change jobs", found)
	}
}

// A small credential could repeat a write without an allowance as fast as its connection permits.
func TestEveryMethodThatWritesTakesFromAnAllowance(t *testing.T) {
	t.Parallel()
	free := []string{ // they stop runs, or change rows that the operator's network has made
		"chat.abort", "tasks.stop", "channels.pairing.approve", "channels.pairing.dismiss", "channels.pairing.revoke",
	}
	for _, m := range withJobs(t).srv.Methods() {
		if m.Scope != chat.ScopeRead && m.Limit == "" && !slices.Contains(free, m.Name) && (m.Audited || m.Scope == chat.ScopeWrite) {
			t.Errorf("%s takes from no allowance", m.Name)
		}
	}
	for _, name := range []string{"sessions.reset", "sessions.delete"} {
		s := start(t, func(c *gateway.Config) { c.ChatsPerMinute = 2 }).login(adminToken)
		for range 2 {
			s.must(name, params{"key": "main"})
		}
		if f := s.call(name, params{"key": "main"}); f.OK || f.Error.Details["code"] != "RATE_LIMITED" {
			t.Errorf("the third %s in a minute with an allowance of two: %+v", name, f.Error)
		}
	}
}

// overdrawn calls until the allowance refuses, at most as often as it may have been refilled since the calls began: five times a second.
func overdrawn(s *socket, method string, began time.Time) (last frame) {
	for n := 0; n < 2+int(5*time.Since(began).Seconds()); n++ {
		if last = s.call(method, []any{"no object"}); last.Error != nil && last.Error.Details["code"] == "RATE_LIMITED" {
			break
		}
	}
	return last
}
