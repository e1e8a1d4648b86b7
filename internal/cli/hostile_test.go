package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

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
