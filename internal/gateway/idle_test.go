package gateway_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
)

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
