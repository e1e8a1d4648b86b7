package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"laneway/internal/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token    = "the-token"
	patience = 15 * time.Second
)

// server implements the protocol with a script: after the handshake, answer handles every request.
type server struct {
	t      *testing.T
	http   *httptest.Server
	tokens atomic.Int64 // how many times a client sent its token
	// hello is the response to connect; "" = the default.
	hello string
	// answer handles one request of an authenticated client; false = close.
	answer func(ws *websocket.Conn, id, method string) bool
	// mute sends no challenge. tick is the interval of ticks in milliseconds; 0 = the default.
	mute bool
	tick int
}

func newServer(t *testing.T, answer func(ws *websocket.Conn, id, method string) bool) *server {
	t.Helper()
	s := &server{t: t, answer: answer}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) url() string { return "ws" + strings.TrimPrefix(s.http.URL, "http") }

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	if !s.mute {
		_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"event","event":"connect.challenge","payload":{"nonce":"n","ts":1}}`))
	}
	if !s.handshake(ws) {
		return
	}
	for {
		var req struct{ ID, Method string }
		if ws.ReadJSON(&req) != nil || !s.answer(ws, req.ID, req.Method) {
			return
		}
	}
}

func (s *server) handshake(ws *websocket.Conn) bool {
	var req struct {
		Params struct {
			Auth   struct{ Token string }
			Scopes []string
			Caps   []string
		}
	}
	if ws.ReadJSON(&req) != nil {
		return false
	}
	s.tokens.Add(1)
	switch {
	case s.hello != "":
		_ = ws.WriteMessage(websocket.TextMessage, []byte(s.hello))
		return false
	case req.Params.Auth.Token != token:
		fail(ws, "connect", `{"code":"INVALID_REQUEST","message":"unauthorized: gateway token mismatch","details":{"code":"AUTH_TOKEN_MISMATCH"}}`)
		return false
	}
	ok(ws, "connect", fmt.Sprintf(`{"type":"hello-ok","protocol":4,"server":{"version":"9","bootId":"b","connId":"c"},`+
		`"auth":{"role":"operator","scopes":["operator.read"]},"policy":{"maxPayload":1048576,"tickIntervalMs":%d}}`, s.tick))
	return true
}

func ok(ws *websocket.Conn, id, payload string) {
	_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"res","id":%q,"ok":true,"payload":%s}`, id, payload))
}

func fail(ws *websocket.Conn, id, e string) {
	_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"res","id":%q,"ok":false,"error":%s}`, id, e))
}

func event(ws *websocket.Conn, seq int) {
	_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"type":"event","event":"tick","payload":{"ts":%d},"seq":%d}`, seq, seq))
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return c
}

func dial(t *testing.T, s *server) *client.Conn {
	t.Helper()
	c, err := client.Dial(ctx(t), client.Options{URL: s.url(), Token: token})
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestCallsAreAnsweredInAnyOrder(t *testing.T) {
	t.Parallel()
	var first string // used only by the server's goroutine
	c := dial(t, newServer(t, func(ws *websocket.Conn, id, method string) bool {
		if method == "slow" {
			first = id
			event(ws, 1)
			return true
		}
		ok(ws, id, `{"n":2}`)
		ok(ws, first, `{"n":1}`)
		return true
	}))
	if h := c.Hello(); h.Server.Version != "9" || h.Auth.Scopes[0] != "operator.read" {
		t.Errorf("hello %+v", h)
	}
	type result struct{ N int }
	var one, two result
	slow := make(chan error, 1)
	go func() { slow <- c.Call(context.Background(), "slow", nil, &one) }()
	<-c.Events() // the slow event has arrived
	if err := c.Call(ctx(t), "quick", nil, &two); err != nil || two.N != 2 {
		t.Errorf("quick: %v %+v", err, two)
	}
	if err := <-slow; err != nil || one.N != 1 {
		t.Errorf("slow: %v %+v", err, one)
	}
}

func TestSilentGatewayIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(*websocket.Conn, string, string) bool { return true })
	s.tick = 10
	c := dial(t, s)
	if err := c.Call(ctx(t), "health", nil, nil); !errors.Is(err, client.ErrClosed) || !strings.Contains(err.Error(), "silent for 20ms") {
		t.Errorf("call: %v, want an end after two ticks of silence", err)
	}
}

func TestRefusalIsAnErrorWithItsCodes(t *testing.T) {
	t.Parallel()
	c := dial(t, newServer(t, func(ws *websocket.Conn, id, _ string) bool {
		fail(ws, id, `{"code":"UNAVAILABLE","message":"queue full","details":{"code":"QUEUE_FULL","cap":10},"retryable":true,"retryAfterMs":1500}`)
		return true
	}))
	err := c.Call(ctx(t), "chat.send", map[string]any{}, nil)
	var e *client.Error
	if !errors.As(err, &e) || e.Code != "UNAVAILABLE" || e.DetailCode != "QUEUE_FULL" || !e.Retryable || e.RetryAfter != 1500*time.Millisecond {
		t.Errorf("%#v", err)
	}
	if err.Error() != "queue full" {
		t.Errorf("sentence %q", err)
	}
}

func TestConnectionThatIsLostEndsItsCalls(t *testing.T) {
	t.Parallel()
	c := dial(t, newServer(t, func(ws *websocket.Conn, _, _ string) bool {
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1012, "gateway is stopping"), time.Now().Add(time.Second))
		return false
	}))
	err := c.Call(ctx(t), "health", nil, nil)
	if !errors.Is(err, client.ErrClosed) || !strings.Contains(err.Error(), "restarting") {
		t.Errorf("call: %v", err)
	}
	<-c.Done()
	if _, open := <-c.Events(); open {
		t.Error("the events are not closed")
	}
	if err := c.Call(ctx(t), "health", nil, nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a call afterwards: %v", err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := dial(t, newServer(t, func(*websocket.Conn, string, string) bool { return true }))
	gone, cancel := context.WithCancelCause(ctx(t))
	cancel(errors.New("enough"))
	if err := c.Call(gone, "health", nil, nil); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("call: %v, want the cause", err)
	}
	if c.Err() != nil {
		t.Errorf("the connection ended with the call: %v", c.Err())
	}
}

func TestEventsThatAreNotTakenLeaveAGap(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(ws *websocket.Conn, id, method string) bool {
		from, to := 1, 5
		if method == "more" {
			from, to = 6, 6
		}
		for i := from; i <= to; i++ {
			event(ws, i)
		}
		ok(ws, id, `{}`)
		return true
	})
	c, err := client.Dial(ctx(t), client.Options{URL: s.url(), Token: token, EventBuffer: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(ctx(t), "flood", nil, nil); err != nil {
		t.Fatalf("events that the caller does not take hold up a call: %v", err)
	}
	for i, gap := range []bool{false, false} {
		if ev := <-c.Events(); ev.Seq != uint64(i+1) || ev.Gap != gap || ev.Name != "tick" {
			t.Errorf("event %+v", ev)
		}
	}
	if err := c.Call(ctx(t), "more", nil, nil); err != nil {
		t.Fatal(err)
	}
	if ev := <-c.Events(); ev.Seq != 6 || !ev.Gap {
		t.Errorf("after the loss: %+v, want a gap", ev)
	}
}

func TestErrorsOfDiallingSayWhatToDo(t *testing.T) {
	t.Parallel()
	closed := "ws://127.0.0.1:1" // a port that was free a moment ago may belong to another test now
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	status := func(code int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	script := func(hello string) string {
		s := newServer(t, nil)
		s.hello = hello
		return s.url()
	}
	mute := newServer(t, nil)
	mute.mute = true
	for _, tc := range []struct {
		name, url, token string
		is               error
		says             string
	}{
		{"no process listens", closed, token, client.ErrNoGateway, "laneway serve"},
		{"a web server", web.URL, token, client.ErrNoGateway, "something else answers"},
		{"wrong token", newServer(t, nil).url(), "wrong", client.ErrUnauthorized, "token file"},
		{"no token", script(`{"type":"res","id":"connect","ok":false,"error":{"code":"INVALID_REQUEST","message":"m","details":{"code":"AUTH_TOKEN_MISSING"}}}`), "", client.ErrUnauthorized, "--token"},
		{"locked out", script(`{"type":"res","id":"connect","ok":false,"error":{"code":"UNAVAILABLE","message":"m","details":{"code":"AUTH_RATE_LIMITED"},"retryAfterMs":42000}}`), token, client.ErrUnauthorized, "wait 42s"},
		{"version", script(`{"type":"res","id":"connect","ok":false,"error":{"code":"INVALID_REQUEST","message":"m","details":{"code":"PROTOCOL_MISMATCH"}}}`), token, client.ErrVersion, "update"},
		{"another version", script(`{"type":"res","id":"connect","ok":true,"payload":{"protocol":3}}`), token, client.ErrVersion, "version 3"},
		{"starting", script(`{"type":"res","id":"connect","ok":false,"error":{"code":"UNAVAILABLE","message":"gateway starting"}}`), token, client.ErrUnavailable, "try again"},
		{"full", status(503, `{"ok":false,"error":{"code":"UNAVAILABLE","message":"too many"}}`), token, client.ErrUnavailable, "try again"},
		{"host", status(421, `{"ok":false,"error":{"code":"INVALID_REQUEST","message":"unknown host"}}`), token, nil, "LANEWAY_ALLOWED_HOSTS"},
		{"origin", status(403, `{"ok":false,"error":{"code":"FORBIDDEN","message":"this origin is not allowed"}}`), token, nil, "403"},
		{"silent", mute.url(), token, client.ErrNoGateway, "in time"},
		{"plain off the machine", "ws://gateway.example.org", token, client.ErrPlain, "wss://"},
		{"plain http off the machine", "http://192.0.2.1:18790", token, client.ErrPlain, "wss://"},
		{"no URL", "18790", token, nil, "ws://127.0.0.1:18790"},
		{"scheme", "ftp://localhost", token, nil, "ftp"},
		{"token in the URL", "ws://localhost/?token=hush", token, nil, "LANEWAY_TOKEN"},
		{"password in the URL", "ws://me:hush@localhost/", token, nil, "LANEWAY_TOKEN"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := client.Dial(ctx(t), client.Options{URL: tc.url, Token: tc.token, Timeout: time.Second})
			if err == nil {
				_ = c.Close()
				t.Fatal("no error")
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q does not say %q", err, tc.says)
			}
			if said := (*client.Error)(nil); errors.Is(err, client.ErrUnauthorized) && (!errors.As(err, &said) || strings.Contains(err.Error(), "unauthorized")) {
				t.Errorf("%q says it twice, or what the gateway said is lost: %v", err, said)
			}
			if strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), token) {
				t.Errorf("%q shows a secret", err)
			}
		})
	}
	if n := mute.tokens.Load(); n != 0 {
		t.Errorf("the token was sent %d times without a challenge", n)
	}
}

func TestPlainConnectionToAnotherMachineNeedsToBeAllowed(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(ctx(t))
	cancel() // nothing is dialled; the address is checked first
	opts := client.Options{URL: "ws://gateway.example.org", Token: token}
	if _, err := client.Dial(gone, opts); !errors.Is(err, client.ErrPlain) {
		t.Errorf("without leave: %v", err)
	}
	opts.AllowPlain = true
	if _, err := client.Dial(gone, opts); errors.Is(err, client.ErrPlain) || !errors.Is(err, client.ErrNoGateway) {
		t.Errorf("with leave: %v", err)
	}
}

// A gateway with too many unauthenticated sockets closes the oldest of them. That client did
// nothing wrong.
func TestAConnectionThatGaveWayMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	for name, closes := range map[string]func(ws *websocket.Conn){
		"instead of the challenge": func(ws *websocket.Conn) {
			_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseTryAgainLater, "too many"), time.Now().Add(patience))
		},
		"after it": func(ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"event","event":"connect.challenge","payload":{"nonce":"n","ts":1}}`))
			_, _, _ = ws.ReadMessage()
			_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseTryAgainLater, "too many"), time.Now().Add(patience))
		},
		"before the upgrade": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if closes == nil {
					panic(http.ErrAbortHandler) // closes the connection without an answer
				}
				up := websocket.Upgrader{}
				ws, err := up.Upgrade(w, r, nil)
				if err != nil {
					return
				}
				defer ws.Close()
				closes(ws)
				_, _, _ = ws.ReadMessage()
			}))
			defer s.Close()
			_, err := client.Dial(ctx(t), client.Options{URL: "ws" + strings.TrimPrefix(s.URL, "http"), Token: token})
			if !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("Dial: %v, want it to be unavailable for the moment", err)
			}
		})
	}
}

// secure is a gateway with TLS, with the self-signed certificate of httptest for 127.0.0.1 and
// example.com.
func secure(t *testing.T) (s *server, requests *atomic.Int64) {
	t.Helper()
	s, requests = &server{t: t}, &atomic.Int64{}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		s.serve(w, r)
	}))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs each handshake that the client aborts
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	return s, requests
}

// trusting accepts certificates that the certificate of s signed, at the time at.
func trusting(s *server, at time.Time) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.http.Certificate())
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Time: func() time.Time { return at }}
}

func TestOnlyAGatewayWithItsOwnCertificateReceivesData(t *testing.T) {
	t.Parallel()
	s, requests := secure(t)
	here := s.url() // wss://127.0.0.1:PORT
	named := strings.Replace(here, "127.0.0.1", "localhost", 1)
	for _, tc := range []struct {
		name, url string
		tls       *tls.Config
		says      string
	}{
		{"signed by no trusted authority", here, nil, "unknown authority"},
		{"of another host", named, trusting(s, time.Now()), "not localhost"},
		{"expired", here, trusting(s, time.Now().AddDate(200, 0, 0)), "expired"},
		{"not yet valid", here, trusting(s, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)), "not yet valid"},
		{"with https for wss", strings.Replace(here, "wss", "https", 1), nil, "unknown authority"},
	} {
		c, err := client.Dial(ctx(t), client.Options{URL: tc.url, Token: token, TLS: tc.tls})
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: the client took the certificate", tc.name)
			continue
		}
		if !errors.Is(err, client.ErrUntrusted) || errors.Is(err, client.ErrNoGateway) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if n := requests.Load() + s.tokens.Load(); n != 0 {
		t.Errorf("a gateway that proves nothing heard %d requests", n)
	}
	c, err := client.Dial(ctx(t), client.Options{URL: here, Token: token, TLS: trusting(s, time.Now())})
	if err != nil {
		t.Fatalf("with a certificate that is trusted: %v", err)
	}
	_ = c.Close()
	if s.tokens.Load() != 1 {
		t.Errorf("the token was sent %d times, want once", s.tokens.Load())
	}
}

// Another process that listens at the gateway's address must not receive the token from a client
// that follows redirects, downgrades or sends first.
func TestTheTokenGoesNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere := newServer(t, nil)
	var heard atomic.Int64
	redirect := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization") + r.Header.Get("Cookie") + r.URL.RawQuery; auth != "" {
			t.Errorf("the upgrade carries %q", auth)
		}
		heard.Add(1)
		http.Redirect(w, r, elsewhere.http.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(redirect.Close)
	plain := newServer(t, nil)
	wrongWord := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		event(ws, 1)
		if _, data, err := ws.ReadMessage(); err == nil {
			t.Errorf("without a challenge the client said %s", data)
		}
	}))
	t.Cleanup(wrongWord.Close)
	for name, url := range map[string]string{
		"redirected": redirect.URL, "no TLS behind wss": strings.Replace(plain.url(), "ws:", "wss:", 1), "no challenge": wrongWord.URL,
	} {
		if c, err := client.Dial(ctx(t), client.Options{URL: url, Token: token}); err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", name)
		}
	}
	if heard.Load() != 1 {
		t.Errorf("the redirecting server was asked %d times", heard.Load())
	}
	if n := elsewhere.tokens.Load() + plain.tokens.Load(); n != 0 {
		t.Errorf("the token went out %d times", n)
	}
}
