package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that sent a large body with "Connection: close", as proxies do, got a reset instead of the refusal: the server closed the connection with unread bytes.
func TestTheRefusalOfALargeBodyIsReadByAClientThatStillSends(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t)
	for name, tc := range map[string]struct {
		path, token string
		length      int
		status      int
	}{
		"over the limit":          {completionsPath, writeToken, 2 << 20, http.StatusRequestEntityTooLarge},
		"not read at all":         {filesPath, writeToken, 64 << 20, http.StatusRequestEntityTooLarge},
		"without a credential":    {completionsPath, "wrong", 2 << 20, http.StatusUnauthorized},
		"of a path that is not":   {"/none", writeToken, 2 << 20, http.StatusNotFound},
		"short, not read at all":  {"/none", writeToken, 100 << 10, http.StatusNotFound},
		"declared, but not there": {"/none", writeToken, 0, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			declared := max(tc.length, 10)
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
				tc.path, b.addr, tc.token, declared)
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() { // it ends with the connection
				_, err := io.Copy(conn, strings.NewReader(strings.Repeat("x", min(tc.length, 2<<20))))
				sent <- err
			}()
			ended := false
			defer func() {
				_ = conn.Close()
				if !ended {
					<-sent
				}
			}()
			time.Sleep(50 * time.Millisecond) // most clients give the request up when they cannot send it
			select {
			case err := <-sent:
				if ended = true; err != nil {
					t.Errorf("the connection ended while the request was sent: %v", err)
				}
			default: // it waits for the server, which does not read
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tc.status || len(text) == 0 {
				t.Errorf("%d %q, %v; want %d", resp.StatusCode, text, err, tc.status)
			}
		})
	}
}
