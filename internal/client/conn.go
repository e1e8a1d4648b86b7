// Package client is the Go client of a laneway gateway: the command line uses it.
//
// A [Conn] is one authenticated WebSocket connection. [Conn.Call] sends a request and waits for its
// answer; calls may be concurrent. [Conn.Events] delivers the events of the gateway. The package
// does not reconnect: the gateway replays no events, so the caller dials again and reads the state
// that it needs.
//
// # Promises
//
//   - The token is sent only after the gateway's challenge was read, and never over ws:// to
//     another machine unless [Options.AllowPlain] is set. Certificates are verified. No proxy from
//     the environment is used.
//   - Every error says what to do. [ErrNoGateway], [ErrUnauthorized], [ErrVersion], [ErrPlain],
//     [ErrUntrusted] and [ErrClosed] can be distinguished with errors.Is; a refusal of the gateway
//     is an [*Error].
//   - A connection without a frame for two ticks is closed, so a call cannot hang on a dead
//     connection.
//   - Events that the caller does not read in time are dropped; the next delivered event has Gap
//     set. Calls never wait for events.
//
// # Goroutines
//
// Dial starts one goroutine, which ends with the connection. Close waits for it.
//
//	conn, err := client.Dial(ctx, client.Options{URL: "ws://127.0.0.1:18790", Token: token})
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//	var health struct{ OK bool }
//	err = conn.Call(ctx, "health", nil, &health)
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/wire"
)

const (
	closeSilent  = 4000 // no frame from the gateway for two ticks
	defaultTicks = 30_000
)

// Event is one event of the gateway.
type Event struct {
	// Name is chat, agent, sessions.changed, health, lanes, tick, shutdown, cron.
	Name    string
	Payload json.RawMessage
	// Seq counts from 1 per connection. Gap is true when events before this one were lost, in this
	// process or on the way: read the state again.
	Seq uint64
	Gap bool
}

// Conn is one connection. It is safe for concurrent use.
type Conn struct {
	ws     *websocket.Conn
	hello  wire.HelloOK
	silent time.Duration
	events chan Event
	done   chan struct{} // closed when nothing more is received

	writing sync.Mutex

	// Used only by the reader.
	lost    bool // an event was dropped since the last one that was queued
	lastSeq uint64

	mu      sync.Mutex
	nextID  uint64
	waiting map[string]chan wire.Frame
	err     error // why the connection ended
}

func newConn(ws *websocket.Conn, hello wire.HelloOK, opts Options) *Conn {
	tick := hello.Policy.TickIntervalMs
	if tick <= 0 {
		tick = defaultTicks
	}
	c := &Conn{
		ws: ws, hello: hello, silent: 2 * time.Duration(tick) * time.Millisecond,
		events: make(chan Event, opts.EventBuffer), done: make(chan struct{}), waiting: map[string]chan wire.Frame{},
	}
	go c.read()
	return c
}

// Hello returns the gateway's response to connect.
func (c *Conn) Hello() wire.HelloOK { return c.hello }

// Events returns the events of the gateway, in order. The channel is closed when the connection
// ends.
func (c *Conn) Events() <-chan Event { return c.events }

// Done is closed when the connection has ended; Err returns why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, wrapping [ErrClosed] or [ErrProtocol]; nil while it is
// open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for its goroutine. Waiting calls return [ErrClosed].
func (c *Conn) Close() error {
	c.shut(websocket.CloseNormalClosure, "", fmt.Errorf("%w by this client", ErrClosed))
	<-c.done
	return nil
}

// shut sends a close frame and makes the reader return. Only the first reason is kept.
func (c *Conn) shut(code int, text string, why error) {
	c.fail(why)
	// the connection ends either way
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, text), time.Now().Add(time.Second))
	_ = c.ws.Close()
}

func (c *Conn) fail(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
	}
}

// Call sends a request and waits for its answer, the end of ctx or the end of the connection.
// params may be nil. The payload is decoded into result unless that is nil. A refusal is an
// [*Error].
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	id, answers, err := c.send(method, params)
	if err != nil {
		return err
	}
	defer c.forget(id)
	return c.answer(ctx, method, answers, result)
}

func (c *Conn) send(method string, params any) (string, <-chan wire.Frame, error) {
	answers := make(chan wire.Frame, 2)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return "", nil, fmt.Errorf("calling %s: %w", method, c.err)
	}
	c.nextID++
	id := strconv.FormatUint(c.nextID, 10)
	c.waiting[id] = answers
	c.mu.Unlock()
	if err := c.write(wire.Request{Type: wire.FrameRequest, ID: id, Method: method, Params: params}); err != nil {
		c.forget(id)
		return "", nil, fmt.Errorf("calling %s: %w", method, err)
	}
	return id, answers, nil
}

func (c *Conn) write(f wire.Request) error {
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding the params: %w", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.ws.SetWriteDeadline(time.Now().Add(writeTimeout)) // it never fails
	if err := c.ws.WriteMessage(websocket.TextMessage, data); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

func (c *Conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Conn) answer(ctx context.Context, method string, answers <-chan wire.Frame, result any) error {
	select {
	case f := <-answers:
		return decode(method, f, result)
	case <-ctx.Done():
		return fmt.Errorf("calling %s: %w", method, context.Cause(ctx))
	case <-c.done:
	}
	select { // the answer may have arrived just before the end
	case f := <-answers:
		return decode(method, f, result)
	default:
		return fmt.Errorf("calling %s: %w", method, c.Err())
	}
}

func decode(method string, f wire.Frame, result any) error {
	switch {
	case !f.OK && f.Error == nil:
		return fmt.Errorf("calling %s: the answer is not understood", method)
	case !f.OK:
		return refusal(f.Error) // the gateway's sentence names the problem; the caller knows the method
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(f.Payload, result); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", method, err)
	}
	return nil
}

// read receives frames until the connection ends.
func (c *Conn) read() {
	defer close(c.done)
	defer close(c.events)
	defer func() { _ = c.ws.Close() }()
	for {
		_ = c.ws.SetReadDeadline(time.Now().Add(c.silent)) // the next read fails then
		_, data, err := c.ws.ReadMessage()
		if err != nil {
			c.ended(err)
			return
		}
		var f wire.Frame
		if json.Unmarshal(data, &f) != nil {
			c.shut(websocket.ClosePolicyViolation, "not a frame", fmt.Errorf("%w: it sent a message that is no frame", ErrProtocol))
			return
		}
		c.take(f)
	}
}

func (c *Conn) take(f wire.Frame) {
	switch f.Type {
	case wire.FrameResponse:
		c.deliver(f)
	case wire.FrameEvent:
		c.publish(Event{Name: f.Event, Payload: f.Payload, Seq: f.Seq})
	}
}

func (c *Conn) deliver(f wire.Frame) {
	c.mu.Lock()
	answers := c.waiting[f.ID]
	c.mu.Unlock()
	select {
	case answers <- f: // nil when the caller has stopped waiting
	default:
	}
}

// publish queues an event for the caller. It drops the event when the queue is full, and the next
// one that it queues has Gap set.
func (c *Conn) publish(ev Event) {
	ev.Gap = c.lost || ev.Seq != c.lastSeq+1
	c.lastSeq = ev.Seq
	select {
	case c.events <- ev:
		c.lost = false
	default:
		c.lost = true
	}
}

// ended classifies the error of the last read.
func (c *Conn) ended(err error) {
	var closed *websocket.CloseError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &closed) && closed.Code == websocket.CloseServiceRestart:
		c.fail(fmt.Errorf("%w: the gateway is restarting", ErrClosed))
	case errors.As(err, &closed) && closed.Text != "":
		c.fail(fmt.Errorf("%w: %s", ErrClosed, closed.Text))
	case errors.As(err, &timeout) && timeout.Timeout():
		c.shut(closeSilent, "tick timeout", fmt.Errorf("%w: the gateway was silent for %s", ErrClosed, c.silent))
	default:
		c.fail(readError(err))
	}
}

// readError describes why a message could not be read.
func readError(err error) error {
	if errors.Is(err, websocket.ErrReadLimit) {
		return fmt.Errorf("%w: it sent a message of more than %d MiB", ErrProtocol, maxMessage>>20)
	}
	if _, closed := errors.AsType[*json.SyntaxError](err); closed {
		return fmt.Errorf("%w: it sent a message that is no JSON", ErrProtocol)
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}
