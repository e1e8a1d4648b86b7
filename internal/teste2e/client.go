package teste2e

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// Dial connects and authenticates with every scope. onEvent may be nil; it is called on the
// reader's goroutine.
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

// Call sends a request and waits for its answer. A refusal is a *WireError; a lost connection
// matches errLost.
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

// Answer is the result of an HTTP call of the gateway. Err is set when there was no response.
type Answer struct {
	Status int
	Body   string
	Err    error
}

// Complete calls POST /v1/chat/completions in a session and waits for the whole answer.
func (g *Gateway) Complete(session, text string) Answer {
	body, err := json.Marshal(map[string]any{"model": "laneway", "messages": []any{map[string]string{"role": "user", "content": text}}})
	if err != nil {
		return Answer{Err: err}
	}
	return g.post("/v1/chat/completions", body, map[string]string{"Authorization": "Bearer " + g.Token(), "X-Laneway-Session-Key": session})
}

// Hook calls POST /hooks/{name} with a signature.
func (g *Gateway) Hook(name, secret, body string) Answer {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(at + "." + body)) // a hash never returns an error
	return g.post("/hooks/"+name, []byte(body), map[string]string{"X-Laneway-Signature": fmt.Sprintf("t=%s,v1=%s", at, hex.EncodeToString(mac.Sum(nil)))})
}

func (g *Gateway) post(path string, body []byte, header map[string]string) Answer {
	req, err := http.NewRequest(http.MethodPost, g.URL()+path, bytes.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Body: string(text), Err: err}
}

// Opcodes of frames.
const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
)

const (
	fin = 0x80
)

// bare is a minimal WebSocket: it needs almost no resources, and it can send frames that no library
// would.
type bare struct {
	net.Conn

	r *bufio.Reader
}

// upgrade opens a socket and does not authenticate.
func upgrade(addr string) (*bare, error) {
	conn, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		return nil, err
	}
	b := &bare{Conn: conn, r: bufio.NewReaderSize(conn, 256)}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	_, err = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: "+addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err == nil {
		err = b.upgraded()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return b, nil
}

// upgraded reads the response to an upgrade.
func (b *bare) upgraded() error {
	resp, err := http.ReadResponse(b.r, nil)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the upgrade was answered %s", resp.Status)
	}
	return nil
}

// login opens a socket with every scope. Afterwards it has no deadline.
func login(addr, token string) (*bare, error) {
	b, err := upgrade(addr)
	if err != nil {
		return nil, err
	}
	err = b.request("c", "connect", map[string]any{
		"minProtocol": 4, "maxProtocol": 4, "auth": map[string]string{"token": token},
		"scopes": []string{"operator.read", "operator.write", "operator.admin"},
		"client": map[string]string{"id": "bare", "version": "1", "platform": "test", "mode": "test"},
	})
	if err == nil {
		_, err = b.answer("c")
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	_ = b.SetDeadline(time.Time{})
	return b, nil
}

// frame writes one masked frame with the given header byte and declared length.
func (b *bare) frame(first byte, declared int, payload []byte) error {
	out := []byte{first}
	switch {
	case declared < 126:
		out = append(out, 0x80|byte(declared))
	case declared < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(declared))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(declared))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:])
	out = append(out, mask[:]...)
	for i, c := range payload {
		out = append(out, c^mask[i&3])
	}
	_, err := b.Write(out)
	return err
}

// text writes a complete text message.
func (b *bare) text(s string) error { return b.frame(fin|opText, len(s), []byte(s)) }

func (b *bare) request(id, method string, params any) error {
	raw, err := json.Marshal(map[string]any{"type": "req", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}
	return b.text(string(raw))
}

// closedError is the close frame of the server.
type closedError struct {
	code int
	text string
}

// Error returns code and reason.
func (c *closedError) Error() string { return "closed " + strconv.Itoa(c.code) + " " + c.text }

// next reads one message of the server and answers pings. A close frame is a *closedError.
func (b *bare) next() ([]byte, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(b.r, head[:]); err != nil {
			return nil, err
		}
		n := int(head[1] & 0x7f)
		switch n {
		case 126:
			var l [2]byte
			if _, err := io.ReadFull(b.r, l[:]); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint16(l[:]))
		case 127:
			var l [8]byte
			if _, err := io.ReadFull(b.r, l[:]); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint64(l[:]))
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(b.r, data); err != nil {
			return nil, err
		}
		switch head[0] & 0x0f {
		case opPing:
			_ = b.frame(fin|0xA, len(data), data)
		case opClose:
			if n < 2 {
				return nil, &closedError{}
			}
			return nil, &closedError{int(binary.BigEndian.Uint16(data)), string(data[2:])}
		case opText:
			return data, nil
		}
	}
}

// until reads until a message contains all of the strings.
func (b *bare) until(texts ...string) ([]byte, error) {
	for {
		data, err := b.next()
		if err != nil {
			return nil, err
		}
		found := true
		for _, t := range texts {
			found = found && strings.Contains(string(data), t)
		}
		if found {
			return data, nil
		}
	}
}

// answer reads the answer to a request; a refusal is a *WireError.
func (b *bare) answer(id string) (json.RawMessage, error) {
	data, err := b.until(`"type":"res"`, `"id":"`+id+`"`)
	if err != nil {
		return nil, err
	}
	var r Response
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	if !r.OK {
		return nil, r.Error
	}
	return r.Payload, nil
}

// stillOpen is the result of end for a connection that has not ended in time.
const stillOpen = -1

// end reads until the connection has ended and returns the close code; 0 = it ended without a close
// frame.
func (b *bare) end(limit time.Duration) int {
	_ = b.SetReadDeadline(time.Now().Add(limit))
	for {
		_, err := b.next()
		var closed *closedError
		var late net.Error
		switch {
		case errors.As(err, &closed):
			return closed.code
		case errors.As(err, &late) && late.Timeout():
			return stillOpen
		case err != nil:
			return 0
		}
	}
}
