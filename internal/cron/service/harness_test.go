package service_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/service"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is the start time of the tests.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// process is the process around a service: it records the runs and events that it was asked to
// launch, stop and send, and never drains.
type process struct {
	*service.Service

	t        *testing.T
	store    *sqlite.Store
	now      time.Time
	launched []cron.Launched
	stopped  []string // run id and cause
	sent     []string // cluster events
	events   []string // action and run
	woken    int
}

// open creates a service on a store with two channels, box:work and webhook.
func open(t *testing.T, change ...func(*service.Config)) *process {
	t.Helper()
	p := &process{t: t, now: noon}
	p.store = sqlitetest.Open(t, sqlite.Config{Now: func() time.Time { return p.now }})
	p.join(p.store, change...)
	return p
}

// join creates the service of a process on a store.
func (p *process) join(st *sqlite.Store, change ...func(*service.Config)) {
	p.t.Helper()
	if err := st.Register(p.t.Context(), store.Node{ID: "node", Lease: time.Hour}); err != nil {
		p.t.Fatal(err)
	}
	cfg := service.Config{
		Enabled: true, Fires: true, MaxJobsOfUser: 2,
		WebhookBody: func(_ cron.Job, r cron.Run) []byte { return []byte(string(r.State) + " " + r.Summary) },
	}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	p.Service, err = service.New(cfg, service.Deps{
		Store: st, Node: p, Turns: p, Admit: p.Admit, MayUse: p.MayUse, Send: p.Send, Wake: p.Wake, Log: slog.New(slog.DiscardHandler), Go: func(work func()) { work() },
		Agents: []string{"main"}, Channels: []string{"box:work", "webhook"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Events.Subscribe(func(e cron.Event) {
		line := string(e.Action) + " " + e.Job.Name
		if e.Run != nil {
			line += " " + string(e.Run.State)
		}
		p.events = append(p.events, line)
	}, func() bool { return true })
}

// Alive implements [service.Node].
func (*process) Alive() (string, error) { return "node", nil }

// Draining implements [service.Node].
func (*process) Draining() bool { return false }

// Final implements [service.Node].
func (*process) Final(ctx context.Context, _ string, write func(context.Context) error) error {
	return write(ctx)
}

// WhileAlive implements [service.Node].
func (*process) WhileAlive(ctx context.Context, op func(context.Context) error) error { return op(ctx) }

// Launch implements [service.Turns].
func (p *process) Launch(_ context.Context, l cron.Launched) { p.launched = append(p.launched, l) }

// Stop implements [service.Turns].
func (p *process) Stop(run cron.CancelledRun, cause string) {
	p.stopped = append(p.stopped, run.RunID+" "+cause)
}

// Lanes implements [service.Turns].
func (*process) Lanes() []string { return []string{"main", "cron"} }

// Admit refuses no caller.
func (*process) Admit(context.Context, string, bool, int) (func(), error) { return func() {}, nil }

// MayUse lets a principal use the sessions that are named after it.
func (*process) MayUse(_ context.Context, key chat.SessionKey, principal string) error {
	if !strings.HasPrefix(key.Rest, principal) {
		return chat.ErrSessionNotFound
	}
	return nil
}

// Send implements [service.Publisher].
func (p *process) Send(topic string, e any, _ func()) {
	text, err := json.Marshal(e)
	if err != nil || topic != service.Topic {
		p.t.Errorf("a cluster event of topic %s: %v", topic, err)
	}
	p.sent = append(p.sent, string(text))
}

// Wake implements [service.Outbox].
func (p *process) Wake() { p.woken++ }

// operator sees every job, bob only his own.
var (
	operator = chat.Caller{Principal: "gateway", Scopes: []string{chat.ScopeAdmin}}
	bob      = chat.Caller{Principal: "bob", Own: true, Scopes: []string{chat.ScopeWrite}}
)

// members are the members of a job that fires every minute.
func members(t *testing.T, change map[string]any) cron.Members {
	t.Helper()
	all := map[string]any{
		"name": "digest", "schedule": map[string]any{"kind": "every", "everyMs": 60_000}, "payload": map[string]any{"kind": "agentTurn", "message": "hello"},
		"sessionTarget": "isolated", "wakeMode": "now",
	}
	maps.Copy(all, change)
	m := cron.Members{}
	for k, v := range all {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		m[k] = raw
	}
	return m
}

// only are just the changed members, as in a patch.
func only(t *testing.T, change map[string]any) cron.Members {
	t.Helper()
	m := members(t, change)
	for k := range m {
		if _, given := change[k]; !given {
			delete(m, k)
		}
	}
	return m
}

// add creates a job as the operator.
func (p *process) add(change map[string]any) cron.Job {
	p.t.Helper()
	put, err := p.Editor.Add(p.t.Context(), members(p.t, change), operator, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return put.Job
}

// takeEvents returns the events since the last call.
func (p *process) takeEvents() string {
	text := strings.Join(p.events, ", ")
	p.events = nil
	return text
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
