//go:build compat

package testcompat

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// The test waits for the real deadlines; the cases run in parallel.
func TestDeadlinesOfTheBorder(t *testing.T) {
	g := begin(t, "", "")
	t.Run("cases", func(t *testing.T) {
		t.Run("headers", func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", host(g))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: localhost\r\n")
			took(t, 10*time.Second, func() { _, _ = io.Copy(io.Discard, conn) })
		})
		t.Run("connect", func(t *testing.T) {
			t.Parallel()
			w := unauthenticated(t, g, nil)
			took(t, 15*time.Second, func() {
				if code, _ := w.ends(40 * time.Second); code != 1000 {
					t.Errorf("close %d, want 1000", code)
				}
			})
		})
		t.Run("a message that never ends", func(t *testing.T) {
			t.Parallel()
			w := unauthenticated(t, g, nil)
			w.login(token())
			_, _ = w.ws.NetConn().Write([]byte{0x01, 0x81, 0, 0, 0, 0, '{'})
			took(t, 30*time.Second, func() {
				if code, _ := w.ends(60 * time.Second); code != 1008 {
					t.Errorf("close %d, want 1008", code)
				}
			})
		})
		t.Run("no pong", func(t *testing.T) {
			t.Parallel()
			w := unauthenticated(t, g, nil)
			w.login(token())
			w.ws.SetPingHandler(func(string) error { return nil })
			took(t, 45*time.Second, func() {
				for {
					if _, err := w.read(80 * time.Second); err != nil {
						var late net.Error
						if errors.As(err, &late) && late.Timeout() {
							t.Errorf("still open: %v", err)
						}
						return
					}
				}
			})
		})
	})
}

// took checks a duration: at least as long as wanted, and not much longer.
func took(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if d := time.Since(began); d < want-time.Second || d > want+8*time.Second {
		t.Errorf("it took %s, want %s", d, want)
	}
}
