package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
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
)

// errTooLong is returned for a message over the bound.
var errTooLong = errors.New("a message of the server is too long")

// opener opens connections.
type opener struct {
	lookup    func(string) (string, bool)
	transport http.RoundTripper
}

// link is one connection to a server. end closes it and waits for its processes; it may be called again.
type link struct {
	transport mcp.Transport
	end       func()
}

// link opens a connection, which ends with ctx.
func (o opener) link(ctx context.Context, cfg Config, log *slog.Logger) (link, error) {
	if cfg.URL == "" {
		return o.program(ctx, cfg, log)
	}
	return link{transport: &mcp.StreamableClientTransport{
		Endpoint: cfg.URL, DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{
			Timeout: startTime + cfg.CallTime, Transport: bounded{next: o.transport, token: cfg.Token},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, end: func() {}}, nil
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
	allowed, logs := newAllowance(), new(logFilter)
	var reading sync.WaitGroup
	reading.Go(func() {
		err := program.Read(ctx, func(piece []byte) error {
			if err := allowed.take(ctx, piece); err != nil {
				return err
			}
			left := logs.remove(piece)
			if len(left) == 0 {
				return nil
			}
			_, err := into.Write(left)
			return err //nolint:wrapcheck // the reader is gone
		})
		if err != nil {
			cancel()
		}
		_ = into.Close()
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
	}, nil
}

// input is the standard input of a program. A call waits until its bytes are written, regardless of its own time limit, so a program that does not
// read is ended.
type input struct {
	*process.Process

	end func()
}

// Write ends a program that does not read in time.
func (i input) Write(b []byte) (int, error) {
	late := time.AfterFunc(writeTime, i.end)
	defer late.Stop()
	return i.Process.Write(b) //nolint:wrapcheck // a writer returns the errors of the next one
}

// Close closes the standard input.
func (i input) Close() error { i.CloseInput(); return nil }

// bounded is a transport whose answers have at most maxMessage bytes.
type bounded struct {
	next  http.RoundTripper
	token secret.Secret
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token.IsSet() {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	}
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport returns the errors of the next one
	}
	body := &boundedBody{ReadCloser: resp.Body, left: maxMessage}
	if resp.ContentLength > maxMessage {
		body.left = 0 // an error of the transport would mean that the request did not reach the server
	}
	resp.Body = body
	return resp, nil
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
	return n, err //nolint:wrapcheck // a reader returns the errors of the next one
}
