package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/gateway"
)

// addressedListener is a listener whose connections have a configurable client address and a small send buffer.
type addressedListener struct {
	net.Listener

	from atomic.Pointer[net.TCPAddr]
}

type passer struct {
	net.Conn

	from net.Addr
}

func (p passer) RemoteAddr() net.Addr { return p.from }

func (s *addressedListener) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return passer{c, s.from.Load()}, nil
}

func startAddressed(t *testing.T, change ...func(*gateway.Config)) (*bench, *addressedListener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &addressedListener{Listener: l}
	s.from.Store(&net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 1})
	h := newFakeBackend(t)
	return serveOn(t, s, h, h, change...), s
}

func (b *bench) plain() net.Conn {
	b.t.Helper()
	c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// inquire sends a request on the connection and returns the status, or 0 when the connection was closed instead.
func inquire(c net.Conn, path, token string) int {
	head := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n"
	if token != "" {
		head += "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// A client sends requests and reads no answers. The gateway closes the connection when a write exceeds its timeout.
func TestClientThatNeverReadsItsAnswersLosesTheConnection(t *testing.T) {
	t.Parallel()
	b, _ := startAddressed(t, func(c *gateway.Config) { c.Deadlines.Write = 200 * time.Millisecond })
	c := b.plain()
	for {
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the gateway still waits for a client that does not read")
		} else if err != nil {
			return // reset
		}
	}
}

// Connections without a credential count towards the limit of their address; beyond it, the oldest is closed. A connection that presents a
// credential, becomes a socket or ends no longer counts.
func TestConnectionsCountForTheirAddressFromTheBeginning(t *testing.T) {
	t.Parallel()
	b, s := startAddressed(t, func(c *gateway.Config) {
		c.MaxUnauthenticatedPerAddr = 3
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	})
	fakeSession := func(when string) net.Conn {
		t.Helper()
		c := b.plain()
		if status := inquire(c, "/healthz", ""); status != http.StatusOK {
			t.Errorf("%s: status %d", when, status)
		}
		return c
	}
	gone := func(when string, c net.Conn) {
		t.Helper()
		if status := inquire(c, "/healthz", ""); status != 0 {
			t.Errorf("%s: the oldest connection is answered with %d, want closed", when, status)
		}
	}
	first, second, third := fakeSession("first"), fakeSession("second"), fakeSession("third")
	fourth := fakeSession("fourth")
	gone("four without a credential", first)
	if status := inquire(second, "/v1/models", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: status %d", status)
	}
	fifth := fakeSession("a wrong token proves nothing")
	gone("a wrong token proves nothing", second)
	if status := inquire(third, "/v1/models", readToken); status != http.StatusOK {
		t.Errorf("the right token: status %d", status)
	}
	ws, res, err := websocket.DefaultDialer.Dial("ws://"+b.addr+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	_ = res.Body.Close()
	fakeSession("a socket counts elsewhere")
	for name, c := range map[string]net.Conn{"one that has proven who it is": third, "the fourth": fourth, "the fifth": fifth} {
		if status := inquire(c, "/healthz", ""); status != http.StatusOK {
			t.Errorf("%s: status %d", name, status)
		}
	}
	for _, from := range []net.IP{net.IPv4(203, 0, 113, 8), net.IPv4(198, 51, 100, 1), net.IPv4(127, 0, 0, 1)} {
		s.from.Store(&net.TCPAddr{IP: from, Port: 1})
		for range 3 {
			fakeSession(from.String())
		}
	}
	for _, from := range []net.IP{net.IPv4(198, 51, 100, 1), net.IPv4(127, 0, 0, 1)} { // many people may share these addresses
		s.from.Store(&net.TCPAddr{IP: from, Port: 1})
		fakeSession(from.String())
	}
}
