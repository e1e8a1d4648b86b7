package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/client"
	"laneway/internal/config"
)

// Before, a command during the start of the gateway failed with "gateway unavailable".
func TestACommandWaitsForAGatewayThatStarts(t *testing.T) {
	t.Parallel()
	starting := fmt.Errorf("%w: try again in a moment", client.ErrUnavailable)
	for name, row := range map[string]struct {
		args  []string
		ready time.Duration
		err   error
		code  int
	}{
		"starts in time":    {[]string{"send", "hello"}, 4 * time.Second, starting, exitOK},
		"takes too long":    {[]string{"send", "hello"}, time.Minute, starting, exitFailure},
		"not to wait":       {[]string{"send", "hello", "--connect-wait", "0"}, time.Second, starting, exitFailure},
		"no gateway at all": {[]string{"send", "hello"}, time.Second, client.ErrNoGateway, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench(""), time.Now()
				dial := b.env.dial
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if time.Since(began) < row.ready {
						return nil, row.err
					}
					return dial(ctx, to)
				}
				b.run(t, row.code, row.args...)
				if took := time.Since(began); took > 7*time.Second || row.code == exitFailure && errors.Is(row.err, client.ErrNoGateway) && took > 0 {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// Before, a command during the first laneway serve found no token file, which is created right
// before the gateway listens, and failed.
func TestACommandWaitsForTheFirstStartOfAGateway(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, row := range map[string]struct {
		args          []string
		token, listen time.Duration
		code          int
		took          time.Duration // at most
	}{
		"starts in time":     {[]string{"send", "hello"}, 2 * time.Second, 3 * time.Second, exitOK, 4 * time.Second},
		"no gateway":         {[]string{"send", "hello"}, never, never, exitFailure, 7 * time.Second},
		"it never listens":   {[]string{"send", "hello"}, 2 * time.Second, never, exitFailure, 7 * time.Second},
		"not to wait":        {[]string{"send", "hello", "--connect-wait", "0"}, 2 * time.Second, 3 * time.Second, exitFailure, 0},
		"not the first time": {[]string{"send", "hello"}, 0, never, exitFailure, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench("", "LANEWAY_DATA", data), time.Now()
				lookup, dial := b.env.lookupEnv, b.env.dial
				b.env.lookupEnv = func(name string) (string, bool) {
					if name == "LANEWAY_TOKEN" {
						return "", false
					}
					return lookup(name)
				}
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if time.Since(began) < row.listen {
						return nil, client.ErrNoGateway
					}
					return dial(ctx, to)
				}
				write := func() {
					if err := os.WriteFile(config.TokenPath(data), []byte("right"), 0o600); err != nil {
						t.Error(err)
					}
				}
				if row.token == 0 {
					write()
				} else {
					defer time.AfterFunc(row.token, write).Stop()
				}
				b.run(t, row.code, row.args...)
				if took := time.Since(began); took > row.took {
					t.Errorf("it took %s, want at most %s", took, row.took)
				}
				if row.token == never && !strings.Contains(b.stderr.String(), "start a gateway with laneway serve") {
					t.Errorf("it printed %q", b.stderr.String())
				}
			})
		})
	}
}

// With several replicas, a command uses the first that serves, and waits while all of them refuse.
func TestACommandTriesSeveralGateways(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		serves string        // the address that serves
		after  time.Duration // start of its service
		refuse error
		code   int
	}{
		"the first":                         {"ws://a:1", 0, client.ErrNoGateway, exitOK},
		"the second":                        {"wss://b", 0, client.ErrNoGateway, exitOK},
		"the second, the first is starting": {"wss://b", 0, client.ErrUnavailable, exitOK},
		"the second, after two seconds":     {"wss://b", 2 * time.Second, client.ErrNoGateway, exitOK},
		"none":                              {"", 0, client.ErrNoGateway, exitFailure},
		"a wrong token":                     {"wss://b", 0, client.ErrUnauthorized, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, began := newBench(""), time.Now()
				dial := b.env.dial
				b.env.dial = func(ctx context.Context, to target) (gatewayConn, error) {
					if to.URL != row.serves || time.Since(began) < row.after {
						return nil, row.refuse
					}
					return dial(ctx, to)
				}
				b.run(t, row.code, "send", "hello", "--url", "a:1", "--url", "https://b")
			})
		})
	}
}

// hostile is a server that accepts a message and then sends invalid frames.
func hostile(t *testing.T, then func(ws *websocket.Conn)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		send := func(text string) { _ = ws.WriteMessage(websocket.TextMessage, []byte(text)) }
		send(`{"type":"event","event":"connect.challenge","payload":{"nonce":"n","ts":1}}`)
		for {
			var req struct{ ID, Method string }
			if ws.ReadJSON(&req) != nil {
				return
			}
			switch req.Method {
			case "connect": //nolint:usestdlibvars // a method of the protocol
				send(`{"type":"res","id":"connect","ok":true,"payload":{"type":"hello-ok","protocol":4,"policy":{"tickIntervalMs":30000}}}`)
			case "chat.send":
				send(`{"type":"res","id":"` + req.ID + `","ok":true,"payload":{"runId":"r","status":"started"}}`)
				then(ws)
			default:
				send(`{"type":"res","id":"` + req.ID + `","ok":false,"error":{"code":"UNAVAILABLE","message":"not now"}}`)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestSendEndsWhenWhatAnswersDoesNotKeepToTheProtocol(t *testing.T) {
	t.Parallel()
	const depth = 20_000 // deeper than encoding/json accepts
	text := func(s string) func(ws *websocket.Conn) {
		return func(ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(s)) }
	}
	for name, c := range map[string]struct {
		then func(ws *websocket.Conn)
		says string
	}{
		"an oversized frame":             {text(strings.Repeat(" ", 33<<20)), "more than 32 MiB"},
		"deep JSON":                      {text(strings.Repeat("[", depth) + strings.Repeat("]", depth)), "no frame"},
		"a deep payload":                 {text(`{"type":"event","event":"chat","seq":1,"payload":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`), "no frame"},
		"no JSON":                        {text("hello"), "no frame"},
		"a chat event of another form":   {text(`{"type":"event","event":"chat","seq":1,"payload":{"runId":{"a":1}}}`), "not understood"},
		"events whose numbers have gaps": {text(`{"type":"event","event":"whatever","seq":7,"payload":{}}`), "without an event of the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench("", "LANEWAY_URL", "ws"+strings.TrimPrefix(hostile(t, c.then).URL, "http"))
			b.env.dial = dialAs("", 0)
			began := time.Now()
			b.run(t, exitFailure, "send", "hello", "--timeout", "5m")
			if said := b.stderr.String(); !strings.Contains(said, c.says) || strings.Count(strings.TrimSpace(said), "\n") > 0 {
				t.Errorf("it said %q, want one sentence with %q", said, c.says)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// The input of the command never arrives. The command is abandoned after the grace period, or at
// the second signal.
func TestASignalEndsACommandThatReads(t *testing.T) {
	t.Parallel()
	for name, twice := range map[string]bool{"one signal": false, "two signals": true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench("")
			silent, writer := io.Pipe()
			now := make(chan struct{})
			b.env.stdin, b.env.signals = silent, Signals{Now: now}
			ctx, signalled := context.WithCancelCause(t.Context())
			code := make(chan int, 1)
			go func() { code <- run(ctx, []string{"send", "-"}, b.env) }()
			synctest.Wait()
			began := time.Now()
			signalled(ErrInterrupted)
			if twice {
				synctest.Wait()
				close(now)
			}
			want := map[bool]time.Duration{false: signalGrace, true: 0}[twice]
			if got := <-code; got != exitFailure || time.Since(began) != want {
				t.Errorf("%s: ended with %d after %s, want %d after %s", name, got, time.Since(began), exitFailure, want)
			}
			if !strings.Contains(b.stderr.String(), "interrupted") {
				t.Errorf("%s: printed %q", name, b.stderr.String())
			}
			_ = writer.Close() // ends the abandoned read
			synctest.Wait()
		})
	}
}

func TestAnImportReadsRegularFilesOfABoundedSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, large := filepath.Join(dir, "pipe"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxJobsFile+1); err != nil { // sparse
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is not a regular file", "/dev/zero": "is not a regular file", large: "has more than 32 MiB"} {
		b := newBench("")
		b.run(t, exitFailure, "cron", "import", path)
		if !strings.Contains(b.stderr.String(), want) {
			t.Errorf("%s: printed %q, want %q in it", path, b.stderr.String(), want)
		}
	}
}
