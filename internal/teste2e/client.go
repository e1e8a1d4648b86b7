package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Client is one connection, implemented without code of the gateway.
type Client struct {
	ws *websocket.Conn
	// hello is the answer to connect.
	hello json.RawMessage

	mu      sync.Mutex
	next    int
	pending map[string]chan Response
	closed  error
	done    chan struct{}
	// onEvent receives every event frame.
	onEvent func(Event)
}

// Response is the answer to a request.
type Response struct {
	OK      bool            `json:"ok"`
	Payload json.RawMessage `json:"payload"`
	Error   *WireError      `json:"error"`
}

// WireError is a refusal.
type WireError struct {
	Code      string         `json:"code"`
	Message   string         `json:"message"`
	Details   map[string]any `json:"details"`
	Retryable bool           `json:"retryable"`

	RetryAfterMs int64 `json:"retryAfterMs"`
}

// Error returns code and sentence.
func (e *WireError) Error() string { return fmt.Sprintf("%s: %s %v", e.Code, e.Message, e.Details) }

// Event is an event frame.
type Event struct {
	Name    string          `json:"event"`
	Payload json.RawMessage `json:"payload"`
	Seq     int64           `json:"seq"`
}

// errLost means that the connection ended before the answer.
var errLost = errors.New("the connection was lost")

// Dial connects and authenticates with every scope. onEvent may be nil; it is called on the reader's goroutine.
func Dial(url, token string, onEvent func(Event)) (*Client, error) {
	return DialAs(url, token, []string{"operator.read", "operator.write", "operator.admin"}, onEvent)
}

// DialAs is Dial with these scopes.
func DialAs(url, token string, scopes []string, onEvent func(Event)) (*Client, error) {
	d := websocket.Dialer{HandshakeTimeout: 10 * time.Second}
	ws, resp, err := d.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws", nil)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	c := &Client{ws: ws, pending: map[string]chan Response{}, done: make(chan struct{}), onEvent: onEvent}
	go c.read()
	c.hello, err = c.Call("connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "role": "operator", "auth": map[string]string{"token": token},
		"scopes": scopes, "caps": []string{"laneway-ext"},
		"client": map[string]string{"id": "e2e", "version": "1", "platform": "test", "mode": "test"},
	}, 10*time.Second)
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) read() {
	defer close(c.done)
	for {
		_, data, err := c.ws.ReadMessage()
		if err != nil {
			c.lose(err)
			return
		}
		var f struct {
			Type    string          `json:"type"`
			ID      string          `json:"id"`
			OK      bool            `json:"ok"`
			Payload json.RawMessage `json:"payload"`
			Error   *WireError      `json:"error"`
			Event   string          `json:"event"`
			Seq     int64           `json:"seq"`
		}
		if err := json.Unmarshal(data, &f); err != nil {
			c.lose(err)
			return
		}
		if f.Type == "event" {
			if c.onEvent != nil {
				c.onEvent(Event{Name: f.Event, Payload: f.Payload, Seq: f.Seq})
			}
			continue
		}
		c.mu.Lock()
		ch := c.pending[f.ID]
		delete(c.pending, f.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- Response{OK: f.OK, Payload: f.Payload, Error: f.Error}
		}
	}
}

func (c *Client) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = fmt.Errorf("%w: %w", errLost, err)
	for id, ch := range c.pending {
		close(ch)
		delete(c.pending, id)
	}
}

// Call sends a request and waits for its answer. A refusal is a *WireError; a lost connection matches errLost.
func (c *Client) Call(method string, params any, limit time.Duration) (json.RawMessage, error) {
	c.mu.Lock()
	if c.closed != nil {
		defer c.mu.Unlock()
		return nil, c.closed
	}
	c.next++
	id := strconv.Itoa(c.next)
	ch := make(chan Response, 1)
	c.pending[id] = ch
	_ = c.ws.SetWriteDeadline(time.Now().Add(limit))
	err := c.ws.WriteJSON(map[string]any{"type": "req", "id": id, "method": method, "params": params})
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case r, ok := <-ch:
		switch {
		case !ok:
			return nil, errLost
		case !r.OK:
			return nil, r.Error
		}
		return r.Payload, nil
	case <-t.C:
		return nil, fmt.Errorf("%s was not answered within %s", method, limit)
	}
}

// Into calls and decodes the answer.
func (c *Client) Into(result any, method string, params any) error {
	raw, err := c.Call(method, params, 30*time.Second)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// Close ends the connection and waits for the reader.
func (c *Client) Close() {
	_ = c.ws.Close()
	<-c.done
}
