package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/testrun"
)

// A client stops reading while answers and events are sent to it. Everything before the close
// arrives in order, followed by 1013 or a reset. With the cursor, the client finds every message
// once.
func TestStoppedReaderLosesNothing(t *testing.T) {
	t.Parallel()
	counted := prometheus.NewRegistry()
	b := start(t, func(c *gateway.Config) {
		c.MaxBuffered, c.Metrics = 2<<20, counted                  // the fast reader never has half of that buffered
		c.Deadlines.Ping, c.Deadlines.Write = time.Hour, time.Hour // the connection must be closed because the client does not read, however slow the machine is
	})
	slow, quick := b.login(adminToken), b.login(adminToken)
	slow.must("sessions.subscribe", nil)
	if tcp, ok := slow.ws.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	cursor := slow.must("chat.history", params{"sessionKey": "main"})["deltaCursor"]
	for i := range 10 {
		slow.request(fmt.Sprint("q", i), "health", nil)
	}
	text := strings.Repeat("x", 100_000)
	for i := range 100 {
		id := fmt.Sprint("m", i)
		quick.must("chat.send", send("main", text+id, id))
		quick.next(chatState(id, "final"))
		if testrun.Counted(t, counted, "laneway_ws_closed_total")["slow"] > 0 {
			break
		}
	}
	testrun.Eventually(t, "the slow reader to be closed", func() bool { return testrun.Counted(t, counted, "laneway_ws_closed_total")["slow"] == 1 })
	var seq uint64
	for {
		f, err := slow.tryRead()
		var ce *websocket.CloseError
		if errors.As(err, &ce) && ce.Code != 1013 && ce.Code != websocket.CloseAbnormalClosure {
			t.Errorf("close %d, want 1013 or a reset", ce.Code)
		}
		if err != nil {
			break
		}
		if f.Type == "event" {
			if seq++; f.Seq != seq {
				t.Fatalf("seq %d, want %d", f.Seq, seq)
			}
		}
	}
	again := b.login(adminToken)
	seen := map[any]bool{}
	for {
		h := again.must("chat.history", params{"sessionKey": "main", "cursor": cursor, "limit": 5})
		cursor = h["deltaCursor"]
		messages := h["messages"].([]any)
		if len(messages) == 0 {
			break
		}
		for _, m := range messages {
			id := m.(params)["id"]
			if seen[id] {
				t.Fatalf("message %v twice", id)
			}
			seen[id] = true
		}
	}
	if total := again.must("chat.history", params{"sessionKey": "main", "limit": 1})["totalMessages"]; float64(len(seen)) != total {
		t.Errorf("%d messages by cursor, %v there are", len(seen), total)
	}
}

// Clients that send invalid frames as fast as possible do not delay other clients.
func TestFloodOfRubbish(t *testing.T) {
	t.Parallel()
	b := start(t)
	var flood sync.WaitGroup
	for i := range 8 {
		ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		flood.Go(func() {
			defer ws.Close()
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			junk := make([]byte, 512)
			_ = ws.WriteJSON(connectFrame(adminToken))
			for range 300 {
				for j := range junk {
					junk[j] = byte(rng.Uint32())
				}
				if _, err := ws.NetConn().Write(junk); err != nil {
					return
				}
			}
		})
	}
	s := b.login(adminToken)
	for i := range 50 {
		id := fmt.Sprint("k", i)
		s.must("chat.send", send("main", "hello", id))
		s.next(chatState(id, "final"))
	}
	flood.Wait()
	s.must("health", nil)
}

func TestMetricsCountWithClosedLabels(t *testing.T) {
	t.Parallel()
	counted := prometheus.NewRegistry()
	b := start(t, func(c *gateway.Config) { c.Metrics = counted })
	s := b.login(adminToken)
	s.must("health", nil)
	s.call("made up by the client", nil)
	s.call("chat.send", params{"bogus": 1})
	b.fakeBackend.set(func() { b.fakeBackend.refuse = chat.ErrQueueFull })
	s.call("chat.send", send("main", "x", "k"))
	wrong := b.dial()
	wrong.send(connectFrame("nope"))
	wrong.closed()
	_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), deadline())
	s.closed()
	for metric, values := range map[string][]string{
		"laneway_rpc_requests_total":  {"ok health", "INVALID_REQUEST unknown", "INVALID_REQUEST chat.send", "QUEUE_FULL chat.send"},
		"laneway_auth_failures_total": {"mismatch"},
		"laneway_ws_closed_total":     {"refused", "peer"},
	} {
		for _, value := range values {
			testrun.Eventually(t, metric+" "+value, func() bool { return testrun.Counted(t, counted, metric)[value] == 1 })
		}
	}
	if n := testrun.Counted(t, counted, "laneway_ws_connections"); len(n) != 0 {
		t.Errorf("%v connections are open, want none", n)
	}
}

// No connection exceeds its own limit. Together, five exceed the limit of their credential, which
// is four times as much; four do not.
func TestConnectionsThatDoNotReadAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	virtual(t, func(t *bubble) {
		reads := t.open().login(annaToken)
		var deaf []*socket
		for range 5 {
			s := t.open().login(annaToken)
			deaf = append(deaf, s)
			for i := range 100 { // responses of about 500 bytes each
				s.request(strconv.Itoa(i), "status", nil)
				if i%10 == 9 {
					synctest.Wait() // more concurrent calls than a connection may have are refused, and a refusal is short
				}
			}
		}
		pass(time.Second + time.Millisecond)
		closed := 0
		for _, s := range deaf {
			if s.ws.WriteMessage(websocket.TextMessage, []byte(`{}`)) != nil {
				closed++
			}
		}
		if closed != 1 {
			t.Errorf("%d of %d connections that do not read were closed, want one", closed, len(deaf))
		}
		if f := reads.call("status", nil); !f.OK {
			t.Errorf("the connection that reads: %+v", f.Error)
		}
		reads.ws.Close()
		for _, s := range deaf {
			s.ws.Close()
		}
	}, func(c *gateway.Config) { c.MaxBuffered = limit })
}

// reads counts the reads of the backend and of the source of credentials.
type reads struct {
	*fakeBackend
	n atomic.Int64
}

func (r *reads) Status(ctx context.Context) chat.SystemStatus {
	r.n.Add(1)
	return r.fakeBackend.Status(ctx)
}

func (r *reads) Credentials(context.Context) ([]auth.Credential, error) {
	r.n.Add(1)
	return nil, nil
}

// emptyListener accepts no connection until it is closed.
type emptyListener struct {
	once   sync.Once
	closed chan struct{}
}

func (l *emptyListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *emptyListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*emptyListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A status reads the database with several statements, and without a connection no client sees it.
func TestAGatewayWithoutClientsReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &reads{fakeBackend: newFakeBackend(t)}
		srv, err := gateway.New(gateway.Config{Credentials: credentials(), Sources: []auth.Source{r}}, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ctx, &emptyListener{closed: make(chan struct{})}) }()
		synctest.Wait()
		start := r.n.Load()
		time.Sleep(10 * time.Minute)
		if n := r.n.Load(); n != start || start == 0 {
			t.Errorf("the server read %d times at its start and %d times in ten minutes, want some and none", start, n-start)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
