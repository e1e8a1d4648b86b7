package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// client implements the protocol on one WebSocket connection: its principal, its view of the
// protocol, and its requests in flight.
type client struct {
	*socket.Conn

	srv  *Server
	id   string
	addr netip.Addr
	who  atomic.Pointer[identity] // nil before hello-ok

	share *inflight.Share // of its principal; written before who

	// Used only by the reader.
	calls  *rate.Limiter // nil before the first call, and when calls are unlimited
	faults []time.Time   // times of malformed frames of the last minute

	order    order
	requests sync.WaitGroup
	mu       sync.Mutex
	inFlight map[string]bool // by id; true = it has one of the places for control methods; nil before the first
	controls int
	brief    briefJobs
}

// identity is the identity of a connection after hello-ok.
type identity struct {
	cred     auth.Credential
	scopes   []string
	level    int
	extended bool
	tools    bool
	brief    bool // receives events about jobs in brief
	probe    bool // speaks an old version and may only call health
}

func (id *identity) administers() bool { return id.cred.Administers(id.scopes) }

func (id *identity) principal() string { return id.cred.Name }

func (s *Server) newClient(conn *socket.Conn, addr netip.Addr) *client {
	return &client{Conn: conn, srv: s, id: "c-" + s.bootID[:4] + strconv.FormatUint(s.connSeq.Add(1), 36), addr: addr}
}

// takeCall takes a call from the allowance of the connection, or returns when the next one is
// available.
func (c *client) takeCall() (ok bool, after time.Duration) {
	n := c.srv.cfg.RequestsPerSecond
	if n <= 0 {
		return true, 0
	}
	if c.calls == nil {
		c.calls = rate.NewLimiter(rate.Limit(n), n)
	}
	return auth.Take(c.calls, 1)
}

// Hold implements [socket.Client].
func (c *client) Hold(peer context.Context, n int64) (socket.Held, *socket.Closing) {
	held, err := c.share.Hold(peer, n)
	if err != nil {
		return nil, &socket.Closing{Code: websocket.CloseTryAgainLater, Text: err.Error(), Reason: socket.ClosedSlow}
	}
	return held, nil
}

// Tick implements [socket.Client].
func (c *client) Tick(now time.Time) {
	c.PutState(wire.EventTick, strictjson.Encode(wire.Tick{TS: now.UnixMilli()}), 0)
}

// DeltaEvents implements [socket.Client].
func (c *client) DeltaEvents(d *socket.Delta, send func(event string, payload []byte) bool) {
	if send(wire.EventChat, chatDelta(d)) && !d.Waiting {
		send(wire.EventAgent, agentDelta(d, c.who.Load().extended))
	}
}

// Closed implements [socket.Client]. Active requests continue, and the gateway waits for them at
// shutdown.
func (c *client) Closed(ctx context.Context, end *socket.Closing) {
	defer c.srv.hub.Leave()
	defer c.brief.stop()
	c.srv.hub.Remove(c)
	c.requests.Wait()
	c.srv.counters.connClosed(end.Reason)
	c.srv.log.DebugContext(ctx, "connection closed", slog.String("conn_id", c.id), slog.String("reason", string(end.Reason)), slog.Any("err", end))
}

// refusal is a failed handshake: an error frame, followed by a close.
type refusal struct {
	err  *fault.Error
	code int
}

// challenge sends the only event without a number.
func (c *client) challenge() {
	payload := strictjson.Encode(wire.Challenge{Nonce: uuid.NewString(), TS: time.Now().UnixMilli()})
	c.PutFrame(socket.AppendEvent(nil, wire.EventChallenge, payload, 0, 0))
}

// Handshake implements [socket.Client]: it answers the first request.
func (c *client) Handshake(ctx context.Context, data []byte) *socket.Closing {
	req, err := parseRequest(data)
	if bad, ok := errors.AsType[*malformed](err); ok {
		if bad.notObject {
			return &socket.Closing{Code: websocket.CloseNormalClosure, Text: "first message must be a JSON object", Reason: socket.ClosedHandshake}
		}
		return c.refuse(bad.id, refusal{fault.Invalid(bad.Error()), websocket.ClosePolicyViolation})
	}
	if no := c.admit(ctx, req); no != nil {
		return c.refuse(req.id, *no)
	}
	return nil
}

func (c *client) refuse(id string, no refusal) *socket.Closing {
	c.PutFrame(appendFailure(nil, id, no.err))
	return &socket.Closing{Code: no.code, Text: no.err.Message, Reason: socket.ClosedHandshake}
}

// admit decides about a connect request. It needs no database.
func (c *client) admit(ctx context.Context, req request) *refusal {
	if req.method != wire.MethodConnect {
		return &refusal{fault.Invalid("invalid handshake: first request must be connect"), websocket.ClosePolicyViolation}
	}
	p, no := readConnect(c.srv.connects, req)
	if no != nil {
		return no
	}
	protocol, no := negotiate(p)
	if no != nil {
		return no
	}
	// Before the store is open, the named tokens are unknown: a secret that is not found may be
	// valid, and must not count for the lock-out.
	if !c.srv.state.ready() {
		return c.unavailable()
	}
	cred, refused := c.srv.auth.Identify(ctx, auth.Secret{Token: p.Auth.Token, Password: p.Auth.Password}, c.addr)
	if refused != nil {
		return &refusal{refused, websocket.ClosePolicyViolation}
	}
	if no := c.unavailable(); no != nil {
		return no
	}
	id := &identity{cred: cred, scopes: cred.Grant(p.Scopes), extended: slices.Contains(p.Caps, wire.CapExtended)}
	id.level = auth.Level(id.scopes)
	id.tools = slices.Contains(p.Caps, wire.CapToolEvents)
	id.brief = slices.Contains(p.Caps, wire.CapCronBrief)
	id.probe = protocol < wire.ProtocolVersion
	if !c.srv.hub.Admit(c, id.principal()) {
		w := fault.Unavailable(wire.DetailTooManyConnections, "too many connections", time.Second)
		return &refusal{w, websocket.CloseTryAgainLater}
	}
	c.CountFor(cred.Name)
	c.share = c.srv.inFlight.Of(cred.Name, cred.Own())
	c.welcome(ctx, req.id, id, protocol)
	c.srv.log.DebugContext(ctx, "client connected", slog.String("conn_id", c.id), slog.String("principal", cred.Name), slog.String("client", p.Client.ID),
		slog.String("mode", p.Client.Mode))
	return nil
}

// unavailable returns the refusal while the gateway starts or stops, or nil.
func (c *client) unavailable() *refusal {
	e := c.srv.state.Refusal()
	switch {
	case e == nil:
		return nil
	case e.Label() == string(chat.CodeDraining):
		return &refusal{e, websocket.CloseServiceRestart}
	default:
		return &refusal{e, websocket.CloseTryAgainLater}
	}
}

func readConnect(as *params.Decoder, req request) (wire.ConnectParams, *refusal) {
	var p wire.ConnectParams
	err := req.badText
	if err == nil {
		err = as.Decode(req.params, &p)
	}
	if err == nil && p.MinProtocol > p.MaxProtocol {
		err = &params.Error{At: "/maxProtocol", Text: "must be >= minProtocol"}
	}
	if err != nil {
		return p, &refusal{params.Refuse(wire.MethodConnect, err), websocket.ClosePolicyViolation}
	}
	if p.Role != "" && p.Role != wire.RoleOperator {
		w := fault.Invalid("unsupported role: " + fault.CutName(p.Role))
		w.Details = map[string]any{"code": wire.DetailRoleNotSupported}
		return p, &refusal{w, websocket.ClosePolicyViolation}
	}
	return p, nil
}

func negotiate(p wire.ConnectParams) (int, *refusal) {
	switch {
	case p.MinProtocol <= wire.ProtocolVersion && p.MaxProtocol >= wire.ProtocolVersion:
		return wire.ProtocolVersion, nil
	case p.Client.Mode == "probe" && p.MaxProtocol == wire.MinProbeVersion:
		return wire.MinProbeVersion, nil
	}
	w := fault.Invalid("protocol mismatch")
	w.Details = map[string]any{
		"code": wire.DetailProtocolMismatch, "clientMinProtocol": p.MinProtocol, "clientMaxProtocol": p.MaxProtocol,
		"expectedProtocol": wire.ProtocolVersion, "minimumProbeProtocol": wire.MinProbeVersion,
	}
	return 0, &refusal{w, websocket.CloseProtocolError}
}

// welcome sends hello-ok and opens the connection for events, in this order.
func (c *client) welcome(ctx context.Context, id string, who *identity, protocol int) {
	s := c.srv
	hello := appendResponse(nil, id, strictjson.Encode(s.hello(ctx, c, who, protocol)))
	s.hub.Open(c, func() {
		c.PutFrame(hello)
		c.who.Store(who)
	})
}

func (s *Server) hello(ctx context.Context, c *client, who *identity, protocol int) wire.HelloOK {
	health := s.health.now(ctx)
	granted := wire.HelloAuth{Role: wire.RoleOperator, Scopes: who.scopes}
	if who.extended {
		granted.Name = who.cred.Name
	}
	agent := s.backend.DefaultAgent()
	mode := "token"
	if s.auth.PasswordOnly() {
		mode = "password"
	}
	return wire.HelloOK{
		Type: "hello-ok", Protocol: protocol,
		Server:   wire.HelloServer{Version: s.version(), BootID: s.bootID, ConnID: c.id},
		Features: wire.HelloFeatures{Methods: s.methodNames, Events: eventNames(), Capabilities: []string{wire.CapExtended}},
		Snapshot: wire.HelloSnapshot{
			Presence: []string{}, Health: health.of(false), StateVersion: wire.StateVersion{Health: health.version},
			UptimeMs: time.Since(s.startedAt).Milliseconds(),
			SessionDefaults: wire.SessionDefaults{
				DefaultAgentID: agent, MainKey: "main", MainSessionKey: "agent:" + agent + ":main", Scope: sessionScope,
			},
			AuthMode: mode,
		},
		Auth:   granted,
		Policy: wire.HelloPolicy{MaxPayload: s.cfg.MaxPayload, MaxBufferedBytes: s.cfg.MaxBuffered, TickIntervalMs: TickEvery.Milliseconds()},
	}
}

func (s *Server) version() string {
	if v := strings.TrimSpace(s.cfg.Version); v != "" {
		return v
	}
	return "dev"
}

// request is one frame of a client.
type request struct {
	id, method string
	params     json.RawMessage
	// badText is set when a string in it must be refused; the frame itself is valid.
	badText error
}

// malformed is the error for a frame that is not a request. id is the id of the answer.
type malformed struct {
	id, reason string
	// notObject: the frame is not a JSON object. This is the only fault that is not answered before
	// authentication.
	notObject bool
}

// Error describes the fault of the frame in the terms of the protocol.
func (m *malformed) Error() string { return "invalid request frame: " + m.reason }

// parseRequest parses one message. Member names must match exactly, which decoding into a struct
// would not require.
func parseRequest(data []byte) (request, error) {
	strict := strictjson.Inspect(data)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil || members == nil {
		return request{}, &malformed{id: "invalid", reason: "must be object", notObject: true}
	}
	req := request{params: members["params"]}
	id, idErr := frameString(members, "id", maxIDBytes)
	req.id = id
	refuse := func(reason string) (request, error) {
		if req.id == "" {
			return req, &malformed{id: "invalid", reason: reason}
		}
		return req, &malformed{id: req.id, reason: reason}
	}
	kind, kindErr := frameString(members, "type", 16)
	method, methodErr := frameString(members, "method", 256)
	_, traceErr := optionalString(members, "traceparent", 128)
	req.method = method
	switch err := errors.Join(kindErr); {
	case errors.Is(strict, strictjson.ErrTooDeep):
		return refuse(strict.Error())
	case err != nil:
		return refuse(err.Error())
	case kind != "req":
		return refuse("at /type: must be equal to constant")
	}
	for _, err := range []error{idErr, methodErr, traceErr} {
		if err != nil {
			return refuse(err.Error())
		}
	}
	req.badText = strict
	return req, nil
}

func frameString(members map[string]json.RawMessage, name string, limit int) (string, error) {
	if _, ok := members[name]; !ok {
		return "", fmt.Errorf("must have required property '%s'", name)
	}
	return optionalString(members, name, limit)
}

func optionalString(members map[string]json.RawMessage, name string, limit int) (string, error) {
	raw, ok := members[name]
	if !ok {
		return "", nil
	}
	s, ok := strictjson.Unquote(raw)
	if !ok {
		return "", fmt.Errorf("at /%s: must be string", name)
	}
	if s == "" && name != "traceparent" {
		return "", fmt.Errorf("at /%s: must NOT have fewer than 1 characters", name)
	}
	if len(s) > limit {
		return "", fmt.Errorf("at /%s: must NOT have more than %d bytes", name, limit)
	}
	return s, nil
}

// appendResponse writes a response frame. The payload is already JSON.
func appendResponse(dst []byte, id string, payload []byte) []byte {
	dst = append(dst, `{"type":"res","id":`...)
	dst = strictjson.AppendString(dst, id)
	dst = append(dst, `,"ok":true,"payload":`...)
	dst = append(dst, payload...)
	return append(dst, '}')
}

func appendFailure(dst []byte, id string, e *fault.Error) []byte {
	dst = append(dst, `{"type":"res","id":`...)
	dst = strictjson.AppendString(dst, id)
	dst = append(dst, `,"ok":false,"error":`...)
	dst = append(dst, strictjson.Encode(e)...)
	return append(dst, '}')
}
