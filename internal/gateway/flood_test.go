package gateway_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway"
	sockets "laneway/internal/gateway/socket"
	"laneway/internal/testrun"
)

// A client stops reading while answers and events are sent to it. Everything before the close arrives in order, followed by 1013 or a
// reset. With the cursor, the client finds every message once.
func TestStoppedReaderLosesNothing(t *testing.T) {
	t.Parallel()
	obs := &counts{}
	b := start(t, func(c *gateway.Config) {
		c.MaxBuffered, c.Observer = 2<<20, obs                     // the fast reader never has half of that buffered
		c.Deadlines.Ping, c.Deadlines.Write = time.Hour, time.Hour // the connection must be closed because the client does not read, however slow the machine is
	})
	slow, quick := b.login(adminToken), b.login(adminToken)
	slow.must("sessions.subscribe", nil)
	if tcp, ok := slow.ws.NetConn().(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	cursor := slow.must("chat.history", params{"sessionKey": "main"})["deltaCursor"]
	for i := range 10 {
		slow.request(fmt.Sprint("q", i), "health", nil)
	}
	text := strings.Repeat("x", 100_000)
	for i := range 100 {
		id := fmt.Sprint("m", i)
		quick.must("chat.send", send("main", text+id, id))
		quick.next(chatState(id, "final"))
		if obs.get("closed slow") > 0 {
			break
		}
	}
	testrun.Eventually(t, "the slow reader to be closed", func() bool { return obs.get("closed slow") == 1 })
	var seq uint64
	for {
		f, err := slow.tryRead()
		var ce *websocket.CloseError
		if errors.As(err, &ce) && ce.Code != 1013 && ce.Code != websocket.CloseAbnormalClosure {
			t.Errorf("close %d, want 1013 or a reset", ce.Code)
		}
		if err != nil {
			break
		}
		if f.Type == "event" {
			if seq++; f.Seq != seq {
				t.Fatalf("seq %d, want %d", f.Seq, seq)
			}
		}
	}
	again := b.login(adminToken)
	seen := map[any]bool{}
	for {
		h := again.must("chat.history", params{"sessionKey": "main", "cursor": cursor, "limit": 5})
		cursor = h["deltaCursor"]
		messages := h["messages"].([]any)
		if len(messages) == 0 {
			break
		}
		for _, m := range messages {
			id := m.(params)["id"]
			if seen[id] {
				t.Fatalf("message %v twice", id)
			}
			seen[id] = true
		}
	}
	if total := again.must("chat.history", params{"sessionKey": "main", "limit": 1})["totalMessages"]; float64(len(seen)) != total {
		t.Errorf("%d messages by cursor, %v there are", len(seen), total)
	}
}

// Clients that send invalid frames as fast as possible do not delay other clients.
func TestFloodOfRubbish(t *testing.T) {
	t.Parallel()
	b := start(t)
	var flood sync.WaitGroup
	for i := range 8 {
		ws, err := dialWith(websocket.DefaultDialer, "ws://"+b.addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		flood.Go(func() {
			defer ws.Close()
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			junk := make([]byte, 512)
			_ = ws.WriteJSON(connectFrame(adminToken))
			for range 300 {
				for j := range junk {
					junk[j] = byte(rng.Uint32())
				}
				if _, err := ws.NetConn().Write(junk); err != nil {
					return
				}
			}
		})
	}
	s := b.login(adminToken)
	for i := range 50 {
		id := fmt.Sprint("k", i)
		s.must("chat.send", send("main", "hello", id))
		s.next(chatState(id, "final"))
	}
	flood.Wait()
	s.must("health", nil)
}

// counts is an observer.
type counts struct {
	gateway.NoObserver

	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what]++
}

func (c *counts) get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

func (c *counts) ConnOpened()                               { c.add("opened") }
func (c *counts) ConnClosed(reason sockets.CloseReason)     { c.add("closed " + string(reason)) }
func (c *counts) Request(m, result string, _ time.Duration) { c.add(m + " " + result) }
func (c *counts) AuthFailed(reason string)                  { c.add("auth " + reason) }

func TestObserverCountsWithClosedLabels(t *testing.T) {
	t.Parallel()
	obs := &counts{}
	b := start(t, func(c *gateway.Config) { c.Observer = obs })
	s := b.login(adminToken)
	s.must("health", nil)
	s.call("made up by the client", nil)
	s.call("chat.send", params{"bogus": 1})
	b.fakeBackend.set(func() { b.fakeBackend.refuse = chat.ErrQueueFull })
	s.call("chat.send", send("main", "x", "k"))
	wrong := b.dial()
	wrong.send(connectFrame("nope"))
	wrong.closed()
	_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), deadline())
	s.closed()
	for _, want := range []string{
		"health ok", "unknown INVALID_REQUEST", "chat.send INVALID_REQUEST", "chat.send QUEUE_FULL", "auth mismatch", "closed refused", "closed peer",
	} {
		testrun.Eventually(t, want, func() bool { return obs.get(want) == 1 })
	}
	if n := obs.get("opened"); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}
