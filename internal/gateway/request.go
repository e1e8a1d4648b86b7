package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
	"laneway/internal/wire"
)

const (
	maxFaults   = 10 // malformed frames within faultWindow that end a connection
	faultWindow = time.Minute
	maxLoggedID = 64 // bytes of a request's id in the audit log
)

// Receive implements [socket.Client]. It refuses invalid requests on the reader's goroutine; other
// requests are served on a new one.
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
	if err != nil { // the client has disconnected
		return &socket.Closing{Code: websocket.CloseGoingAway, Text: err.Error(), Reason: socket.ClosedByPeer}
	}
	m, refused := c.route(req)
	if refused == nil {
		refused = c.occupy(req.id, m)
	}
	if refused != nil {
		c.fail(req.id, refused)
		c.srv.report.Count(m.Label(), refused, 0)
		return nil
	}
	if m.Quick && len(req.params) <= len("{}") {
		c.serveQuick(ctx, m, req)
		return nil
	}
	answered = false
	cl := c.call(m, req)
	cl.queued = c.lineUp(peer, m, req.params)
	c.requests.Go(func() { c.serve(ctx, peer, cl, msg.Held) })
	return nil
}

// serveQuick answers on the reader's goroutine.
func (c *client) serveQuick(ctx context.Context, m *rpc.Method, req request) {
	began := time.Now()
	cl := c.call(m, req)
	result, err := c.srv.invoke(ctx, &cl.Call)
	c.vacate(req.id)
	c.answer(ctx, cl, result, err)
	c.srv.report.Count(m.Label(), err, time.Since(began))
}

// pending is a call with its resources of the connection.
type pending struct {
	rpc.Call

	id     string
	queued *queuedCall // nil = the call runs concurrently with all others
	// leave releases the place of a method that lists; may be nil.
	leave func()
}

// call returns a request of this connection. The client chose its id, so it is prefixed with the id
// of the connection.
func (c *client) call(m *rpc.Method, req request) *pending {
	who := c.who.Load()
	spend := func(ctx context.Context, bytes int) error {
		return c.srv.spendBytes(ctx, who.principal(), m.Name, bytes)
	}
	return &pending{id: req.id, Call: rpc.Call{
		Method: m, Raw: req.params, Cred: who.cred, Scopes: who.scopes, Peer: c.addr, RequestID: c.id + "/" + chat.Cut(chat.CleanText(req.id), maxLoggedID),
		Extended: who.extended, Events: subscriptions{c}, Budget: c.share, Spend: spend,
	}}
}

func (c *client) fail(id string, err *fault.Error) { c.PutFrame(appendFailure(nil, id, err)) }

// malformed answers a frame that is not a request. A client that sends only such frames is
// disconnected.
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

// route finds the method and refuses calls that are not allowed. It checks the rate of the
// connection, the table and the scope, in this order.
func (c *client) route(req request) (*rpc.Method, *fault.Error) {
	who := c.who.Load()
	m := c.srv.methods[req.method]
	if ok, after := c.takeCall(); !ok {
		return m, fault.RateLimited(req.method, c.srv.cfg.RequestsPerSecond, after)
	}
	switch {
	case req.method == wire.MethodConnect:
		return nil, fault.Invalid("connect is only valid as the first request")
	case m == nil:
		return nil, fault.Invalid("unknown method: " + fault.CutName(req.method))
	case who.level < chat.ScopeLevel(m.Need().Least()):
		return m, fault.MissingScope(m.Scope)
	case who.probe && m.Name != "health" && m.Name != "status":
		return m, fault.Invalid("unknown method: " + m.Name + "; protocol 3 has health and status only")
	case req.badText != nil:
		return m, params.Refuse(m.Name, req.badText)
	default:
		return m, nil
	}
}

// occupy takes a place for a request in flight.
func (c *client) occupy(id string, m *rpc.Method) *fault.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, taken := c.inFlight[id]
	switch {
	case taken:
		return fault.Invalid("duplicate request id")
	case m.Control && c.controls >= maxControl, !m.Control && len(c.inFlight)-c.controls >= maxInFlight:
		return fault.Unavailable(wire.DetailTooManyInFlight, "too many requests in flight on this connection", 0)
	}
	if c.inFlight == nil {
		c.inFlight = map[string]bool{}
	}
	c.inFlight[id] = m.Control
	if m.Control {
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

// serve answers one request and releases the bytes of its message. It returns when the method has
// returned, even if the answer had to be sent earlier.
func (c *client) serve(ctx, peer context.Context, cl *pending, held socket.Held) {
	began := time.Now()
	var done atomic.Bool
	answer := func(ctx context.Context, result any, err error) bool {
		if !done.CompareAndSwap(false, true) {
			return false
		}
		c.answer(ctx, cl, result, err)
		c.srv.report.Count(cl.Method.Label(), err, time.Since(began))
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
	result, then := rpc.Frames(result)
	c.vacate(cl.id)
	answered := answer(limited, result, err)
	if cl.leave != nil && (!answered || err != nil) { // otherwise the writer does
		cl.leave()
	}
	cl.Raw = nil
	held.Release()
	if answered && then != nil && err == nil {
		c.second(peer, cl, then)
	}
}

// work runs a call once it has its turn and then its place: calls that wait for their turn must not
// take the places that the first one needs. A list keeps its place until its answer is written or
// its connection has ended. It has no effect, so it ends with its connection: otherwise many closed
// connections would leave many lists to be read for no client.
func (c *client) work(ctx, peer context.Context, cl *pending) (any, error) {
	if !cl.Method.Lists {
		defer cl.queued.leave()
		if err := cl.queued.wait(ctx); err != nil {
			return nil, err
		}
		leave, err := c.share.Enter(ctx, placeOf(cl.Method))
		if err != nil {
			return nil, err
		}
		defer leave()
		return c.srv.invoke(ctx, &cl.Call)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(peer, func() { cancel(fault.ErrRequestTimeout) })()
	leave, err := c.share.Enter(ctx, inflight.List)
	if err != nil {
		return nil, err
	}
	result, err := c.srv.invoke(ctx, &cl.Call)
	forget := context.AfterFunc(peer, leave) // not earlier: the rows are in memory until here
	cl.leave = func() { forget(); leave() }
	return result, err
}

// placeOf returns the kind of place for a call that is not a list.
func placeOf(m *rpc.Method) inflight.Kind {
	if m.Control {
		return inflight.Control
	}
	return inflight.Call
}

// second waits for the second frame of a call. It is not sent to a client that has disconnected.
func (c *client) second(peer context.Context, cl *pending, then func(context.Context) (any, error)) {
	result, err := c.srv.guard(peer, &cl.Call, func() (any, error) { return then(peer) })
	if peer.Err() != nil {
		return
	}
	c.answer(peer, cl, result, err)
}

// answer queues the response, then opens the gates that wait for it.
func (c *client) answer(ctx context.Context, cl *pending, result any, err error) {
	payload, encodeErr := rpc.Encode(result)
	if err == nil {
		err = encodeErr
	}
	if err != nil {
		c.fail(cl.id, c.srv.report.Explain(ctx, cl.Method.Name, err))
	} else {
		c.PutFrameThen(appendResponse(make([]byte, 0, len(payload)+len(cl.id)+48), cl.id, payload), cl.leave)
	}
	cl.MarkAnswered()
}

// invoke runs the method with the checks that apply to all methods.
func (s *Server) invoke(ctx context.Context, cl *rpc.Call) (any, error) {
	return s.guard(ctx, cl, func() (any, error) {
		if cl.Method.Limit != "" {
			if no := s.auth.Spend(ctx, cl.Principal(), cl.Method.Name, cl.Method.Limit); no != nil {
				return nil, no
			}
			if no := s.auth.SpendBytes(ctx, cl.Principal(), cl.Method.Name, len(cl.Raw)); no != nil {
				return nil, no
			}
		}
		if !cl.Method.Stops() { // a stop never waits for the lists of its caller
			ctx = store.OnBehalfOf(ctx, cl.Principal()) //nolint:fatcontext // once for each call
		}
		result, err := cl.Method.Invoke(ctx, cl)
		return result, namedKey(err, cl.Raw)
	})
}

// spendBytes takes bytes from the allowance of a principal. More than the allowance of a minute is
// refused.
func (s *Server) spendBytes(ctx context.Context, principal, method string, bytes int) error {
	const piece = 1 << 20 // an allowance counts a larger n as the whole allowance
	for ; bytes > 0; bytes -= piece {
		if no := s.auth.SpendBytes(ctx, principal, method, min(bytes, piece)); no != nil {
			return no
		}
	}
	return nil
}

// namedKey adds to an error the idempotency key that was used for another call.
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

// Error returns the value of the panic.
func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guard converts a panic to the error of one request.
func (s *Server) guard(ctx context.Context, cl *rpc.Call, f func() (any, error)) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &panicError{value: v, stack: debug.Stack()}
			s.log.ErrorContext(ctx, "method panicked", slog.String("method", cl.Method.Name), slog.String("stack", string(p.stack)))
			result, err = nil, p
		}
	}()
	return f()
}

// subscriptions are the events of a connection, for its calls.
type subscriptions struct{ c *client }

// Follow implements [rpc.Events]. The gate of the run is closed until open is called.
func (s subscriptions) Follow(run string) (open func(), added bool) {
	s.c.Gate(run)
	added = s.c.srv.hub.Follow(s.c, run)
	return func() { s.c.OpenGate(run) }, added
}

// Forget implements [rpc.Events].
func (s subscriptions) Forget(run string) { s.c.srv.hub.Forget(s.c, run) }

// Subscribe implements [rpc.Events].
func (s subscriptions) Subscribe(deltas bool, of chat.SessionKey) {
	s.c.srv.hub.Subscribe(s.c, socket.Subscription{Deltas: deltas, Of: of})
}

// Unsubscribe implements [rpc.Events].
func (s subscriptions) Unsubscribe() { s.c.srv.hub.Unsubscribe(s.c) }

// order serializes the calls of one connection for one session, in the order in which their frames
// arrived. Without it, two messages that a client sends without waiting for an answer are accepted
// in any order. The zero value is ready to use. It is safe for concurrent use.
type order struct {
	mu    sync.Mutex
	lines map[chat.SessionKey][]*queuedCall // nil before the first call; the first call of each line runs
}

// queuedCall is the position of one call in the line of its session. nil = the call has no position and
// does not wait.
type queuedCall struct {
	order   *order
	session chat.SessionKey
	first   chan struct{} // closed when no earlier call is left in the line
}

// join adds a call to the end of the line of a session. [queuedCall.leave] must follow.
func (o *order) join(session chat.SessionKey) *queuedCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &queuedCall{order: o, session: session, first: make(chan struct{})}
	if o.lines == nil {
		o.lines = map[chat.SessionKey][]*queuedCall{}
	}
	if o.lines[session] = append(o.lines[session], t); len(o.lines[session]) == 1 {
		close(t.first)
	}
	return t
}

// wait returns when every earlier call has left the line, or with the cause of ctx.
func (t *queuedCall) wait(ctx context.Context) error {
	if t == nil {
		return nil
	}
	select {
	case <-t.first:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets the next call of the line run. If a call leaves before it is first, no other call runs
// early.
func (t *queuedCall) leave() {
	if t == nil {
		return
	}
	o := t.order
	o.mu.Lock()
	defer o.mu.Unlock()
	line := o.lines[t.session]
	wasFirst := line[0] == t
	line = slices.DeleteFunc(line, func(other *queuedCall) bool { return other == t })
	switch {
	case len(line) == 0:
		delete(o.lines, t.session)
		return
	case wasFirst:
		close(line[0].first)
	}
	o.lines[t.session] = line
}

// longestUrgent is the maximum size of a message that is compared with the urgent commands, in
// bytes of JSON.
const longestUrgent = 256

// lineUp returns the position of a request in the line of its session, taken in the order of
// arrival; nil when the method is not ordered or the parameters name no session. An urgent command
// has no position: a stop must not wait for a store that is slow to accept earlier messages.
func (c *client) lineUp(peer context.Context, m *rpc.Method, raw json.RawMessage) *queuedCall {
	if !m.InOrder {
		return nil
	}
	var p struct {
		SessionKey, Key, AgentID string
		Message                  json.RawMessage
	}
	if c.share.Parsing(peer, len(raw), func() error { return json.Unmarshal(raw, &p) }) != nil { // the method refuses them, or the client has disconnected
		return nil
	}
	if len(p.Message) > 0 && len(p.Message) <= longestUrgent {
		if text, ok := strictjson.Unquote(p.Message); ok && c.srv.urgent(text) {
			return nil
		}
	}
	agent := c.srv.backend.DefaultAgent()
	main := chat.MainKey(cmp.Or(p.AgentID, agent)).String()
	key, err := chat.ParseSessionKey(cmp.Or(p.SessionKey, p.Key, main), agent)
	if err != nil {
		return nil
	}
	return c.order.join(key)
}

// urgent reports whether a message is an urgent command.
func (s *Server) urgent(text string) bool {
	name, slash := strings.CutPrefix(strings.TrimSpace(text), "/")
	if !slash {
		return false
	}
	if end := strings.IndexFunc(name, unicode.IsSpace); end >= 0 {
		name = name[:end]
	}
	return slices.ContainsFunc(s.backend.Commands(), func(cmd chat.CommandInfo) bool {
		named := func(word string) bool { return strings.EqualFold(word, name) }
		return cmd.Urgent && (named(cmd.Name) || slices.ContainsFunc(cmd.Aliases, named))
	})
}

// heldRequests are the authenticated HTTP requests whose handlers are running, with the functions
// that cancel them. The zero value is ready to use. It is safe for concurrent use.
type heldRequests struct {
	mu  sync.Mutex
	all map[*heldRequest]struct{}
}

// heldRequest is one request with its credential.
type heldRequest struct {
	cred auth.Credential
	end  context.CancelCauseFunc
}

type heldKey struct{}

// track gives a request a context that [heldRequests.endAll] can cancel.
func (h *heldRequests) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		held := &heldRequest{end: end}
		defer h.forget(held)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, heldKey{}, held)))
	})
}

// show records the credential of a request.
func (h *heldRequests) show(r *http.Request, cred auth.Credential) {
	held, ok := r.Context().Value(heldKey{}).(*heldRequest)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[*heldRequest]struct{}{}
	}
	held.cred = cred
	h.all[held] = struct{}{}
}

func (h *heldRequests) forget(held *heldRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, held)
}

// some reports whether there is any request.
func (h *heldRequests) some() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all) > 0
}

// endAll cancels the requests whose credential is no longer valid.
func (h *heldRequests) endAll(now time.Time, inForce func(auth.Credential) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.all {
		if !inForce(held.cred) {
			held.end(errEnded(held.cred, now))
		}
	}
}

// errEnded is the error for work that ends because its credential has expired, or was revoked or
// changed.
func errEnded(c auth.Credential, now time.Time) *fault.Error {
	text := "credential was revoked"
	if c.Expired(now) {
		text = "credential has expired"
	}
	return fault.Invalid(text).WithStatus(http.StatusUnauthorized)
}

// reporter reports how requests ended: to clients, to the log and to the metrics.
type reporter struct {
	log      *slog.Logger
	counters *counters
}

// Explain converts an error to the form for clients. For a defect, that is a number; the log has
// the error with this number.
func (r *reporter) Explain(ctx context.Context, method string, err error) *fault.Error {
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	if errors.Is(err, errStopping) {
		return fault.Draining()
	}
	if e, ok := fault.From(err); ok {
		if e.Details["code"] == string(chat.CodeRateLimited) && e.Details["method"] == nil {
			e.Details["method"] = method
		}
		return e
	}
	id := uuid.NewString()
	r.log.ErrorContext(ctx, "request failed", slog.String("method", method), slog.String("error_id", id), slog.Any("err", err))
	e := fault.New(wire.CodeUnavailable, "internal error; the gateway's log has it under "+id)
	e.Details = map[string]any{"code": wire.DetailInternal, "errorId": id}
	return e
}

// Count counts a request with the code of its error. An error without a code is a defect.
func (r *reporter) Count(method string, err error, took time.Duration) {
	result := "ok"
	if err != nil {
		result = string(chat.CodeInternal)
		if e, ok := fault.From(err); ok {
			result = e.Label()
		}
	}
	r.counters.request(method, result, took)
}
