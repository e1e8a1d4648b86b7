package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/socket"
	"laneway/internal/wire"
)

const (
	maxFaults   = 10 // malformed frames within faultWindow that end a connection
	faultWindow = time.Minute
	maxLoggedID = 64 // bytes of a request's id in the log of changes
)

// Receive implements [socket.Client]. What can be refused at once is refused here, by the reader; the rest gets a goroutine.
func (c *client) Receive(ctx, peer context.Context, msg socket.Message) *socket.Closing {
	answered := true
	defer func() {
		if answered {
			msg.Release()
		}
	}()
	var req request
	err := c.share.Parsing(peer, len(msg.Data), func() (err error) {
		req, err = parseRequest(msg.Data)
		return err
	})
	if bad, ok := errors.AsType[*malformed](err); ok {
		return c.malformed(bad)
	}
	if err != nil { // the peer is gone
		return &socket.Closing{Code: websocket.CloseGoingAway, Text: err.Error(), Reason: socket.ClosedByPeer}
	}
	m, refused := c.route(req)
	if refused == nil {
		refused = c.occupy(req.id, m)
	}
	if refused != nil {
		c.fail(req.id, refused)
		c.srv.report.Count(m.label(), refused, 0)
		return nil
	}
	if m.quick && len(req.params) <= len("{}") {
		c.serveQuick(ctx, m, req)
		return nil
	}
	answered = false
	c.requests.Go(func() { c.serve(ctx, peer, m, req, msg.Held) })
	return nil
}

// serveQuick answers in the reader's goroutine.
func (c *client) serveQuick(ctx context.Context, m *method, req request) {
	began := time.Now()
	cl := c.call(m, req)
	result, err := c.srv.invoke(ctx, cl)
	c.vacate(req.id)
	c.answer(ctx, cl, req.id, result, err)
	c.srv.report.Count(m.label(), err, time.Since(began))
}

// call is a request of this connection. The client chose its id, so the connection's own stands before it.
func (c *client) call(m *method, req request) *call {
	return &call{srv: c.srv, conn: c, who: c.who.Load(), share: c.share, m: m, raw: req.params, peer: c.addr, requestID: c.id + "/" + chat.Cut(chat.CleanText(req.id), maxLoggedID)}
}

func (c *client) fail(id string, err *fault.Error) { c.PutFrame(appendFailure(nil, id, err)) }

// malformed answers a frame that is no request. A client that sends nothing else is not one.
func (c *client) malformed(bad *malformed) *socket.Closing {
	c.fail(bad.id, fault.Invalid(bad.Error()))
	now := time.Now()
	recent := c.faults[:0]
	for _, t := range c.faults {
		if now.Sub(t) < faultWindow {
			recent = append(recent, t)
		}
	}
	c.faults = append(recent, now)
	if len(c.faults) < maxFaults {
		return nil
	}
	return &socket.Closing{Code: websocket.ClosePolicyViolation, Text: "too many malformed frames", Reason: socket.ClosedProtocol}
}

// route finds the method and refuses what must not be called: in this order the rate of the connection, the table, the scope.
func (c *client) route(req request) (*method, *fault.Error) {
	who := c.who.Load()
	m := c.srv.methods[req.method]
	if c.calls != nil {
		if ok, after := auth.Take(c.calls, 1); !ok {
			return m, fault.RateLimited(req.method, c.srv.cfg.RequestsPerSecond, after)
		}
	}
	switch {
	case req.method == wire.MethodConnect:
		return nil, fault.Invalid("connect is only valid as the first request")
	case m == nil:
		return nil, fault.Invalid("unknown method: " + fault.CutName(req.method))
	case who.level < chat.ScopeLevel(m.need().Least()):
		return m, fault.MissingScope(m.scope)
	case who.probe && m.name != "health" && m.name != "status":
		return m, fault.Invalid("unknown method: " + m.name + "; protocol 3 has health and status only")
	case req.badText != nil:
		return m, params.Refuse(m.name, req.badText)
	default:
		return m, nil
	}
}

// occupy takes a place for a request in flight.
func (c *client) occupy(id string, m *method) *fault.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.inFlight[id]
	switch {
	case taken:
		return fault.Invalid("duplicate request id")
	case m.control && c.controls >= maxControl, !m.control && len(c.inFlight)-c.controls >= maxInFlight:
		return fault.Unavailable(wire.DetailTooManyInFlight, "too many requests in flight on this connection", 0)
	}
	c.inFlight[id] = m.control
	if m.control {
		c.controls++
	}
	return nil
}

func (c *client) vacate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight[id] {
		c.controls--
	}
	delete(c.inFlight, id)
}

// serve answers one request and gives back what its message holds. It returns when the method has, even if the answer had to be given before.
func (c *client) serve(ctx, peer context.Context, m *method, req request, held socket.Held) {
	began := time.Now()
	cl := c.call(m, req)
	var done atomic.Bool
	answer := func(ctx context.Context, result any, err error) bool {
		if !done.CompareAndSwap(false, true) {
			return false
		}
		c.answer(ctx, cl, req.id, result, err)
		c.srv.report.Count(m.label(), err, time.Since(began))
		return true
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(c.srv.cfg.Deadlines.Request, func() {
		cancel(fault.ErrRequestTimeout)
		answer(limited, nil, fault.ErrRequestTimeout)
	})
	result, err := c.work(limited, peer, cl)
	late.Stop()
	var then func(context.Context) (any, error)
	if both, two := result.(interface {
		frames() (any, func(context.Context) (any, error))
	}); two {
		result, then = both.frames()
	}
	c.vacate(req.id)
	answered := answer(limited, result, err)
	if cl.leave != nil && (!answered || err != nil) { // else the writer does
		cl.leave()
	}
	cl.raw, req.params = nil, nil
	held.Release()
	if answered && then != nil && err == nil {
		c.second(peer, cl, req.id, then)
	}
}

// work runs a call once it has its place. A list keeps its place until its answer is written; the end of the connection gives it back in any case.
func (c *client) work(ctx, peer context.Context, cl *call) (any, error) {
	leave, err := cl.share.Enter(ctx, cl.m.work())
	if err != nil {
		return nil, err
	}
	if cl.m.lists {
		forget := context.AfterFunc(peer, leave)
		cl.leave = func() { forget(); leave() }
	} else {
		defer leave()
	}
	return c.srv.invoke(ctx, cl)
}

// second waits for the second frame of a call. A peer that is gone gets none.
func (c *client) second(peer context.Context, cl *call, id string, then func(context.Context) (any, error)) {
	result, err := c.srv.guard(peer, cl, func() (any, error) { return then(peer) })
	if peer.Err() != nil {
		return
	}
	c.answer(peer, cl, id, result, err)
}

// answer queues the response, then opens the gates behind it.
func (c *client) answer(ctx context.Context, cl *call, id string, result any, err error) {
	payload, encodeErr := encode(result)
	if err == nil {
		err = encodeErr
	}
	if err != nil {
		c.fail(id, c.srv.report.Explain(ctx, cl.m.name, err))
	} else {
		c.PutFrameThen(appendResponse(make([]byte, 0, len(payload)+len(id)+48), id, payload), cl.leave)
	}
	cl.markAnswered()
}

// invoke runs the method with everything that holds for all of them.
func (s *Server) invoke(ctx context.Context, cl *call) (any, error) {
	return s.guard(ctx, cl, func() (any, error) {
		if cl.m.limit != "" {
			if no := s.auth.Spend(ctx, cl.principal(), cl.m.name, cl.m.limit); no != nil {
				return nil, no
			}
			if no := s.auth.SpendBytes(ctx, cl.principal(), cl.m.name, len(cl.raw)); no != nil {
				return nil, no
			}
		}
		result, err := cl.m.invoke(ctx, cl, cl.raw)
		return result, namedKey(err, cl.raw)
	})
}

// namedKey says which idempotency key was used for something else.
func namedKey(err error, raw json.RawMessage) error {
	reused, ok := errors.AsType[*chat.Error](err)
	if !ok || reused.Code != chat.CodeKeyReused || reused.Details["idempotencyKey"] != nil {
		return err
	}
	var p struct{ IdempotencyKey string }
	if json.Unmarshal(raw, &p) != nil || p.IdempotencyKey == "" {
		return err
	}
	return chat.Errorf(reused.Code, "this idempotencyKey was used with other params, or by another method").With("idempotencyKey", p.IdempotencyKey)
}

type panicError struct {
	value any
	stack []byte
}

// Error is the value that the code panicked with.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guard makes a panic the outcome of one request.
func (s *Server) guard(ctx context.Context, cl *call, f func() (any, error)) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &panicError{value: v, stack: debug.Stack()}
			s.log.ErrorContext(ctx, "method panicked", slog.String("method", cl.m.name), slog.String("stack", string(p.stack)))
			result, err = nil, p
		}
	}()
	return f()
}
