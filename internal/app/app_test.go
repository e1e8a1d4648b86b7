package app_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/echo"
	"laneway/internal/app"
	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/config"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
	"laneway/internal/testrun"
	"laneway/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience   = testrun.Patience
	ownerToken = "owner-token-0123456789-abcdefghijk"
	hookSecret = "hook-secret-0123456789-abcdefghijk"
)

// gatewayAt is a complete gateway in this process, with a store in its own directory.
type gatewayAt struct {
	t    *testing.T
	cfg  config.Config
	addr string
	// health is the snapshot of the last hello-ok.
	health wire.HealthResult
}

func start(t *testing.T) *gatewayAt {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "laneway.yaml")
	text := "listen: [\"127.0.0.1:0\"]\nmetrics_listen: \"off\"\ntoken: " + ownerToken + "\ndata: " + dir +
		"\nhooks:\n  deploy: {secret: " + hookSecret + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(config.Options{File: file, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := config.Preflight(loaded)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := plan.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- app.Run(ctx, app.Options{
			Loaded: loaded, Credentials: creds, Version: "test", Log: slog.New(slog.DiscardHandler),
			Ready: func(addresses []string) { ready <- addresses[0] }, LookupEnv: os.LookupEnv,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case addr := <-ready:
		return &gatewayAt{t: t, cfg: loaded.Config, addr: addr}
	case err := <-done:
		done <- nil
		t.Fatalf("the gateway ended: %v", err)
	case <-time.After(patience):
		t.Fatal("the gateway does not listen")
	}
	return nil
}

// connect opens a socket and requests every scope. It returns the granted scopes, or the message of
// the refusal.
func (g *gatewayAt) connect(token string) (ws *websocket.Conn, scopes []string, refused string) {
	g.t.Helper()
	ws, resp, err := websocket.DefaultDialer.Dial("ws://"+g.addr+"/ws", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	_ = resp.Body.Close()
	g.t.Cleanup(func() { _ = ws.Close() })
	if err := ws.WriteJSON(map[string]any{"type": "req", "id": "1", "method": "connect", "params": map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token},
		"scopes": []string{"operator.read", "operator.write", "operator.admin"},
		"client": map[string]string{"id": "t", "version": "1", "platform": "linux", "mode": "test"},
	}}); err != nil {
		g.t.Fatal(err)
	}
	_ = ws.SetReadDeadline(time.Now().Add(patience))
	for {
		var f struct {
			Type    string
			OK      bool
			Payload struct {
				Auth     struct{ Scopes []string }
				Snapshot struct{ Health wire.HealthResult }
			}
			Error struct{ Message string }
		}
		if err := ws.ReadJSON(&f); err != nil {
			g.t.Fatal(err)
		}
		if f.Type == "res" {
			g.health = f.Payload.Snapshot.Health
			return ws, f.Payload.Auth.Scopes, f.Error.Message
		}
	}
}

func TestTokensAreCheckedWhenTheyAreMade(t *testing.T) {
	t.Parallel()
	g := start(t)
	for name, r := range map[string]app.TokenRequest{
		"reserved":   {Name: "gateway", Scopes: []string{"read"}},
		"a hook's":   {Name: "hook:deploy", Scopes: []string{"read"}},
		"no scope":   {Name: "a"},
		"scope":      {Name: "a", Scopes: []string{"root"}},
		"visibility": {Name: "a", Scopes: []string{"read"}, Visible: "some"},
		"past":       {Name: "a", Scopes: []string{"read"}, ExpiresIn: -time.Hour},
	} {
		if _, _, err := app.CreateToken(t.Context(), g.cfg, r, "test"); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// systemd hears that the gateway listens, that it lives, and that it stops.
func TestServiceManagerHearsOfStartLifeAndStop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	states, read := make(chan string), make(chan struct{})
	go func() { // ends when the socket is closed
		defer close(read)
		for state := make([]byte, 100); ; {
			n, err := socket.Read(state)
			if err != nil {
				return
			}
			select {
			case states <- string(state[:n]):
			case <-time.After(patience): // the test has failed
			}
		}
	}()
	hears := func(want string) {
		t.Helper()
		for limit := time.After(patience); ; {
			select {
			case state := <-states:
				if state == want {
					return
				}
			case <-limit:
				t.Fatalf("it was not told %s", want)
			}
		}
	}
	t.Run("gateway", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", path)
		t.Setenv("WATCHDOG_USEC", "20000")
		stopping := make(chan bool, 1)
		t.Cleanup(func() { // when the gateway has ended
			if !<-stopping {
				t.Error("it was not told STOPPING=1")
			}
			_ = socket.Close()
			<-read
		})
		start(t)
		for _, state := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"} {
			hears(state)
		}
		go func() { // reads on while the gateway ends, and ends then
			for limit := time.After(patience); ; {
				select {
				case state := <-states:
					if state == "STOPPING=1" {
						stopping <- true
						for range 1000 {
							select {
							case <-states:
							case <-read:
								return
							}
						}
						return
					}
				case <-limit:
					stopping <- false
					return
				}
			}
		}()
	})
}

// TestTheWebIsAChannel runs the contract of channels for the web channel. Messages are sent by the
// dispatcher into a transcript; a person's messages come from a WebSocket client through the
// gateway and the dispatcher to the store. The contract's receiver is called before that store.
func TestTheWebIsAChannel(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, func(t *testing.T) channeltest.Harness {
		t.Helper()
		w := newWebWorld(t)
		return channeltest.Harness{
			Channel: w, Target: chat.Target{Channel: web.Name, ChatID: webSession.String()}, Incoming: &channeltest.Incoming{Key: "gateway/"},
			Say: func(text string) { w.say <- text }, Read: w.read,
			Outage: func(on bool) { w.store.down.Store(on) }, Hang: func(on bool) { w.store.hang.Store(on) },
		}
	})
}

var webSession = chat.SessionKey{Agent: "main", Rest: "room"}

// webWorld is the channel with all its dependencies, in a bubble.
type webWorld struct {
	*web.Channel

	t     *testing.T
	store *faultyStore
	d     *dispatch.Dispatcher
	lines chan net.Conn // connections that clients dialled
	say   chan string
}

// faultyStore fails or blocks on demand, and passes every message to the contract's receiver before
// it is durable.
type faultyStore struct {
	*sqlite.Store

	down, hang atomic.Bool
	receiver   atomic.Pointer[channel.Receiver]
}

func (s *faultyStore) fault(ctx context.Context) error {
	if s.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if s.down.Load() {
		return chat.ErrStoreUnavailable
	}
	return nil
}

func (s *faultyStore) Heartbeat(ctx context.Context, node string, draining bool) (store.Beat, error) {
	if err := s.fault(ctx); err != nil {
		return store.Beat{}, err
	}
	return s.Store.Heartbeat(ctx, node, draining)
}

func (s *faultyStore) AppendReply(ctx context.Context, p store.ReplyParams) (store.Replied, error) {
	if err := s.fault(ctx); err != nil {
		return store.Replied{}, err
	}
	return s.Store.AppendReply(ctx, p)
}

func (s *faultyStore) Accept(ctx context.Context, p store.AcceptParams) (store.Accepted, error) {
	receiver := s.receiver.Load()
	if receiver == nil {
		return store.Accepted{}, chat.ErrStoreUnavailable
	}
	if _, err := (*receiver).Receive(ctx, p.Message); err != nil {
		return store.Accepted{}, err
	}
	return s.Store.Accept(ctx, p)
}

// sink is the contract's receiver with the transcripts of the dispatcher.
type sink struct {
	channel.Receiver

	d *dispatch.Dispatcher
}

func (s sink) AppendReply(ctx context.Context, key chat.SessionKey, reply chat.Reply) (int64, error) {
	return s.d.AppendReply(ctx, key, reply)
}

func (s sink) Alive() error { return s.d.Alive() }

// Run implements [channel.Channel].
func (w *webWorld) Run(ctx context.Context, receiver channel.Receiver) error {
	w.store.receiver.Store(&receiver)
	defer w.store.receiver.Store(nil)
	return w.Channel.Run(ctx, sink{receiver, w.d})
}

func (w *webWorld) read() []string {
	tr, err := w.store.Transcript(w.t.Context(), store.TranscriptQuery{Session: webSession})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range tr.Entries {
		out = append(out, e.Text)
	}
	return out
}

func newWebWorld(t *testing.T) *webWorld {
	t.Helper()
	w := &webWorld{
		Channel: web.New(), t: t, store: &faultyStore{Store: sqlitetest.Open(t, sqlite.Config{})}, lines: make(chan net.Conn), say: make(chan string, 10),
	}
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	runner, err := echo.New(echo.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w.d, err = dispatch.New(t.Context(), dispatch.Config{Agents: []dispatch.Agent{{Info: agent.Info{ID: "main"}, Runner: runner}}},
		dispatch.Deps{Store: w.store, Commands: table, Needs: gateway.Needs(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := gateway.New(gateway.Config{
		Version: "test", Credentials: []auth.Credential{{Name: "gateway", Digest: sha256.Sum256([]byte(ownerToken)), Scopes: []string{chat.ScopeWrite}}},
	}, w.d, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := w.d.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	parts.Go(func() {
		if err := srv.Serve(ctx, pipeListener{w.lines, ctx.Done()}); err != nil {
			t.Error(err)
		}
	})
	parts.Go(func() { w.person(ctx) })
	t.Cleanup(func() {
		w.store.hang.Store(false)
		w.store.down.Store(false)
		if err := w.d.Drain(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		w.d.Leave(context.WithoutCancel(ctx))
		cancel()
		parts.Wait()
	})
	return w
}

// pipeListener accepts connections that clients dial, until ctx is done.
type pipeListener struct {
	lines chan net.Conn
	over  <-chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.lines:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (pipeListener) Close() error   { return nil }
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// person sends the given messages one after the other, each with its key until it was accepted.
func (w *webWorld) person(ctx context.Context) {
	for n := 0; ; n++ {
		select {
		case text := <-w.say:
			said := map[string]any{"sessionKey": webSession.String(), "message": text, "idempotencyKey": "say-" + strconv.Itoa(n)}
			if err := w.insist(ctx, said); err != nil && ctx.Err() == nil {
				w.t.Errorf("saying %q: %v", text, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// insist sends a message again while it is refused temporarily.
func (w *webWorld) insist(ctx context.Context, said map[string]any) error {
	for {
		err := w.send(ctx, said)
		r, ok := errors.AsType[*refusal](err)
		if !ok || !r.Retryable {
			return err
		}
		t := time.NewTimer(time.Duration(max(r.RetryAfterMs, 100)) * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// send makes one call on its own connection, as command lines do.
func (w *webWorld) send(ctx context.Context, said map[string]any) error {
	dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case w.lines <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	ws, resp, err := dialer.DialContext(ctx, "ws://localhost/", nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	defer ws.Close()
	stop := context.AfterFunc(ctx, func() { _ = ws.Close() })
	defer stop()
	c := &webClient{ws: ws}
	if err := c.call("connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "scopes": []string{"operator.write"}, "auth": map[string]any{"token": ownerToken},
		"client": map[string]any{"id": "test", "version": "1", "platform": "test", "mode": "test"},
	}); err != nil {
		return err
	}
	return c.call("chat.send", said)
}

// webClient is a client of the protocol that makes one call at a time.
type webClient struct {
	ws   *websocket.Conn
	last int
}

// refusal is the error of an answer.
type refusal struct {
	Code, Message string
	Retryable     bool
	RetryAfterMs  int64
}

func (r *refusal) Error() string { return r.Code + ": " + r.Message }

func (c *webClient) call(method string, params map[string]any) error {
	c.last++
	id := strconv.Itoa(c.last)
	if err := c.ws.WriteJSON(map[string]any{"type": "req", "id": id, "method": method, "params": params}); err != nil {
		return err
	}
	for {
		var f struct {
			ID    string
			OK    bool
			Error *refusal
		}
		if err := c.ws.ReadJSON(&f); err != nil {
			return err
		}
		switch {
		case f.ID != id:
		case f.OK:
			return nil
		default:
			return f.Error
		}
	}
}

func TestRevokedTokenLosesItsSocketsWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	g := start(t)
	_, secret, err := app.CreateToken(t.Context(), g.cfg, app.TokenRequest{Name: "ci", Scopes: []string{"write"}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	first, scopes := g.untilKnown(secret.Reveal())
	if strings.Join(scopes, " ") != "operator.read operator.write" {
		t.Errorf("scopes %v", scopes)
	}
	second, _, _ := g.connect(secret.Reveal())
	owner, _, _ := g.connect(ownerToken)
	revoked := time.Now()
	if err := app.RevokeToken(t.Context(), g.cfg, "ci", "test"); err != nil {
		t.Fatal(err)
	}
	for _, ws := range []*websocket.Conn{first, second} {
		if code := closeCode(ws); code != websocket.ClosePolicyViolation {
			t.Errorf("closed with %d, want 1008", code)
		}
	}
	if took := time.Since(revoked); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	if _, _, refused := g.connect(secret.Reveal()); refused == "" {
		t.Error("the revoked token is taken")
	}
	if err := owner.WriteJSON(map[string]any{"type": "req", "id": "2", "method": "health"}); err != nil {
		t.Errorf("the owner's socket: %v", err)
	}
	if list, err := app.ListTokens(t.Context(), g.cfg); err != nil || len(list) != 0 {
		t.Errorf("left %+v, %v", list, err)
	}
}

// untilKnown connects until a new token is accepted.
func (g *gatewayAt) untilKnown(token string) (*websocket.Conn, []string) {
	g.t.Helper()
	again := time.NewTicker(200 * time.Millisecond) // the list of tokens is read every two seconds
	defer again.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-again.C {
		ws, scopes, refused := g.connect(token)
		if refused == "" {
			return ws, scopes
		}
		_ = ws.Close()
	}
	g.t.Fatal("the new token is not taken")
	return nil, nil
}

func closeCode(ws *websocket.Conn) int {
	_ = ws.SetReadDeadline(time.Now().Add(patience))
	for {
		_, _, err := ws.ReadMessage()
		var closed *websocket.CloseError
		switch {
		case errors.As(err, &closed):
			return closed.Code
		case err != nil:
			return 0
		}
	}
}
