package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"syscall"
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
	// Scopes to request; nil = read, write and admin. The gateway grants those that the credential
	// has.
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
	o.Name, o.Version, o.Mode = cmp.Or(o.Name, "cli"), cmp.Or(o.Version, "dev"), cmp.Or(o.Mode, "cli")
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.EventBuffer <= 0 {
		o.EventBuffer = 256
	}
	return o
}

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
	stop := context.AfterFunc(ctx, func() { _ = ws.NetConn().SetDeadline(time.Unix(1, 0)) }) // fails when closed
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
	u.Path = cmp.Or(u.Path, "/")
	return u.String(), nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// handshake reads the challenge before it sends anything: a program that sends no challenge is not
// a gateway and must not receive the token.
func handshake(ws *websocket.Conn, opts Options) (wire.HelloOK, error) {
	var hello wire.HelloOK
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

// gaveWay reports whether the gateway closed the socket before the handshake because it has too
// many. Another attempt may succeed.
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

// The kinds of connection errors, for errors.Is.
var (
	// ErrNoGateway: no program answers at the address, or the program is no gateway.
	ErrNoGateway = errors.New("no gateway")
	// ErrUnauthorized: the token is missing, wrong, revoked, or the address is locked out.
	ErrUnauthorized = errors.New("not authorized")
	// ErrVersion: client and gateway have no protocol version in common.
	ErrVersion = errors.New("no common protocol version")
	// ErrPlain: the token would cross a network unencrypted.
	ErrPlain = errors.New("unencrypted connection")
	// ErrUntrusted: the server's certificate does not prove that it is the gateway of this address.
	// The token was not sent.
	ErrUntrusted = errors.New("certificate not trusted")
	// ErrClosed: the connection was lost or closed. The call may have taken effect; repeat it with
	// the same idempotencyKey.
	ErrClosed = errors.New("connection closed")
	// ErrProtocol: the server sends something that is not a frame of the protocol. Connecting again
	// does not help.
	ErrProtocol = errors.New("not a gateway, or one of another version")
	// ErrUnavailable: the gateway exists and cannot serve now (starting, stopping, too many
	// connections).
	ErrUnavailable = errors.New("gateway unavailable")
)

// Error is a refusal of the gateway.
type Error struct {
	// Code is INVALID_REQUEST, FORBIDDEN or UNAVAILABLE. DetailCode is the detail code, or "".
	Code, DetailCode string
	Message          string
	Details          map[string]any
	// Retryable is true when nothing was done and the same call may succeed after RetryAfter.
	Retryable  bool
	RetryAfter time.Duration
}

// Error returns the gateway's sentence.
func (e *Error) Error() string { return e.Message }

// refusal returns the error of a frame.
func refusal(w *wire.Error) *Error {
	return &Error{
		Code: w.Code, DetailCode: w.DetailCode(), Message: w.Message, Details: w.Details, Retryable: w.Retryable,
		RetryAfter: time.Duration(w.RetryAfterMs) * time.Millisecond,
	}
}

// refusedError is a refused connect in one sentence with what to do. Its kind is a sentinel of this
// package. errors.As finds the answer of the gateway, which the sentence does not repeat.
type refusedError struct {
	kind   error
	advice string
	answer *Error
}

// Error returns the kind and the advice.
func (r *refusedError) Error() string { return r.kind.Error() + ": " + r.advice }

// Unwrap returns the kind and the gateway's refusal.
func (r *refusedError) Unwrap() []error { return []error{r.kind, r.answer} }

// connectError maps a refused connect to the sentinels.
func connectError(e *Error) error {
	switch e.DetailCode {
	case wire.DetailTokenMissing:
		return &refusedError{ErrUnauthorized, "the gateway wants a token; give --token or LANEWAY_TOKEN", e}
	case wire.DetailTokenMismatch, wire.DetailPasswordMismatch:
		return &refusedError{ErrUnauthorized, "the token is not the gateway's; check --token, LANEWAY_TOKEN or the token file", e}
	case wire.DetailAuthRateLimited:
		return &refusedError{ErrUnauthorized, "too many wrong tokens from here; wait " + e.RetryAfter.Round(time.Second).String(), e}
	case wire.DetailProtocolMismatch:
		return &refusedError{ErrVersion, "update laneway on the older side", e}
	}
	if e.Code == wire.CodeUnavailable {
		return fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, e)
	}
	return fmt.Errorf("connecting: %w", e)
}

// dialError explains why no socket was opened.
func dialError(address string, resp *http.Response, err error) error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("%w at %s: use the name that its certificate has, or put the certificate of its authority into SSL_CERT_FILE: %w", ErrUntrusted, address, bad.Err)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: try again in a moment: what listens at %s closed the connection before it answered", ErrUnavailable, address)
	}
	if resp == nil || !errors.Is(err, websocket.ErrBadHandshake) {
		return fmt.Errorf("%w at %s (%w); start one with laneway serve, or name another with --url", ErrNoGateway, address, err)
	}
	var body struct {
		Error *wire.Error `json:"error"`
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // the status suffices
	if json.Unmarshal(data, &body) != nil || body.Error == nil {
		return fmt.Errorf("%w at %s: something else answers there (HTTP %d)", ErrNoGateway, address, resp.StatusCode)
	}
	refused := refusal(body.Error)
	switch resp.StatusCode {
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%w: try again in a moment: %w", ErrUnavailable, refused)
	case http.StatusMisdirectedRequest:
		return fmt.Errorf("the gateway at %s does not know itself by this name; add it to LANEWAY_ALLOWED_HOSTS: %w", address, refused)
	default:
		return fmt.Errorf("opening %s: HTTP %d: %w", address, resp.StatusCode, refused)
	}
}

// fileTimeout limits the upload or the download of one file.
const fileTimeout = 5 * time.Minute

// File is a file that a gateway has stored.
type File struct {
	// ID names it in the attachments of messages.
	ID    string `json:"id"`
	Name  string `json:"filename"`
	Bytes int64  `json:"bytes"`
}

// Upload sends a file to the gateway over HTTP. name is what people and agents see, size is the
// number of bytes of content. The content is streamed and sent once.
func Upload(ctx context.Context, opts Options, name string, content io.Reader, size int64) (File, error) {
	opts = opts.withDefaults()
	address, err := filesURL(opts)
	if err != nil {
		return File{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	req, err := uploadRequest(ctx, address, name, content, size)
	if err != nil {
		return File{}, err
	}
	resp, err := opts.roundTrip(req)
	if err != nil {
		return File{}, fmt.Errorf("sending %s: %w", name, err)
	}
	defer resp.Body.Close()
	return uploaded(name, resp)
}

// Download writes the content of a file of the gateway, and returns its name. The file is one that
// was uploaded, or that an agent made. A file that does not exist, or that belongs to another
// credential, is an error with the gateway's sentence.
func Download(ctx context.Context, opts Options, id string, to func(name string) (io.Writer, error)) error {
	opts = opts.withDefaults()
	address, err := filesURL(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/"+url.PathEscape(id)+"/content", nil)
	if err != nil {
		return fmt.Errorf("making the request for a file: %w", err)
	}
	resp, err := opts.roundTrip(req)
	if err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err := uploaded(id, resp)
		return err
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition"))
	if err != nil {
		params = nil // it has no name
	}
	w, err := to(params["filename"])
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("reading %s: %w", id, err)
	}
	return nil
}

// roundTrip makes one request with the token.
func (o Options) roundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+o.Token)
	transport := &http.Transport{TLSClientConfig: o.TLS, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, dialError(req.URL.String(), nil, err)
	}
	return resp, nil
}

// filesURL returns the upload URL of the gateway at a WebSocket address.
func filesURL(opts Options) (string, error) {
	address, err := webSocketURL(opts.URL, opts.AllowPlain)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("the gateway's address: %w", err)
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/ws") + "/v1/files"
	return u.String(), nil
}

// uploadRequest wraps the content in a form without reading it into memory.
func uploadRequest(ctx context.Context, address, name string, content io.Reader, size int64) (*http.Request, error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if err := errors.Join(form.WriteField("purpose", "user_data"), second(form.CreateFormFile("file", name))); err != nil {
		return nil, fmt.Errorf("making the form of a file: %w", err)
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, io.MultiReader(&head, io.LimitReader(content, size), strings.NewReader(tail)))
	if err != nil {
		return nil, fmt.Errorf("making the request for a file: %w", err)
	}
	req.ContentLength = int64(head.Len()) + size + int64(len(tail))
	req.Header.Set("Content-Type", form.FormDataContentType())
	return req, nil
}

func second[T any](_ T, err error) error { return err }

func uploaded(name string, resp *http.Response) (File, error) {
	var answer struct {
		File

		Error struct{ Message string }
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&answer)
	switch {
	case resp.StatusCode == http.StatusOK && err == nil && answer.ID != "":
		return answer.File, nil
	case answer.Error.Message != "":
		return File{}, fmt.Errorf("%s: %s", name, answer.Error.Message)
	case resp.StatusCode == http.StatusNotFound:
		return File{}, fmt.Errorf("%s: this gateway has no files; update it", name)
	default:
		return File{}, fmt.Errorf("%s: the gateway answered with status %d", name, resp.StatusCode)
	}
}
