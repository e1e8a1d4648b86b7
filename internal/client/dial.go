package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"laneway/internal/secret"
	"laneway/internal/wire"
)

const (
	maxMessage   = 32 << 20 // larger than any frame of a gateway
	writeTimeout = 10 * time.Second
)

// Options of a connection.
type Options struct {
	// URL of the gateway: ws://, wss://, http:// or https://. Required.
	URL string
	// Token is any credential of the gateway. It is never logged or shown.
	Token string
	// Scopes to request; nil = read, write and admin. The gateway grants those that the credential has.
	Scopes []string
	// Standard requests the standard view instead of the extended one.
	Standard bool
	// ToolEvents requests the events of tool calls.
	ToolEvents bool
	// Name, Version and Mode describe the client to the gateway; defaults `cli`, `dev`, `cli`.
	Name, Version, Mode string
	// AllowPlain permits ws:// to another machine. The token then crosses the network unencrypted.
	AllowPlain bool
	// TLS replaces the default verification (system roots).
	TLS *tls.Config
	// Timeout of dialling and handshake together; default 10 s.
	Timeout time.Duration
	// EventBuffer is the number of events that are buffered for the caller; default 256.
	EventBuffer int
}

func (o Options) withDefaults() Options {
	if o.Scopes == nil {
		o.Scopes = []string{"operator.read", "operator.write", "operator.admin"}
	}
	o.Name, o.Version, o.Mode = orWord(o.Name, "cli"), orWord(o.Version, "dev"), orWord(o.Mode, "cli")
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.EventBuffer <= 0 {
		o.EventBuffer = 256
	}
	return o
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

// Hello is the answer of the gateway to an accepted connect.
type Hello = wire.HelloOK

// Dial opens a connection and authenticates. ctx limits only the dialling.
func Dial(ctx context.Context, opts Options) (*Conn, error) {
	opts = opts.withDefaults()
	address, err := webSocketURL(opts.URL, opts.AllowPlain)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.Timeout)
	defer cancel()
	dialer := websocket.Dialer{TLSClientConfig: opts.TLS, HandshakeTimeout: opts.Timeout}
	ws, resp, err := dialer.DialContext(ctx, address, nil) //nolint:bodyclose // the library has read it; there is nothing to close
	if err != nil {
		return nil, dialError(address, resp, err)
	}
	ws.SetReadLimit(maxMessage)
	stop := context.AfterFunc(ctx, func() { _ = ws.NetConn().SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // fails when closed
	hello, err := handshake(ws, opts)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = ws.Close()
		return nil, handshakeError(ctx, address, err)
	}
	return newConn(ws, hello, opts), nil
}

func handshakeError(ctx context.Context, address string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w at %s: it did not answer in time: %w", ErrNoGateway, address, context.Cause(ctx))
	}
	return err
}

// webSocketURL checks the address. Only a loopback address may be used without TLS.
func webSocketURL(raw string, allowPlain bool) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the gateway's address %q is not a URL such as ws://127.0.0.1:18790", secret.RawURL(raw))
	}
	switch strings.ToLower(u.Scheme) {
	case "ws", "http":
		u.Scheme = "ws"
	case "wss", "https":
		u.Scheme = "wss"
	default:
		return "", fmt.Errorf("the gateway's address has the scheme %q; use ws:// or wss://", u.Scheme)
	}
	if u.User != nil || u.RawQuery != "" {
		return "", errors.New("the gateway's address must not contain a user, a password or a query; give the token with --token or LANEWAY_TOKEN")
	}
	if u.Scheme == "ws" && !allowPlain && !loopback(u.Hostname()) {
		return "", fmt.Errorf("%w: the token would cross the network to %s in clear; use wss://", ErrPlain, u.Hostname())
	}
	u.Fragment = ""
	if u.Path == "" {
		u.Path = "/"
	}
	return u.String(), nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// handshake reads the challenge before it sends anything: a program that sends no challenge is not a gateway and must not receive the
// token.
func handshake(ws *websocket.Conn, opts Options) (Hello, error) {
	var hello Hello
	var first wire.Frame
	if err := ws.ReadJSON(&first); gaveWay(err) {
		return hello, fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, err)
	} else if err != nil || first.Event != wire.EventChallenge {
		return hello, fmt.Errorf("%w: what answers there does not speak this protocol", ErrNoGateway)
	}
	if err := ws.WriteJSON(connectFrame(opts)); err != nil {
		return hello, fmt.Errorf("%w: sending connect: %w", ErrClosed, err)
	}
	var answer wire.Frame
	if err := ws.ReadJSON(&answer); gaveWay(err) {
		return hello, fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, err)
	} else if err != nil {
		return hello, fmt.Errorf("waiting for the answer to connect: %w", readError(err))
	}
	if !answer.OK {
		if answer.Error == nil {
			return hello, fmt.Errorf("%w: the answer to connect is not understood", ErrVersion)
		}
		return hello, connectError(refusal(answer.Error))
	}
	if err := json.Unmarshal(answer.Payload, &hello); err != nil || hello.Protocol != wire.ProtocolVersion {
		return hello, fmt.Errorf("%w: the gateway speaks version %d, this client %d", ErrVersion, hello.Protocol, wire.ProtocolVersion)
	}
	return hello, nil
}

// gaveWay reports whether the gateway closed the socket before the handshake because it has too many. Another attempt may succeed.
func gaveWay(err error) bool { return websocket.IsCloseError(err, websocket.CloseTryAgainLater) }

func connectFrame(o Options) wire.Request {
	caps := []string{}
	if !o.Standard {
		caps = append(caps, wire.CapExtended)
	}
	if o.ToolEvents {
		caps = append(caps, wire.CapToolEvents)
	}
	return wire.Request{Type: wire.FrameRequest, ID: wire.MethodConnect, Method: wire.MethodConnect, Params: wire.ConnectParams{
		MinProtocol: wire.ProtocolVersion, MaxProtocol: wire.ProtocolVersion, Caps: caps, Role: wire.RoleOperator, Scopes: o.Scopes,
		Client: wire.ConnectClient{ID: o.Name, Version: o.Version, Platform: runtime.GOOS, Mode: o.Mode},
		Auth:   wire.ConnectAuth{Token: o.Token},
	}}
}
