package gateway_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

// benchSocket returns an authenticated socket without the checks of a test.
func benchSocket(tb testing.TB, addr string) *websocket.Conn {
	tb.Helper()
	ws, err := dialWith(websocket.DefaultDialer, "ws://"+addr+"/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, _, err := ws.ReadMessage(); err != nil {
		tb.Fatal(err)
	}
	if err := ws.WriteJSON(connectFrame(adminToken)); err != nil {
		tb.Fatal(err)
	}
	if _, data, err := ws.ReadMessage(); err != nil || !strings.Contains(string(data), "hello-ok") {
		tb.Fatalf("connect: %v %s", err, data)
	}
	return ws
}

func benchGateway(tb testing.TB) (addr string) {
	tb.Helper()
	srv, err := gateway.New(gateway.Config{
		Credentials: credentials(), RequestsPerSecond: auth.Off, Limits: auth.Limits{ChatsPerMinute: auth.Off},
		MaxSockets: 20_000, MaxUnauthenticated: 20_000, MaxUnauthenticatedPerAddr: 20_000, MaxPerPrincipal: 20_000,
	}, newCore(tb), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	return l.Addr().String()
}

// roundTrips sends requests on 64 connections as fast as possible.
func roundTrips(b *testing.B, dial func() *websocket.Conn, ask []byte) {
	b.Helper()
	const conns = 64
	work := make(chan struct{})
	var clients sync.WaitGroup
	for range conns {
		ws := dial()
		defer ws.Close()
		clients.Go(func() {
			for range work {
				if err := ws.WriteMessage(websocket.TextMessage, ask); err != nil {
					b.Error(err)
					return
				}
				if _, _, err := ws.ReadMessage(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	clients.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkHealthRoundTrip(b *testing.B) {
	addr := benchGateway(b)
	roundTrips(b, func() *websocket.Conn { return benchSocket(b, addr) }, []byte(`{"type":"req","id":"1","method":"health"}`))
}

// BenchmarkRawEcho measures the same traffic without a gateway, as the baseline of the library and
// the machine.
func BenchmarkRawEcho(b *testing.B) {
	answer := make([]byte, 330)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
			if err := ws.WriteMessage(websocket.TextMessage, answer); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	roundTrips(b, func() *websocket.Conn {
		ws, err := dialWith(websocket.DefaultDialer, "ws"+strings.TrimPrefix(srv.URL, "http"), nil)
		if err != nil {
			b.Fatal(err)
		}
		return ws
	}, []byte(`{"type":"req","id":"1","method":"health"}`))
}
