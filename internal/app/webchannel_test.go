package app_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/agent"
	"laneway/internal/agent/echo"
	"laneway/internal/channel"
	"laneway/internal/channel/channeltest"
	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/store"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

// TestTheWebIsAChannel runs the contract of channels for the web channel. Messages are sent by the dispatcher into a transcript; a person's
// messages come from a WebSocket client through the gateway and the dispatcher to the store. The contract's receiver is called before that
// store.
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

// faultyStore fails or blocks on demand, and passes every message to the contract's receiver before it is durable.
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
