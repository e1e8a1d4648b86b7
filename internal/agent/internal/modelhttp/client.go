// Package modelhttp is the common part of the clients of model APIs: one streaming POST with
// deadlines, retries and errors classified by the closed set of [chat.FailReason].
//
// A [Client] sends a body and passes the answer to a [Reader], event by event, in the goroutine of
// the caller. It is independent of the provider: the Reader interprets events. A [PieceReader]
// receives bodies of other media types as they arrive.
//
// # Deadlines
//
// The first line of the answer has to arrive within FirstByte, each further line within Silence of
// the one before. Lines are counted, not bytes, so that a server that sends only a byte at a time
// is detected. Comments count, because providers send them while a model thinks. The deadline of
// the context bounds the whole call.
//
// # Retries
//
// 429, 5xx and broken connections are retried, with growing pauses and never before the Retry-After
// of the server, as long as [Reader.Begun] is false. A call that exceeded one of these deadlines is
// not retried: its slot has waited long enough and is freed instead. When the pause would be longer
// than MaxPause or than what is left of the context, the error is returned at once; it is marked as
// retryable, and the caller that scheduled the turn decides. With [Call.Once] every failure is
// returned at once.
//
// # Secrets
//
// Errors of net/http quote the URL, which may carry a password, so they are rebuilt without it;
// messages of the provider may quote the key, so the key is removed. Redirects are not followed:
// they would carry the key to another host.
//
// # How it ends
//
// [Client.Do] starts no goroutine and has closed the answer when it returns. Idle connections stay
// in the pool of the transport until [Client.Close]. The proxy environment is honoured as net/http
// does, so never for loopback.
package modelhttp

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/secret"
)

// Defaults of [Config].
const (
	DefaultFirstByte = 60 * time.Second
	DefaultSilence   = 60 * time.Second
	DefaultRetries   = 3
	DefaultMaxPause  = 30 * time.Second
	// DefaultMaxBytes bounds a whole response: an answer of 1 MiB arrives in deltas of one token
	// with some 200 bytes of JSON around each.
	DefaultMaxBytes = 128 << 20
)

const (
	maxErrorBody = 64 << 10
	maxEvent     = 4 << 20
	// tailWait bounds how long a finished stream is read to its end, which makes the connection
	// reusable.
	tailWait = 100 * time.Millisecond
	tailSize = 4 << 10
)

// Config of a [Client]. Zero fields take the defaults.
type Config struct {
	// URL of the endpoint, http or https.
	URL string
	// Header is sent with each request. The client does not modify it.
	Header http.Header
	// Key is removed from everything that the server sends. Header must already contain it.
	Key secret.Secret
	// FirstByte and Silence bound the time to the first line and between lines; negative disables
	// the bound.
	FirstByte, Silence time.Duration
	// Retries after the first attempt, at most 10; negative disables retries.
	Retries int
	// MaxPause is the longest wait before a retry.
	MaxPause time.Duration
	// MaxBytes bounds a whole response.
	MaxBytes int64
}

// Reader decodes an answer. Do calls it on its own goroutine.
type Reader interface {
	// Event takes one event; done means that the answer is complete and the rest of the stream can
	// be ignored.
	Event(event sse.Event) (done bool, err error)
	// Whole takes the body of a server that answered with one JSON document instead of a stream.
	Whole(body []byte) error
	// End is called when the stream ended before Event reported the end; nil means that the answer
	// is complete nevertheless.
	End() error
	// Begun reports whether something was emitted; then no error is retried.
	Begun() bool
}

// PieceReader is a Reader for more formats than server-sent events and one JSON document.
type PieceReader interface {
	Reader
	// Piece takes the next bytes of a body of another media type, which are valid during the call.
	// The first call for a body has an empty piece. done has the meaning of Event. An unknown kind
	// is an error.
	Piece(kind string, piece []byte) (done bool, err error)
}

// Client posts to one endpoint. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
	log  *slog.Logger
}

// New checks cfg. With a nil transport the client makes its own, which honours the proxy
// environment; the caller keeps the ownership of another one. A nil log discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Client, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, err
	}
	if cfg.Retries > 10 {
		return nil, fmt.Errorf("retries: %d is over 10", cfg.Retries)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if transport == nil {
		transport = newTransport()
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Client{cfg: cfg.filled(), http: client, log: log}, nil
}

func (c Config) filled() Config {
	c.FirstByte = orDefault(c.FirstByte, DefaultFirstByte)
	c.Silence = orDefault(c.Silence, DefaultSilence)
	c.MaxPause = orDefault(c.MaxPause, DefaultMaxPause)
	c.Retries = orDefault(c.Retries, DefaultRetries)
	c.MaxBytes = orDefault(c.MaxBytes, DefaultMaxBytes)
	return c
}

func orDefault[T ~int | ~int64](value, standard T) T {
	return cmp.Or(value, standard)
}

// checkURL does not quote the URL: it may carry a password.
func checkURL(raw string) error {
	parsed, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("base_url: not a URL")
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return errors.New("base_url: must begin with http:// or https://")
	case parsed.Host == "":
		return errors.New("base_url: has no host")
	case parsed.RawQuery != "" || parsed.Fragment != "":
		return errors.New("base_url: must not have a query or a fragment")
	}
	return nil
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        128,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // a compressed stream arrives in blocks, and may grow without bound
	}
}

// Close closes idle connections. Running calls continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// attempt is one POST.
func (c *Client) attempt(ctx context.Context, call Call, reader Reader) error {
	watch, ctx := startWatch(ctx, c.cfg.FirstByte, c.cfg.Silence)
	defer watch.stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.URL, bytes.NewReader(call.Body))
	if err != nil {
		return Fail(chat.FailBadRequest, errors.New("the endpoint is not usable"))
	}
	request.Header = c.cfg.Header.Clone()
	if call.Header != nil {
		maps.Copy(request.Header, call.Header())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.broken(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return c.refused(ctx, response, watch)
	}
	return c.answer(ctx, response, watch, reader)
}

func (c *Client) answer(ctx context.Context, response *http.Response, watch *watch, reader Reader) error {
	in := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" { // it was not asked for; some proxies compress nevertheless
		unpacked, err := gzip.NewReader(response.Body)
		if err != nil {
			return c.broken(ctx, err)
		}
		in = unpacked
	}
	body := &watched{in: in, watch: watch, left: c.cfg.MaxBytes}
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		body.anyByte = true
		return c.whole(ctx, body, reader)
	case err == nil && kind == "text/html":
		return Fail(chat.FailBadResponse, errors.New("the server answered with a web page"))
	}
	if pieces, ok := reader.(PieceReader); ok && kind != "text/event-stream" {
		body.anyByte = kind == "text/plain"
		return c.pieces(ctx, body, kind, pieces)
	}
	start := bufio.NewReader(body)
	if first, err := start.Peek(1); err == nil && (first[0] == '{' || first[0] == '[') { // a document under the name of a stream
		body.anyByte = true
		return c.whole(ctx, start, reader)
	}
	events := sse.NewReader(start, maxEvent)
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return reader.End()
		}
		if err != nil {
			return c.broken(ctx, err)
		}
		done, err := reader.Event(event)
		if err != nil {
			return err
		}
		if done {
			finish(body, watch)
			return nil
		}
	}
}

// pieces passes a body to the reader as it arrives.
func (c *Client) pieces(ctx context.Context, body *watched, kind string, reader PieceReader) error {
	buffer := make([]byte, 32<<10)
	for n, err := 0, error(nil); ; n, err = body.Read(buffer) {
		done, failed := reader.Piece(kind, buffer[:n])
		switch {
		case failed != nil:
			return failed
		case done:
			finish(body, body.watch)
			return nil
		case errors.Is(err, io.EOF):
			return reader.End()
		case err != nil:
			return c.broken(ctx, err)
		}
	}
}

func (c *Client) whole(ctx context.Context, body io.Reader, reader Reader) error {
	raw, err := io.ReadAll(io.LimitReader(body, maxEvent+1))
	if err != nil {
		return c.broken(ctx, err)
	}
	if len(raw) > maxEvent {
		return Fail(chat.FailBadResponse, fmt.Errorf("the server answered with more than %d bytes in one piece", maxEvent))
	}
	return reader.Whole(raw)
}

// finish reads the last bytes of a complete stream, because a body that was not read to its end
// costs the connection. The wait is short, because the turn must not wait for a server that keeps
// the body open.
func finish(body io.Reader, watch *watch) {
	watch.last(tailWait)
	_, _ = io.CopyN(io.Discard, body, tailSize) // the answer is complete; only the connection is lost
}

// The causes with which a watch cancels.
var (
	errFirstByte = errors.New("nothing arrived within the time for the first byte")
	errSilence   = errors.New("nothing more arrived within the time of silence")
	errTail      = errors.New("the stream was not closed after its end")
	errTooMuch   = errors.New("the response is larger than it may be")
)

// watch cancels a request when nothing arrives in time. Its methods belong to the goroutine of the
// request; the timer only cancels.
type watch struct {
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	silence time.Duration
}

func startWatch(ctx context.Context, first, silence time.Duration) (*watch, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, silence: silence}
	w.after(first, errFirstByte)
	return w, ctx
}

func (w *watch) after(d time.Duration, why error) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if d > 0 {
		w.timer = time.AfterFunc(d, func() { w.cancel(why) })
	}
}

// alive restarts the time of silence when something has arrived.
func (w *watch) alive() { w.after(w.silence, errSilence) }

// last bounds the time for the rest of the stream.
func (w *watch) last(d time.Duration) { w.after(d, errTail) }

func (w *watch) stop() {
	w.after(0, nil)
	w.cancel(context.Canceled)
}

// watched is a bounded body that resets its watch with each line, or each byte.
type watched struct {
	in      io.Reader
	watch   *watch
	left    int64
	anyByte bool
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if n > 0 && (b.anyByte || bytes.ContainsAny(p[:n], "\n\r")) {
		b.watch.alive()
	}
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errTooMuch
	}
	return n, err // io.EOF must not be wrapped
}

// Call is one request.
type Call struct {
	Body []byte
	// Header returns headers for each attempt, which are added to Config.Header and replace headers
	// of the same name; nil means none. It is called for each attempt because a signature contains
	// the time.
	Header func() http.Header
	// Once disables retries: the first failure is returned.
	Once bool
	// Asked counts the attempts; may be nil.
	Asked *chat.Asked
}

// Do posts the body of call and passes the answer to the Reader that begin makes, a new one for
// each attempt. It blocks until the answer is complete, the context is done or the attempts are
// used up. It returns an *agent.Error or the cause of the context. The package comment lists what
// is retried.
func (c *Client) Do(ctx context.Context, call Call, begin func() Reader) error {
	retries := max(0, c.cfg.Retries)
	if call.Once {
		retries = 0
	}
	begun := false // the reader has emitted something
	err := retry.Do(ctx, retry.Options{
		// About 0.5, 1 and 2 seconds, with a spread of one half, so that many turns do not retry at
		// once.
		Policy:    retry.Policy{Base: 500 * time.Millisecond, Max: time.Minute, Spread: 0.5},
		Attempts:  1 + retries,
		Retryable: func(err error) bool { return ctx.Err() == nil && !begun && again(err) },
		After:     wanted,
		MaxWait:   c.cfg.MaxPause,
		Notify: func(err error, attempt int, pause time.Duration) {
			c.log.WarnContext(ctx, "model request is tried again", "attempt", attempt+1, "pause_ms", pause.Milliseconds(),
				"reason", agent.ReasonOf(err), "err", err)
		},
	}, func(ctx context.Context) error {
		reader := begin()
		err := c.attempt(ctx, call, reader)
		begun = reader.Begun()
		call.count(err)
		return err
	})
	if ended := agent.Ended(ctx); err != nil && ended != nil {
		return ended
	}
	return err
}

// count counts an attempt.
func (c Call) count(err error) {
	if c.Asked == nil {
		return
	}
	c.Asked.Requests++
	if refusal, ok := errors.AsType[*StatusError](err); ok && refusal.Status == http.StatusTooManyRequests {
		c.Asked.Limited++
	}
}

// again reports whether a retry may help now. A call that exceeded our own deadlines is not
// retried: its slot has waited long enough.
func again(err error) bool {
	var failed *agent.Error
	if !errors.As(err, &failed) {
		return false
	}
	return failed.Retryable && !errors.Is(err, errFirstByte) && !errors.Is(err, errSilence)
}

// wanted returns the pause that the server asks for.
func wanted(err error) time.Duration {
	if refusal, ok := errors.AsType[*StatusError](err); ok {
		return refusal.After
	}
	return 0
}
