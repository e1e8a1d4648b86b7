package gateway

import (
	"context"
	"encoding/json"
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
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
)

// Capabilities that a client can name in connect.
const (
	CapExtended   = "laneway-ext" // it understands the members that are ours
	CapToolEvents = "tool-events" // it wants the steps of tool calls
)

type connectParams struct {
	_           struct{}    `open:"true"`
	MinProtocol int64       `json:"minProtocol" p:"required,min=1"`
	MaxProtocol int64       `json:"maxProtocol" p:"required,min=1"`
	Client      clientInfo  `json:"client" p:"required"`
	Role        string      `json:"role"`
	Scopes      []string    `json:"scopes" p:"max=64"`
	Caps        []string    `json:"caps" p:"max=64"`
	Auth        connectAuth `json:"auth"`
}

type clientInfo struct {
	_        struct{} `open:"true"`
	ID       string   `json:"id" p:"required,max=64,pattern=^[a-z0-9][a-z0-9._-]*$"`
	Version  string   `json:"version" p:"required,min=1,max=64"`
	Platform string   `json:"platform" p:"required,min=1,max=64"`
	Mode     string   `json:"mode" p:"required,enum=webchat|cli|ui|backend|node|worker|probe|test"`
}

type connectAuth struct {
	_        struct{} `open:"true"`
	Token    string   `json:"token"`
	Password string   `json:"password"`
}

// refusal is a failed handshake: an error frame, then a close.
type refusal struct {
	err  *fault.Error
	code int
}

// challenge is the one event without a number.
func (c *client) challenge() {
	payload := strictjson.Encode(map[string]any{"nonce": uuid.NewString(), "ts": time.Now().UnixMilli()})
	c.PutFrame(socket.AppendEvent(nil, eventChallenge, payload, 0, 0))
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

// admit is the whole decision about a connect request. It needs no database.
func (c *client) admit(ctx context.Context, req request) *refusal {
	if req.method != methodConnect {
		return &refusal{fault.Invalid("invalid handshake: first request must be connect"), websocket.ClosePolicyViolation}
	}
	p, no := readConnect(req)
	if no != nil {
		return no
	}
	protocol, no := negotiate(p)
	if no != nil {
		return no
	}
	cred, refused := c.srv.auth.Identify(ctx, auth.Secret{Token: p.Auth.Token, Password: p.Auth.Password}, c.addr)
	if refused != nil {
		return &refusal{refused, websocket.ClosePolicyViolation}
	}
	if e := c.srv.state.Refusal(); e != nil {
		code := websocket.CloseTryAgainLater
		if e.Label() == string(chat.CodeDraining) {
			code = websocket.CloseServiceRestart
		}
		return &refusal{e, code}
	}
	id := &identity{cred: cred, scopes: cred.Grant(p.Scopes), extended: slices.Contains(p.Caps, CapExtended)}
	id.level = auth.Level(id.scopes)
	id.tools = slices.Contains(p.Caps, CapToolEvents)
	id.probe = protocol < ProtocolVersion
	if !c.srv.hub.Admit(c, id.principal()) {
		w := fault.Unavailable("TOO_MANY_CONNECTIONS", "too many connections", time.Second)
		return &refusal{w, websocket.CloseTryAgainLater}
	}
	c.welcome(req.id, id, protocol)
	c.log.DebugContext(ctx, "client connected", slog.String("principal", cred.Name), slog.String("client", p.Client.ID),
		slog.String("mode", p.Client.Mode))
	return nil
}

func readConnect(req request) (connectParams, *refusal) {
	var p connectParams
	err := req.badText
	if err == nil {
		err = shapeOf[connectParams]().decode(req.params, &p)
	}
	if err == nil && p.MinProtocol > p.MaxProtocol {
		err = &paramError{at: "/maxProtocol", text: "must be >= minProtocol"}
	}
	if err != nil {
		return p, &refusal{badParams(methodConnect, err), websocket.ClosePolicyViolation}
	}
	if p.Role != "" && p.Role != roleOperator {
		w := fault.Invalid("unsupported role: " + fault.CutName(p.Role))
		w.Details = map[string]any{"code": "ROLE_NOT_SUPPORTED"}
		return p, &refusal{w, websocket.ClosePolicyViolation}
	}
	return p, nil
}

func negotiate(p connectParams) (int, *refusal) {
	switch {
	case p.MinProtocol <= ProtocolVersion && p.MaxProtocol >= ProtocolVersion:
		return ProtocolVersion, nil
	case p.Client.Mode == "probe" && p.MaxProtocol == MinProbeVersion:
		return MinProbeVersion, nil
	}
	w := fault.Invalid("protocol mismatch")
	w.Details = map[string]any{
		"code": "PROTOCOL_MISMATCH", "clientMinProtocol": p.MinProtocol, "clientMaxProtocol": p.MaxProtocol,
		"expectedProtocol": ProtocolVersion, "minimumProbeProtocol": MinProbeVersion,
	}
	return 0, &refusal{w, websocket.CloseProtocolError}
}

// welcome sends hello-ok and opens the connection for events, in this order.
func (c *client) welcome(id string, who *identity, protocol int) {
	s := c.srv
	hello := appendResponse(nil, id, strictjson.Encode(s.hello(c, who, protocol)))
	s.hub.Open(c, func() {
		c.PutFrame(hello)
		c.who.Store(who)
	})
}

// helloOK is the answer to connect; always in the standard view.
type helloOK struct {
	Type     string        `json:"type"`
	Protocol int           `json:"protocol"`
	Server   helloServer   `json:"server"`
	Features helloFeatures `json:"features"`
	Snapshot helloSnapshot `json:"snapshot"`
	Auth     helloAuth     `json:"auth"`
	Policy   helloPolicy   `json:"policy"`
}

type helloServer struct {
	Version string `json:"version"`
	BootID  string `json:"bootId"`
	ConnID  string `json:"connId"`
}

type helloFeatures struct {
	Methods      []string `json:"methods"`
	Events       []string `json:"events"`
	Capabilities []string `json:"capabilities"`
}

type helloSnapshot struct {
	Presence        []string        `json:"presence"`
	Health          json.RawMessage `json:"health"`
	StateVersion    stateVersion    `json:"stateVersion"`
	UptimeMs        int64           `json:"uptimeMs"`
	SessionDefaults sessionDefaults `json:"sessionDefaults"`
	AuthMode        string          `json:"authMode"`
}

type stateVersion struct {
	Presence int    `json:"presence"`
	Health   uint64 `json:"health"`
}

type sessionDefaults struct {
	DefaultAgentID string `json:"defaultAgentId"`
	MainKey        string `json:"mainKey"`
	MainSessionKey string `json:"mainSessionKey"`
	Scope          string `json:"scope"`
}

type helloAuth struct {
	Role   string   `json:"role"`
	Scopes []string `json:"scopes"`
}

type helloPolicy struct {
	MaxPayload       int64 `json:"maxPayload"`
	MaxBufferedBytes int   `json:"maxBufferedBytes"`
	TickIntervalMs   int64 `json:"tickIntervalMs"`
}

const roleOperator = "operator"

func (s *Server) hello(c *client, who *identity, protocol int) helloOK {
	health := s.health.Load()
	agent := s.backend.DefaultAgent()
	mode := "token"
	if s.auth.PasswordOnly() {
		mode = "password"
	}
	return helloOK{
		Type: "hello-ok", Protocol: protocol,
		Server:   helloServer{Version: s.version(), BootID: s.bootID, ConnID: c.id},
		Features: helloFeatures{Methods: s.methodNames, Events: eventNames(), Capabilities: []string{CapExtended}},
		Snapshot: helloSnapshot{
			Presence: []string{}, Health: health.of(false, who.cred.Own()), StateVersion: stateVersion{Health: health.version},
			UptimeMs:        time.Since(s.startedAt).Milliseconds(),
			SessionDefaults: sessionDefaults{agent, "main", "agent:" + agent + ":main", sessionScope},
			AuthMode:        mode,
		},
		Auth:   helloAuth{Role: roleOperator, Scopes: who.scopes},
		Policy: helloPolicy{s.cfg.MaxPayload, s.cfg.MaxBuffered, TickEvery.Milliseconds()},
	}
}

func (s *Server) version() string {
	if v := strings.TrimSpace(s.cfg.Version); v != "" {
		return v
	}
	return "dev"
}
