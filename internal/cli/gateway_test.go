package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
)

// echoBackend is the backend of a real gateway: it answers every message with the same text, in two pieces. These commands do not call the
// methods that it lacks.
type echoBackend struct {
	gateway.Backend
	mu   sync.Mutex
	subs []func(chat.Event)
	idle time.Duration // how long no work has started although some is ready
}

func (p *echoBackend) Subscribe(fn func(chat.Event), _ func(chat.Event) bool) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subs = append(p.subs, fn)
	return func() {}
}

func (p *echoBackend) ReceiveFrom(_ context.Context, m chat.Message, _ gateway.Caller) (chat.Receipt, error) {
	if m.Content.Text == "full" {
		return chat.Receipt{}, chat.Errorf(chat.CodeQueueFull, "the queue of the session is full")
	}
	text := m.Content.Text
	for i, ev := range []chat.Event{
		{Kind: chat.EventStarted},
		{Kind: chat.EventDelta, Delta: text[:1], Text: text[:1]},
		{Kind: chat.EventDelta, Delta: text[1:], Text: text},
		{Kind: chat.EventFinal, Text: text},
	} {
		ev.Session, ev.Principal, ev.RunID, ev.Seq, ev.At = m.Session, m.Principal, m.ID, int64(i+1), testNow()
		for _, fn := range p.subs {
			fn(ev)
		}
	}
	return chat.Receipt{RunID: m.ID, Session: m.Session, Seq: 1, AcceptedAt: testNow(), State: store.StateRunning}, nil
}

func (p *echoBackend) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{SessionID: "s"}, nil
}

func (p *echoBackend) PendingInputs(context.Context, chat.SessionKey, int64, int) ([]store.Waiting, int, error) {
	return nil, 0, nil
}

func (p *echoBackend) DefaultAgent() string                           { return "main" }
func (p *echoBackend) Audit(context.Context, chat.Audit) error        { return nil }
func (p *echoBackend) Agents() []agent.Info                           { return []agent.Info{{ID: "main", Runner: "echo"}} }
func (p *echoBackend) Commands() []chat.CommandInfo                   { return nil }
func (p *echoBackend) Progress() chat.Progress                        { return chat.Progress{StalledFor: p.idle} }
func (p *echoBackend) Channels() []chat.ChannelStatus                 { return nil }
func (p *echoBackend) Ready(context.Context) error                    { return nil }
func (p *echoBackend) InFlight(chat.SessionKey) (chat.InFlight, bool) { return chat.InFlight{}, false }

func (p *echoBackend) Lanes() chat.LanesStatus {
	return chat.LanesStatus{At: testNow(), NodeID: "gw-7", Lanes: []chat.LaneStatus{{Name: "main", Capacity: 30, Active: 2}}}
}

func (p *echoBackend) Status(context.Context) chat.SystemStatus {
	return chat.SystemStatus{NodeID: "gw-7", Version: versionOf("", "").Version, StartedAt: testNow(), Store: "sqlite", Lanes: p.Lanes()}
}

func (p *echoBackend) Session(_ context.Context, key chat.SessionKey, _ string) (chat.SessionStatus, error) {
	return chat.SessionStatus{Key: key, SessionID: "s", Principal: "gateway", Lane: "main"}, nil
}

func (p *echoBackend) Sessions(context.Context, store.SessionFilter) ([]chat.SessionStatus, int, error) {
	return []chat.SessionStatus{{Key: chat.MainKey("main"), SessionID: "s", Status: "done", Lane: "main", UpdatedAt: testNow()}}, 1, nil
}

func (p *echoBackend) Turns(_ context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	if f.Message == "none" || f.Parent != "" || !f.Before.IsZero() || f.Which == store.TurnsEnded || f.Session == chat.MainKey("idle") { // its messages are a minute old
		return nil, nil, nil
	}
	runs := store.Turn{
		ID: "r-1", Session: chat.MainKey("main"), Lane: "main", Channel: "web", Text: "hello", Principal: "gateway", State: store.RunRunning, Node: "gw-1", Attempt: 1,
		AcceptedAt: testNow().Add(-time.Minute), StartedAt: testNow().Add(-50 * time.Second),
	}
	if f.One() {
		runs.Sent = []store.Sending{{Target: chat.Target{Channel: "telegram:1", ChatID: "7"}, Kind: store.KindReply, State: store.OutPending, Attempts: 2, Error: "429"}}
		return []store.Turn{runs}, nil, nil
	}
	waits := runs
	waits.ID, waits.Session, waits.Text, waits.State, waits.Attempt, waits.StartedAt = "r-2", chat.MainKey("coder"), "and then?", store.StateWaiting, 0, time.Time{}
	return []store.Turn{runs, waits}, map[string]chat.Waiting{"r-2": {Cause: chat.WaitLane, Position: 4}}, nil
}

func (p *echoBackend) Tasks(_ context.Context, f store.TaskFilter) ([]store.Task, error) {
	if f.ID == "none" {
		return nil, nil
	}
	return []store.Task{{ID: "t-1", Session: chat.TaskKey("coder", "t-1"), Agent: "coder", Lane: "team", State: "yielded", Text: "count the lines", StartedAt: testNow()}}, nil
}

func (p *echoBackend) OpenQuestions(_ context.Context, owner string, _ int) ([]agent.OpenQuestion, error) {
	if owner != "" {
		return nil, nil // used by needs.list
	}
	return []agent.OpenQuestion{
		{
			ID: "q-1", Agent: "main", Session: chat.MainKey("main"), Principal: "gateway", AskedAt: testNow().Add(-time.Minute), ExpiresAt: testNow().Add(time.Minute),
			Question: agent.Question{Text: "run the command “ls”", Options: []agent.Option{{Label: "Allow: once", Allow: true}, {Label: "Deny"}}},
		},
		{ID: "q-2", Agent: "main", Session: chat.MainKey("main"), Principal: "telegram:1:7", Question: agent.Question{Text: "run the command “rm”"}},
	}, nil
}

func (p *echoBackend) AnswerQuestion(_ context.Context, by, id string, option int) (string, error) {
	if id != "q-1" {
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this")
	}
	return fmt.Sprintf("The answer of %s is %d.", by, option), nil
}

func (p *echoBackend) Stop(context.Context, store.StopParams) ([]string, error) {
	return []string{"run-1"}, nil
}

// startGateway serves a real gateway on loopback until the test ends, and returns its address.
func startGateway(t *testing.T, p *echoBackend) string {
	t.Helper()
	server, err := gateway.New(gateway.Config{
		Version:     versionOf("", "").Version,
		Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256([]byte("right")), Scopes: []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}}},
	}, p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	server.Ready()
	return "ws://" + listener.Addr().String()
}

func TestCommandsSpeakWithARealGateway(t *testing.T) {
	t.Parallel()
	address := startGateway(t, &echoBackend{})
	const wrongToken = "laneway: not authorized: the token is not the gateway's; check --token, LANEWAY_TOKEN or the token file\n"
	rows := []struct {
		name, stdin string
		args        []string
		token       string
		code        int
		stdout      string
		stderr      string
	}{
		{name: "send", args: []string{"send", "hello there"}, stdout: "hello there\n"},
		{name: "send to an agent", args: []string{"send", "hello", "--session", "work", "--agent", "main", "--json"}, stdout: `"sessionKey": "agent:main:work"`},
		{name: "refused", args: []string{"send", "full"}, code: exitFailure, stderr: "queue of the session is full"},
		{name: "chat", stdin: "one\ntwo\n", args: []string{"chat"}, stdout: "one\ntwo\n"},
		{name: "status", args: []string{"status"}, stdout: "gw-7, healthy, version"},
		{name: "agents", args: []string{"agents"}, stdout: "main (default)"},
		{name: "agents as JSON", args: []string{"agents", "--json"}, stdout: `"defaultId": "main"`},
		{name: "sessions", args: []string{"sessions", "list"}, stdout: "agent:main:main"},
		{name: "stop", args: []string{"sessions", "stop", "main"}, stdout: "stopped run-1"},
		{name: "runs", args: []string{"runs"}, stdout: "a slot of its lane, place 4  and then?"},
		{name: "run", args: []string{"runs", "r-1"}, stdout: "reply to telegram:1 7: pending 429"},
		{name: "no runs", args: []string{"runs", "--state", "ended"}, stdout: "no runs\n"},
		{name: "no open runs", args: []string{"runs", "--session", "agent:idle:main"}, stdout: "no open runs; those that have ended: laneway runs --state ended\n"},
		{name: "why", args: []string{"why", "r-1"}, stdout: "later and worked for "},
		{name: "why none", args: []string{"why", "none"}, code: exitFailure, stderr: "there is no run or message none"},
		{name: "no run", args: []string{"runs", "none"}, code: exitFailure, stderr: "there is no run none"},
		{name: "questions", args: []string{"questions"}, stdout: "1 Allow: once, 2 Deny  run the command “ls”"},
		{name: "question of another", args: []string{"questions", "list"}, stdout: "of telegram:1:7"},
		{name: "answer", args: []string{"questions", "answer", "q-1", "2"}, stdout: "The answer of gateway is 2.\n"},
		{name: "late answer", args: []string{"questions", "answer", "q-9", "1"}, code: exitFailure, stderr: "no open question"},
		{name: "tasks", args: []string{"tasks", "list"}, stdout: "t-1  coder  team  yielded"},
		{name: "task", args: []string{"tasks", "show", "t-1"}, stdout: "count the lines"},
		{name: "stop a task", args: []string{"tasks", "stop", "t-1"}, stdout: "stopped run-1"},
		{name: "stop of a task", args: []string{"tasks", "stop", "none"}, stdout: "nothing to stop in task none\n"},
		{name: "no task", args: []string{"tasks", "show", "none"}, code: exitFailure, stderr: "there is no task none"},
		{name: "wrong token", args: []string{"status"}, token: "wrong", code: exitFailure, stderr: wrongToken},
		{name: "send with a wrong token", args: []string{"send", "hello"}, token: "wrong", code: exitFailure, stderr: wrongToken},
		{name: "alive", args: []string{"health"}, stdout: "ok\n"},
		{name: "ready", args: []string{"health", "--ready", "--json"}, stdout: `"database": "ok"`},
		{name: "doctor", args: []string{"doctor"}, stdout: "accepted by gw-7"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.token == "" {
				row.token = "right"
			}
			b := newBench(row.stdin, "LANEWAY_URL", address, "LANEWAY_TOKEN", row.token, "HOME", t.TempDir())
			b.env.dial = dialAs("", 0)
			b.run(t, row.code, row.args...)
			if !strings.Contains(b.stdout.String(), row.stdout) || !strings.Contains(b.stderr.String(), row.stderr) {
				t.Errorf("stdout %q\nstderr %q\nwant %q and %q", b.stdout.String(), b.stderr.String(), row.stdout, row.stderr)
			}
		})
	}
}

// This is what the health check of a container receives from a gateway that answers and makes no progress.
func TestHealthFailsWhenNothingStartsAnyMore(t *testing.T) {
	t.Parallel()
	address := startGateway(t, &echoBackend{idle: 31 * time.Second})
	for _, args := range [][]string{{"health"}, {"health", "--json"}} {
		b := newBench("", "LANEWAY_URL", address, "HOME", t.TempDir())
		b.run(t, exitFailure, args...)
		if said := b.stdout.String() + b.stderr.String(); !strings.Contains(said, "stalled") {
			t.Errorf("%q said %q, want the word stalled", args, said)
		}
	}
}

// A server whose certificate has no known authority receives no request, and neither does another machine without TLS. On a loaded machine
// a TLS handshake can take longer than the ten seconds of the commands, so the limit here is a minute.
func TestNoCommandSendsItsTokenToAnUntrustedServer(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	untrusted := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "token"), []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const inClear = "would cross the network to 192.0.2.1 in clear; use wss://"
	for _, row := range []struct {
		name, url, token, says string
	}{
		{"a certificate of no known authority", untrusted.URL, "right", "certificate not trusted"},
		{"the same with the token of this machine", "wss" + strings.TrimPrefix(untrusted.URL, "https"), "", "certificate not trusted"},
		{"ws:// to another machine", "ws://192.0.2.1:18790", "right", inClear},
		{"http:// to another machine", "http://192.0.2.1:18790", "right", inClear},
		{"no scheme, another machine", "192.0.2.1:18790", "right", inClear},
	} {
		for _, args := range [][]string{{"status"}, {"send", "hello"}, {"cron", "list"}} {
			b := newBench("")
			values := map[string]string{"LANEWAY_URL": row.url, "LANEWAY_DATA": data, "LANEWAY_TOKEN": row.token}
			if row.token == "" {
				delete(values, "LANEWAY_TOKEN")
			}
			b.env.lookupEnv = func(name string) (string, bool) { v, found := values[name]; return v, found }
			b.env.dial = dialAs("", time.Minute)
			b.run(t, exitFailure, args...)
			if got := b.stderr.String(); !strings.Contains(got, row.says) || strings.Contains(got, "right") {
				t.Errorf("%s, %v: %q, want %q", row.name, args, got, row.says)
			}
		}
	}
	if requests.Load() != 0 {
		t.Errorf("the untrusted server got %d requests", requests.Load())
	}
}
