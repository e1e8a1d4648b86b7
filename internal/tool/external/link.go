package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"laneway/internal/process"
	"laneway/internal/secret"
)

const (
	// noiseRate is how many lines of standard error are logged per second.
	noiseRate = 10
	// writeTime is how long a program may leave its input unread.
	writeTime = 5 * time.Second
	// resumes is how often in a row an answer is resumed that the server has interrupted as a
	// stream, without a new event.
	resumes = 3
	// sessionHeader is the header of requests that belong to a session of an address.
	sessionHeader = "Mcp-Session-Id"
)

// errTooLong is returned for a message over the bound.
var errTooLong = errors.New("a message of the server is too long")

// opener opens connections.
type opener struct {
	lookup    func(string) (string, bool)
	transport http.RoundTripper
}

// link is one connection to a server. end closes it and waits for its processes; it may be called
// again. After that why returns the reason for its end that the transport knows, or nil;
// errForgotten is one.
type link struct {
	transport mcp.Transport
	end       func()
	why       func() error
}

// failed returns why no connection was made. A server that forgets a session at once is not asked
// again at once.
func (l link) failed(err error) error {
	if why := l.why(); why != nil && !errors.Is(why, errForgotten) {
		return why
	}
	return err
}

// link opens a connection, which ends with ctx.
func (o opener) link(ctx context.Context, cfg Config, log *slog.Logger) (link, error) {
	if cfg.URL == "" {
		return o.program(ctx, cfg, log)
	}
	var forgotten atomic.Bool
	return link{transport: &mcp.StreamableClientTransport{
		Endpoint: cfg.URL, DisableStandaloneSSE: true, MaxRetries: resumes,
		HTTPClient: &http.Client{
			Timeout: startTime + cfg.CallTime, Transport: bounded{next: o.transport, token: cfg.Token, forgotten: &forgotten},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, end: func() {}, why: func() error {
		if forgotten.Load() {
			return errForgotten
		}
		return nil
	}}, nil
}

// program starts the program of a server and connects its streams.
func (o opener) program(ctx context.Context, cfg Config, log *slog.Logger) (link, error) {
	ctx, cancel := context.WithCancel(ctx)
	program, err := process.Start(ctx, process.Spec{
		Argv: cfg.Command, Env: process.Environment(cfg.Env, o.lookup), Dir: cfg.Dir, Talks: true, Hide: process.Hider(cfg.Env),
		Noise: rate.NewLimiter(noiseRate, 5*noiseRate), Log: log, Reaper: cfg.Reaper,
	})
	if err != nil {
		cancel()
		return link{}, fmt.Errorf("starting the program: %w", err)
	}
	output, into := io.Pipe()
	allowed := newAllowance()
	messages := lines{noise: func(line string) {
		log.WarnContext(ctx, "a server of tools writes lines that are no messages on its standard output; they are skipped", "line", line)
	}}
	var refused error // the output cannot be used; set by the goroutine, read after its end
	var reading sync.WaitGroup
	reading.Go(func() {
		err := program.Read(ctx, func(piece []byte) error {
			if err := allowed.take(ctx, piece); err != nil {
				return err
			}
			left, bad := messages.take(piece)
			if len(left) > 0 {
				if _, err := into.Write(left); err != nil {
					return err // the reader is gone
				}
			}
			refused = bad
			return bad
		})
		if err != nil {
			cancel()
		} else if left := messages.end(); len(left) > 0 {
			_, _ = into.Write(left) // its reader sees the end
		}
		_ = into.CloseWithError(refused)
	})
	return link{
		transport: &mcp.IOTransport{Reader: output, Writer: input{program, cancel}, MaxLineLength: maxMessage},
		end: sync.OnceFunc(func() {
			program.CloseInput()
			_ = output.CloseWithError(errEnded)
			cancel()
			reading.Wait()
			program.Wait()
		}),
		why: func() error { return refused },
	}, nil
}

// input is the standard input of a program. A call waits until its bytes are written, regardless of
// its own time limit, so a program that does not read is ended.
type input struct {
	*process.Process

	end func()
}

// Write ends a program that does not read in time.
func (i input) Write(b []byte) (int, error) {
	late := time.AfterFunc(writeTime, i.end)
	defer late.Stop()
	return i.Process.Write(b) // a writer returns the errors of the next one
}

// Close closes the standard input.
func (i input) Close() error { i.CloseInput(); return nil }

// bounded is a transport whose answers have at most maxMessage bytes.
type bounded struct {
	next  http.RoundTripper
	token secret.Secret
	// forgotten becomes true when the server has forgotten the session.
	forgotten *atomic.Bool
}

// attempt is what the transport knows of one call. It is a value of the context of the call.
type attempt struct {
	// sent is true when the request was passed to the network, forgotten when the server has
	// answered that it does not know the session: then it has not made the call.
	sent, forgotten atomic.Bool
	// doubted is true when it has answered so in another form; it may have made the call.
	doubted atomic.Bool
}

// attemptKey is the context key of an attempt.
type attemptKey struct{}

// RoundTrip implements http.RoundTripper. The SDK reads an answer 404 with an error in its body as
// the refusal of one call, so the body of the answer to a forgotten session is removed.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	this, ok := r.Context().Value(attemptKey{}).(*attempt)
	if !ok || r.Method != http.MethodPost {
		this = new(attempt)
	}
	this.sent.Store(true)
	if b.token.IsSet() {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err // a transport returns the errors of the next one
	}
	if resp.StatusCode == http.StatusNotFound && r.Header.Get(sessionHeader) != "" {
		this.forgotten.Store(true)
		b.forgotten.Store(true)
		_ = resp.Body.Close()
		resp.Body, resp.ContentLength = http.NoBody, 0
		return resp, nil
	}
	if resp.StatusCode >= http.StatusBadRequest && r.Header.Get(sessionHeader) != "" {
		this.doubted.Store(deniesSession(resp))
	}
	body := &boundedBody{ReadCloser: resp.Body, left: maxMessage}
	if resp.ContentLength > maxMessage {
		body.left = 0 // an error of the transport would mean that the request did not reach the server
	}
	resp.Body = body
	return resp, nil
}

// deniesSession reports whether a refusal says that the session does not exist, in its status or in
// its words. It leaves the body as it was.
func deniesSession(resp *http.Response) bool {
	begin, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), resp.Body), resp.Body}
	empty := err == nil && len(bytes.TrimSpace(begin)) == 0
	return resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusBadRequest && empty || forgets.Match(begin)
}

type boundedBody struct {
	io.ReadCloser

	left int
}

// Read fails after the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err // a reader returns the errors of the next one
}

const (
	// readRate is the rate at which the output of a program is read, in bytes per second, after a
	// burst of one message of the greatest length. It bounds the cost of an endless flow of
	// messages.
	readRate = 1 << 20
	// lineCost is what each line takes from the allowance in addition to its bytes: decoding and
	// handling a message takes some 400 µs however short it is, so with readRate alone short
	// messages could keep a processor busy. [logFilter] removes the most frequent ones first.
	lineCost = 256
)

// allowance is how much more one program may write. It is used by one goroutine.
type allowance struct{ limiter *rate.Limiter }

func newAllowance() allowance { return allowance{rate.NewLimiter(readRate, maxMessage)} }

// take waits until piece may be passed on. It returns the error of ctx.
func (a allowance) take(ctx context.Context, piece []byte) error {
	cost := len(piece) + lineCost*bytes.Count(piece, []byte{'\n'})
	return a.limiter.WaitN(ctx, min(cost, maxMessage)) // the end of the connection
}
