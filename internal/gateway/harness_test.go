package gateway_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/jobs"
	"laneway/internal/testrun"
	"laneway/internal/wire"
	"laneway/internal/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminToken = "admin-token-0123456789-0123456789"
	readToken  = "read-token-0123456789-0123456789"
	writeToken = "write-token-0123456789-0123456789"
	annaToken  = "anna-token-0123456789-0123456789"
	ottoToken  = "otto-token-0123456789-0123456789"
	patience   = testrun.Patience
)

func credentials() []auth.Credential {
	all := []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}
	cred := func(name, secret, visible string, scopes ...string) auth.Credential {
		return auth.Credential{Name: name, Digest: sha256.Sum256([]byte(secret)), Scopes: scopes, Visible: visible}
	}
	return []auth.Credential{
		cred("gateway", adminToken, "", all...),
		cred("read", readToken, "", chat.ScopeRead),
		cred("write", writeToken, "", chat.ScopeRead, chat.ScopeWrite),
		cred("anna", annaToken, auth.VisibleOwn, all...),
		cred("otto", ottoToken, auth.VisibleOwn, all...),
	}
}

// bench is a running gateway on a core.
type bench struct {
	t    *testing.T
	srv  *gateway.Server
	core *core
	addr string
	stop func() error
}

func start(t *testing.T, change ...func(*gateway.Config)) *bench {
	t.Helper()
	c := newCore(t)
	return serve(t, c, c, change...)
}

// serve starts a gateway with a backend, which is or embeds the core.
func serve(t *testing.T, c *core, backend gateway.Backend, change ...func(*gateway.Config)) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, c, backend, change...)
}

// withBook gives a gateway jobs.
func withBook(book jobs.Backend) func(*gateway.Config) {
	return func(c *gateway.Config) { c.Jobs = book }
}

func serveOn(t *testing.T, l net.Listener, c *core, backend gateway.Backend, change ...func(*gateway.Config)) *bench {
	t.Helper()
	cfg := gateway.Config{Version: "0.1.0", Credentials: credentials(), Usage: usageOfMarch{}}
	for _, f := range change {
		f(&cfg)
	}
	srv, err := gateway.New(cfg, backend, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	b := &bench{t: t, srv: srv, core: c, addr: l.Addr().String()}
	b.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-served:
			return err
		case <-time.After(patience):
			return errors.New("Serve did not return")
		}
	})
	t.Cleanup(func() {
		if err := b.stop(); err != nil && cfg.StopTimeout == 0 {
			t.Errorf("Serve: %v", err)
		}
	})
	return b
}

// frame is any frame of the server.
type frame struct {
	Type, ID, Event string
	OK              bool
	Payload         json.RawMessage
	Error           *frameError
	Seq             uint64
	StateVersion    map[string]int
}

type frameError struct {
	Code, Message string
	Details       map[string]any
	Retryable     bool
	RetryAfterMs  int64
}

// published loads the description of the protocol. Every frame of every test is compared with it.
var published = sync.OnceValues(func() (*wiretest.Protocol, error) { return wiretest.Load("../../docs/protocol.json") })

// socket is a client.
type socket struct {
	t     *testing.T
	ws    *websocket.Conn
	asked sync.Map // the method of each request, by id
	// hello is the payload of hello-ok.
	hello json.RawMessage
	// patience is the limit of one read, or of one next; 0 = the default.
	patience time.Duration
	passed   []frame // events that arrived before the answer of a call, for later reads
}

func dialWith(d *websocket.Dialer, url string, header http.Header) (*websocket.Conn, error) {
	ws, _, err := d.Dial(url, header) //nolint:bodyclose // the library has read it; there is nothing to close
	return ws, err
}

func (b *bench) open() *socket {
	b.t.Helper()
	ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr+"/", nil)
	if err != nil {
		b.t.Fatalf("dial: %v", err)
	}
	s := &socket{t: b.t, ws: ws}
	b.t.Cleanup(func() { _ = ws.Close() })
	return s
}

// dial opens a socket and reads the challenge.
func (b *bench) dial() *socket {
	b.t.Helper()
	s := b.open()
	if f := s.read(); f.Event != "connect.challenge" || f.Seq != 0 {
		b.t.Fatalf("first frame is %+v, want the challenge without seq", f)
	}
	return s
}

func connectFrame(token string, caps ...string) map[string]any {
	return map[string]any{
		"type": "req", "id": "connect", "method": "connect",
		"params": map[string]any{
			"minProtocol": 4, "maxProtocol": 4, "caps": append([]string{}, caps...),
			"client": map[string]any{"id": "test", "version": "1", "platform": "linux", "mode": "test"},
			"role":   "operator", "scopes": []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin},
			"auth": map[string]any{"token": token},
		},
	}
}

// login returns an authenticated socket.
func (b *bench) login(token string, caps ...string) *socket {
	b.t.Helper()
	s := b.dial()
	s.send(connectFrame(token, caps...))
	f := s.read()
	if !f.OK || f.ID != "connect" {
		b.t.Fatalf("connect: %+v %+v", f, f.Error)
	}
	s.hello = f.Payload
	return s
}

func (s *socket) send(v any) {
	s.t.Helper()
	if m, ok := v.(map[string]any); ok {
		s.asked.Store(m["id"], m["method"])
	}
	if err := s.ws.WriteJSON(v); err != nil {
		s.t.Fatalf("write: %v", err)
	}
}

func (s *socket) sendText(text string) {
	s.t.Helper()
	if err := s.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		s.t.Fatalf("write: %v", err)
	}
}

// until returns the deadline of a read that starts now.
func (s *socket) until() time.Time { return time.Now().Add(cmp.Or(s.patience, patience)) }

func (s *socket) read() frame {
	s.t.Helper()
	return s.readUntil(s.until())
}

func (s *socket) readUntil(at time.Time) frame {
	s.t.Helper()
	if len(s.passed) > 0 {
		f := s.passed[0]
		s.passed = s.passed[1:]
		return f
	}
	f, err := s.receive(at)
	if err != nil {
		s.t.Fatalf("read: %v", err)
	}
	return f
}

// tryRead is read without the events in passed.
func (s *socket) tryRead() (frame, error) { return s.receive(s.until()) }

func (s *socket) receive(by time.Time) (frame, error) {
	_ = s.ws.SetReadDeadline(by)
	_, data, err := s.ws.ReadMessage()
	if err != nil {
		return frame{}, err
	}
	var f frame
	if err = json.Unmarshal(data, &f); err == nil {
		s.compare(f, data)
	}
	return f, err
}

// compare fails the test when a frame differs from the description of the protocol.
func (s *socket) compare(f frame, data []byte) {
	s.t.Helper()
	p, err := published()
	if err != nil {
		s.t.Fatal(err)
	}
	method, asked := s.asked.Load(f.ID)
	switch {
	case f.Type == wire.FrameEvent && f.Event != wire.EventChallenge:
		err = p.Event(f.Event, f.Payload)
	case f.Type == wire.FrameResponse && !f.OK:
		var refused struct{ Error json.RawMessage }
		err = errors.Join(json.Unmarshal(data, &refused), p.Refusal(refused.Error))
	case f.Type == wire.FrameResponse && asked:
		err = p.Answer(method.(string), f.Payload)
	}
	if err != nil {
		s.t.Error(err)
	}
}

// next reads until want returns true. Ticks do not extend the deadline.
func (s *socket) next(want func(frame) bool) frame {
	s.t.Helper()
	for at := s.until(); ; {
		if f := s.readUntil(at); want(f) {
			return f
		}
	}
}

func (s *socket) request(id, method string, params any) {
	s.t.Helper()
	m := map[string]any{"type": "req", "id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	s.send(m)
}

// call sends a request and returns its answer. Events that arrive before the answer, such as those
// of a run, are returned by later reads.
func (s *socket) call(method string, params any) frame {
	s.t.Helper()
	id := "call-" + method
	s.request(id, method, params)
	for at := s.until(); ; {
		f, err := s.receive(at)
		switch {
		case err != nil:
			s.t.Fatalf("%s: %v", method, err)
		case f.Type == "res" && f.ID == id:
			return f
		default:
			s.passed = append(s.passed, f)
		}
	}
}

// must is call for an answer that must be ok, decoded.
func (s *socket) must(method string, params any) map[string]any {
	s.t.Helper()
	f := s.call(method, params)
	if !f.OK {
		s.t.Fatalf("%s: %+v", method, f.Error)
	}
	return decode[map[string]any](s.t, f.Payload)
}

func decode[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("decoding %s: %v", raw, err)
	}
	return v
}

// closed reads until the server closes, and returns the code with the frames before it.
func (s *socket) closed() (code int, text string, before []frame) {
	s.t.Helper()
	for {
		f, err := s.tryRead()
		var ce *websocket.CloseError
		switch {
		case errors.As(err, &ce):
			return ce.Code, ce.Text, before
		case err != nil:
			s.t.Fatalf("want a close frame, got %v", err)
		}
		before = append(before, f)
	}
}

type params = map[string]any

func isEvent(name, run string) func(frame) bool {
	return func(f frame) bool {
		var p struct{ RunID string }
		return f.Event == name && json.Unmarshal(f.Payload, &p) == nil && p.RunID == run
	}
}

func chatState(run, state string) func(frame) bool {
	return func(f frame) bool {
		var p struct{ RunID, State string }
		return f.Event == "chat" && json.Unmarshal(f.Payload, &p) == nil && p.RunID == run && p.State == state
	}
}

// get makes a plain HTTP request; change may alter it.
func (b *bench) get(method, path string, change ...func(*http.Request)) (int, http.Header, map[string]any) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+b.addr+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body map[string]any
	_ = json.NewDecoder(resp.Body).Decode(&body)
	return resp.StatusCode, resp.Header, body
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	return decode[map[string]any](t, a.body)
}

// fault returns type and code of an error below /v1.
func (a answer) fault(t *testing.T) (kind, code string) {
	t.Helper()
	f := decode[struct {
		Error struct{ Type, Code, Message string }
	}](t, a.body).Error
	if f.Message == "" {
		t.Errorf("the error says nothing: %s", a.body)
	}
	return f.Type, f.Code
}

// text returns the text of a completion.
func (a answer) text(t *testing.T) string {
	t.Helper()
	c := decode[struct {
		Choices []struct{ Message struct{ Content string } }
	}](t, a.body)
	if len(c.Choices) != 1 {
		t.Fatalf("want one choice: %s", a.body)
	}
	return c.Choices[0].Message.Content
}

func header(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }

func (b *bench) postRequest(ctx context.Context, path string, body any, change ...func(*http.Request)) *http.Request {
	b.t.Helper()
	raw, ok := body.(string)
	if !ok {
		out, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		raw = string(out)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.addr+path, strings.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+writeToken)
	for _, f := range change {
		f(req)
	}
	return req
}

func (b *bench) post(path string, body any, change ...func(*http.Request)) answer {
	b.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(b.postRequest(context.Background(), path, body, change...))
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, all}
}

func says(role, text string) map[string]any { return map[string]any{"role": role, "content": text} }

func ask(text string, more ...params) params {
	p := params{"model": "laneway", "messages": []any{says("user", text)}}
	for _, m := range more {
		maps.Copy(p, m)
	}
	return p
}

const completionsPath = "/v1/chat/completions"
