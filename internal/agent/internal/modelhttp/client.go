package modelhttp

import (
	"bufio"
	"bytes"
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

	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
	"laneway/internal/secret"
)

// Defaults of [Config].
const (
	DefaultFirstByte = 60 * time.Second
	DefaultSilence   = 60 * time.Second
	DefaultRetries   = 3
	DefaultMaxPause  = 30 * time.Second
	// DefaultMaxBytes bounds a whole response: an answer of 1 MiB arrives in deltas of one token with some 200 bytes of
	// JSON around each.
	DefaultMaxBytes = 128 << 20
)

const (
	maxErrorBody = 64 << 10
	maxEvent     = 4 << 20
	// tailWait bounds how long a finished stream is read to its end, which makes the connection reusable.
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
	// FirstByte and Silence bound the time to the first line and between lines; negative disables the bound.
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
	// Event takes one event; done means that the answer is complete and the rest of the stream can be ignored.
	Event(event sse.Event) (done bool, err error)
	// Whole takes the body of a server that answered with one JSON document instead of a stream.
	Whole(body []byte) error
	// End is called when the stream ended before Event reported the end; nil means that the answer is complete nevertheless.
	End() error
	// Begun reports whether something was emitted; then no error is retried.
	Begun() bool
}

// PieceReader is a Reader for more formats than server-sent events and one JSON document.
type PieceReader interface {
	Reader
	// Piece takes the next bytes of a body of another media type, which are valid during the call. The first call for a body has an empty piece. done
	// has the meaning of Event. An unknown kind is an error.
	Piece(kind string, piece []byte) (done bool, err error)
}

// Client posts to one endpoint. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
	log  *slog.Logger
}

// New checks cfg. With a nil transport the client makes its own, which honours the proxy environment; the caller keeps the ownership of another one.
// A nil log discards.
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
	if value == 0 {
		return standard
	}
	return value
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
		return fail(chat.FailBadRequest, errors.New("the endpoint is not usable"))
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
		return fail(chat.FailBadResponse, errors.New("the server answered with a web page"))
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
		return fail(chat.FailBadResponse, fmt.Errorf("the server answered with more than %d bytes in one piece", maxEvent))
	}
	return reader.Whole(raw)
}

// finish reads the last bytes of a complete stream, because a body that was not read to its end costs the connection. The wait is short,
// because the turn must not wait for a server that keeps the body open.
func finish(body io.Reader, watch *watch) {
	watch.last(tailWait)
	_, _ = io.CopyN(io.Discard, body, tailSize) //nolint:errcheck // the answer is complete; only the connection is lost
}
