package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// unreadCase is a request that is refused before its body was read.
type unreadCase struct {
	path, token string
	length      int // of the Content-Length; at most 2 MiB are sent
	status      int
	late        bool // the body is sent after the answer has arrived
}

// Before, a client that sent a large body with "Connection: close", as proxies do, received a reset instead of the refusal: the server
// closed the connection with unread bytes.
func TestTheRefusalOfALargeBodyIsReadByAClientThatStillSends(t *testing.T) {
	t.Parallel()
	b, _ := startWithFiles(t)
	for name, tc := range map[string]unreadCase{
		"over the limit":          {path: completionsPath, token: writeToken, length: 2 << 20, status: http.StatusRequestEntityTooLarge},
		"not read at all":         {path: filesPath, token: writeToken, length: 64 << 20, status: http.StatusRequestEntityTooLarge},
		"without a credential":    {path: completionsPath, token: "wrong", length: 2 << 20, status: http.StatusUnauthorized},
		"of a path that is not":   {path: "/none", token: writeToken, length: 2 << 20, status: http.StatusNotFound},
		"short, not read at all":  {path: "/none", token: writeToken, length: 100 << 10, status: http.StatusNotFound},
		"declared, but not there": {path: "/none", token: writeToken, status: http.StatusNotFound},
		"after the answer":        {path: "/none", token: writeToken, length: 100 << 10, status: http.StatusNotFound, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lingers = 400 * time.Millisecond // less than the 500 ms for which the server waits before it closes the connection
			for attempt := 1; ; attempt++ {
				began := time.Now()
				err := sendUnread(t, b.addr, tc)
				took := time.Since(began)
				if err == nil {
					return
				}
				if took < lingers || attempt == 20 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("attempt %d, after %s: %v", attempt, took, err)
				}
				t.Logf("attempt %d took %s, the server may have stopped waiting: %v", attempt, took, err)
			}
		})
	}
}

// sendUnread sends the request and reads the answer up to the end of the connection, while the body is still being sent. The error is a
// reset of the connection, seen by the reader or the writer; an unexpected answer fails the test.
func sendUnread(t *testing.T, addr string, tc unreadCase) error {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		tc.path, addr, tc.token, max(tc.length, 10))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if tc.late {
		if _, err = in.Peek(1); err != nil {
			return fmt.Errorf("waiting for the answer: %w", err)
		}
	}
	sent := make(chan error, 1)
	go func() { // it ends with the deadline that is set below
		body := strings.NewReader(strings.Repeat("x", min(tc.length, 2<<20)))
		_, err := io.Copy(conn, struct{ io.Reader }{body}) // in pieces: the write after the one that causes a reset fails
		sent <- err
	}()
	status, text, readErr := readAnswer(in)
	_ = conn.SetWriteDeadline(time.Unix(1, 0)) // the server waits, so a body that is not fully sent by now may end here
	sendErr := <-sent
	if errors.Is(sendErr, os.ErrDeadlineExceeded) {
		sendErr = nil
	}
	if readErr == nil && (status != tc.status || text == "") {
		t.Fatalf("%d %q, want %d", status, text, tc.status)
	}
	return errors.Join(readErr, sendErr)
}

// readAnswer reads an answer and then up to the end of the connection, where a reset is an error, too.
func readAnswer(r *bufio.Reader) (status int, text string, err error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, "", fmt.Errorf("reading the answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	if err != nil {
		err = fmt.Errorf("reading the answer to its end: %w", err)
	}
	return resp.StatusCode, string(body), err
}
