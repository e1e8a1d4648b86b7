package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/params"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

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
	// Before the store is open, the named tokens are unknown: a secret that is not found may be valid, and must not count for the lock-out.
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
