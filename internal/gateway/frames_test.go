package gateway_test

import (
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/gateway"
)

// rawFrame returns one masked WebSocket frame.
func rawFrame(head byte, payload []byte) []byte {
	out := []byte{head}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	return append(append(out, 0, 0, 0, 0), payload...) // masked with zeros
}

func (s *socket) sendRaw(b ...[]byte) {
	s.t.Helper()
	for _, part := range b {
		if _, err := s.ws.NetConn().Write(part); err != nil {
			s.t.Fatalf("raw write: %v", err)
		}
	}
}

func TestBadFramesCloseWithTheirCode(t *testing.T) {
	t.Parallel()
	const text, fin = 0x1, 0x80
	pad := func(n int) string {
		return `{"type":"req","id":"1","method":"health","x":"` + strings.Repeat("x", n) + `"}`
	}
	for _, tc := range []struct {
		name   string
		authed bool
		send   func(*socket)
		want   int
		text   string
	}{
		{"binary", true, func(s *socket) { _ = s.ws.WriteMessage(websocket.BinaryMessage, []byte("{}")) }, 1003, "binary"},
		{"binary before connect", false, func(s *socket) { _ = s.ws.WriteMessage(websocket.BinaryMessage, []byte("{}")) }, 1003, "binary"},
		{"not UTF-8", true, func(s *socket) { s.sendText("{\"id\":\"\xff\"}") }, 1007, "UTF-8"},
		{"too large before connect", false, func(s *socket) { s.sendText(pad(65_536)) }, 1009, "too large"},
		{"too large", true, func(s *socket) { s.sendText(pad(1 << 20)) }, 1009, "too large"},
		{
			"too large in fragments", true, func(s *socket) {
				s.sendRaw(rawFrame(text, []byte(pad(1000))))
				for range 600 {
					if _, err := s.ws.NetConn().Write(rawFrame(0, make([]byte, 2000))); err != nil {
						return // closed in the middle, as expected
					}
				}
			}, 1009, "too large",
		},
		{"reserved bit", true, func(s *socket) { s.sendRaw(rawFrame(fin|0x40|text, []byte("{}"))) }, 1002, ""},
		{"unknown opcode", true, func(s *socket) { s.sendRaw(rawFrame(fin|0x3, nil)) }, 1002, ""},
		{"continuation of nothing", true, func(s *socket) { s.sendRaw(rawFrame(fin, []byte("{}"))) }, 1002, ""},
		{"not masked", true, func(s *socket) { s.sendRaw([]byte{fin | text, 2, '{', '}'}) }, 1002, ""},
		{"peer closes", true, func(s *socket) {
			_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4000, "bye"), deadline())
		}, 1000, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			s := b.dial()
			if tc.authed {
				s = b.login(adminToken)
			}
			tc.send(s)
			code, text, _ := s.closed()
			if code != tc.want || !strings.Contains(text, tc.text) {
				t.Errorf("close %d %q, want %d with %q", code, text, tc.want, tc.text)
			}
		})
	}
}

func TestLargestMessagesAreTaken(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	head := `{"type":"req","id":"1","method":"health","x":"`
	s.sendText(head + strings.Repeat("x", 1<<20-len(head)-2) + `"}`)
	if f := s.read(); !f.OK {
		t.Errorf("a message of exactly maxPayload bytes: %+v", f.Error)
	}
	s.sendRaw(rawFrame(0x1, []byte(`{"type":"req",`)), rawFrame(0, []byte(`"id":"2","method":`)), rawFrame(0x89, []byte("ping")), rawFrame(0x80, []byte(`"health"}`)))
	if f := s.next(func(f frame) bool { return f.ID == "2" }); !f.OK {
		t.Errorf("fragments with a ping in between: %+v", f.Error)
	}
}

func TestMalformedFramesAreAnsweredUntilThereAreTooMany(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	cases := []struct{ send, id, message string }{
		{`not json`, "invalid", "invalid request frame: must be object"},
		{`{"type":"req","method":"health"}`, "invalid", "invalid request frame: must have required property 'id'"},
		{`{"type":"req","id":"7"}`, "7", "invalid request frame: must have required property 'method'"},
		{`{"id":"8","method":"health"}`, "8", "invalid request frame: must have required property 'type'"},
		{`{"type":"event","id":"9","method":"health"}`, "9", "invalid request frame: at /type: must be equal to constant"},
		{`{"type":"req","id":9,"method":"health"}`, "invalid", "invalid request frame: at /id: must be string"},
		{`{"type":"req","id":"` + strings.Repeat("i", 257) + `","method":"health"}`, "invalid", "invalid request frame: at /id: must NOT have more than 256 bytes"},
		{`{"type":"req","id":"d","method":"health","params":{"x":` + deep(64) + `}}`, "d", "invalid request frame: nested deeper than 64 levels"},
		{`{"type":"req","id":"d","method":"health","params":{"x":` + deep(100_000) + `}}`, "invalid", "invalid request frame: must be object"},
		{`{"Type":"req","id":"c","method":"health"}`, "c", "invalid request frame: must have required property 'type'"},
	}
	for i, tc := range cases {
		s.sendText(tc.send)
		f := s.read()
		if f.ID != tc.id || f.OK || f.Error.Code != "INVALID_REQUEST" || f.Error.Message != tc.message {
			t.Errorf("%.60s: id %q, %+v; want id %q, %q", tc.send, f.ID, f.Error, tc.id, tc.message)
		}
		if i == 4 {
			s.must("health", nil) // a valid frame in between changes nothing
		}
	}
	if code, text, _ := s.closed(); code != 1008 || text != "too many malformed frames" {
		t.Errorf("after ten: close %d %q, want 1008", code, text)
	}
}

func TestParamsBeyondMeasureAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	for name, params := range map[string]string{
		"a number of 400 digits": `{"x":` + strings.Repeat("9", 400) + `}`, "an exponent of 10^9": `{"probe":1e1000000000}`,
		"50,000 members": `{` + strings.Repeat(`"k":0,`, 50_000) + `"z":0}`,
	} {
		s.sendText(`{"type":"req","id":"1","method":"health","params":` + params + `}`)
		if f := s.next(func(f frame) bool { return f.ID == "1" }); f.OK || !strings.Contains(f.Error.Message, "invalid health params") {
			t.Errorf("%s: %+v, want that the params are refused", name, f.Error)
		}
	}
}

func TestTextThatNoStoreTakesIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	for _, tc := range []struct{ text, message string }{
		{`a\u0000b`, "invalid chat.send params: strings must not contain U+0000"},
		{`a\ud800b`, "invalid chat.send params: strings must not contain a lone surrogate"},
		{`\udc00`, "invalid chat.send params: strings must not contain a lone surrogate"},
		{`\ud83d\u0041`, "invalid chat.send params: strings must not contain a lone surrogate"},
		{`\\u0000 \ud83d\ude00`, ""},
	} {
		s.sendText(`{"type":"req","id":"1","method":"chat.send","params":{"sessionKey":"main","idempotencyKey":"k","message":"` + tc.text + `"}}`)
		f := s.next(func(f frame) bool { return f.ID == "1" })
		if tc.message == "" {
			if !f.OK {
				t.Errorf("%s: %+v, want it to be taken", tc.text, f.Error)
			}
			continue
		}
		if f.OK || f.Error.Message != tc.message {
			t.Errorf("%s: %+v, want %q", tc.text, f.Error, tc.message)
		}
	}
}

func TestLastOfDuplicateKeysCounts(t *testing.T) {
	t.Parallel()
	s := start(t).login(adminToken)
	s.sendText(`{"type":"req","id":"1","id":"2","method":"nope","method":"sessions.describe","params":{"key":"a","key":"agent:main:none","KEY":"x"}}`)
	if f := s.read(); f.ID != "2" || f.OK || f.Error.Message != "invalid sessions.describe params: at root: unexpected property 'KEY'" {
		t.Errorf("got id %q %+v: names count exactly as written, the last of two wins", f.ID, f.Error)
	}
}

func TestRequestsInFlightAreLimited(t *testing.T) {
	t.Parallel()
	b := start(t)
	s := b.login(adminToken)
	block := make(chan struct{})
	b.core.set(func() { b.core.block = block })
	send := func(id string) {
		s.request(id, "chat.send", params{"sessionKey": "main", "message": "x", "idempotencyKey": "k" + id})
	}
	for i := range 64 {
		send(strconv.Itoa(i))
	}
	send("0")
	if f := s.read(); f.ID != "0" || f.Error == nil || f.Error.Message != "duplicate request id" || f.Error.Code != "INVALID_REQUEST" {
		t.Errorf("an id in flight: %+v", f)
	}
	send("64")
	if f := s.read(); f.ID != "64" || f.Error == nil || f.Error.Details["code"] != "TOO_MANY_IN_FLIGHT" || !f.Error.Retryable || f.Error.Code != "UNAVAILABLE" {
		t.Errorf("the 65th: %+v %+v", f, f.Error)
	}
	s.must("health", nil) // has a separate place
	s.must("chat.abort", params{"sessionKey": "main"})
	b.core.set(func() { b.core.block = nil })
	close(block)
	answered := map[string]bool{}
	for len(answered) < 64 {
		if f := s.read(); f.Type == "res" {
			if !f.OK || answered[f.ID] {
				t.Fatalf("answer %+v %+v", f, f.Error)
			}
			answered[f.ID] = true
		}
	}
}

func TestRequestsPerSecondAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *gateway.Config) { c.RequestsPerSecond = 3 }).login(adminToken)
	var refused *frameError
	for range 8 {
		if f := s.call("health", nil); !f.OK {
			refused = f.Error
		}
	}
	if refused == nil || refused.Code != "UNAVAILABLE" || refused.Details["code"] != "RATE_LIMITED" || refused.Details["method"] != "health" ||
		refused.Details["limit"] != 3.0 || !refused.Retryable || refused.RetryAfterMs < 1 || refused.Message != "rate limit exceeded for health; retry after 1s" {
		t.Errorf("refused %+v, want RATE_LIMITED", refused)
	}
}

func TestHeadersAndBodiesHaveTheirDeadlines(t *testing.T) {
	t.Parallel()
	short := func(change func(*gateway.Deadlines)) func(*gateway.Config) {
		return func(c *gateway.Config) { change(&c.Deadlines) }
	}
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		b := start(t, short(func(d *gateway.Deadlines) { d.Header = 20 * time.Millisecond }))
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "))
		_ = c.SetReadDeadline(deadline())
		for {
			if _, err := c.Read(make([]byte, 512)); err != nil {
				if isTimeoutError(err) {
					t.Error("the connection stayed open")
				}
				return
			}
		}
	})
	for _, request := range []string{
		"POST /healthz", "POST /", "POST /nowhere", "POST /v1/chat/completions", "POST /v1/models", "POST /hooks/ci", "PUT /ws", "GET /healthz",
	} {
		t.Run("body of "+request, func(t *testing.T) {
			t.Parallel()
			b := start(t, short(func(d *gateway.Deadlines) { d.Message = 100 * time.Millisecond }))
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write([]byte(request + " HTTP/1.1\r\nHost: " + b.addr + "\r\nContent-Length: 100000\r\n\r\n{"))
			_ = c.SetReadDeadline(deadline())
			for {
				if _, err := c.Read(make([]byte, 512)); err != nil {
					if isTimeoutError(err) {
						t.Error("the connection stayed open")
					}
					return
				}
			}
		})
	}
}

func isTimeoutError(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
