package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
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
	b.core.set(func() { b.core.refuse = chat.ErrQueueFull })
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

// reads counts the reads of the backend and of the source of credentials.
type reads struct {
	*core
	n atomic.Int64
}

func (r *reads) Status(ctx context.Context) chat.SystemStatus {
	r.n.Add(1)
	return r.core.Status(ctx)
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
		r := &reads{core: newCore(t)}
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
