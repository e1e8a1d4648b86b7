// Package httprunner is the runner for an agent behind HTTP: a webhook that is called for each turn
// and whose response is the answer.
//
// # The request
//
// One turn is one POST of a JSON document to the configured address: session, run id, deadline,
// prompt, messages with their senders, history (package jsonline has the members; a program with
// `input: json` receives the same). The headers:
//
//	X-Laneway-Signature   t=<unix seconds>,v1=<hex> over "t.body", see package signature; a new signature for each attempt
//	Idempotency-Key       the run id: the same for a repeated attempt and for a turn that runs again after a crash
//
// # The answer
//
// The media type of a response with status 200 determines how it is read:
//
//	application/json       one object with the members of a line: the answer at once
//	application/x-ndjson   lines, streamed as they arrive
//	text/event-stream      the same lines as the data of events
//	text/plain             the answer itself, streamed as it arrives
//
// A line with final or done completes a stream of lines. A stream without one was cut off, so that
// a partial answer of a server whose program ended is not taken for a complete one. A line that is
// not a JSON object of the protocol is an error, not text. Blank lines and comments keep the turn
// alive: it fails when nothing arrives for the time of Silence.
//
// # Promises
//
// Those of package agent; package modelhttp defines deadlines, retries, error classes and bounds. A
// failed attempt is repeated only before any text was shown. The agent may have acted before the
// connection broke, and recognizes the repetition by its key. Redirects are not followed. A
// response has at most 128 MiB, in addition to the bound of the answer. A stop closes the
// connection.
//
// # Not supported
//
// No files from the agent, since it has no directory on this host; no tools; no answer after the
// response.
//
//	runner, err := httprunner.New(httprunner.Config{URL: "http://127.0.0.1:9100/agent", Secret: secret.New(text)}, nil, log)
//
// The runner holds idle connections until [Runner.Close].
package httprunner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/sse"
	"laneway/internal/chat"
	"laneway/internal/secret"
	"laneway/internal/signature"
)

// Config of a [Runner]. Zero fields take the defaults.
type Config struct {
	// URL of the agent, http or https, without query or fragment.
	URL string
	// Secret signs each request. It must be set.
	Secret secret.Secret
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer].
	MaxAnswer int
	// FirstByte and Silence bound the wait for the first and for each further line, or byte of
	// plain text; default 60 s, negative disables the bound.
	FirstByte, Silence time.Duration
	// Retries before any text was emitted; default 3, at most 10, negative disables retries.
	Retries int
}

// Runner answers with an agent behind HTTP. It is safe for concurrent use.
type Runner struct {
	cfg    Config
	client *modelhttp.Client
	log    *slog.Logger
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log
// discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	if !cfg.Secret.IsSet() {
		return nil, errors.New("configuring the http runner: the secret must be set")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/x-ndjson, text/event-stream, application/json, text/plain")
	header.Set("User-Agent", "laneway")
	client, err := modelhttp.New(modelhttp.Config{
		URL: cfg.URL, Header: header, Key: cfg.Secret, FirstByte: cfg.FirstByte, Silence: cfg.Silence, Retries: cfg.Retries,
	}, transport, log)
	if err != nil {
		return nil, fmt.Errorf("configuring the http runner: %w", err)
	}
	return &Runner{cfg: cfg, client: client, log: log}, nil
}

// Close closes idle connections.
func (r *Runner) Close() { r.client.Close() }

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if err := agent.Ended(ctx); err != nil {
		return agent.Result{}, err
	}
	body, err := jsonline.Request(req)
	if err != nil {
		return agent.Result{}, err
	}
	log := r.log.With("session", req.Session.String(), "run_id", req.RunID)
	var out *answer
	call := modelhttp.Call{Body: body, Once: req.CallOnce, Header: func() http.Header { return r.proof(req, body) }}
	err = r.client.Do(ctx, call, func() modelhttp.Reader {
		out = &answer{Answer: jsonline.NewAnswer(r.cfg.MaxAnswer, emit, log)}
		return out
	})
	return agent.Result{Text: out.Text.Text(), Usage: out.Usage, StopReason: agent.StopNormal}, inWords(err, out.Failed)
}

// proof returns the headers of one attempt.
func (r *Runner) proof(req agent.Request, body []byte) http.Header {
	header := http.Header{}
	header.Set(signature.Header, signature.Sign(r.cfg.Secret.Reveal(), time.Now(), body))
	header.Set("Idempotency-Key", req.RunID)
	return header
}

// inWords replaces the sentence of an error of the client, which mentions models, by one for an
// agent behind HTTP. A failure that the agent reported is not changed.
func inWords(err error, reported *agent.Error) error {
	failed, ok := errors.AsType[*agent.Error](err)
	if !ok || failed == reported || failed.Reason == chat.FailTimeout || failed.Reason == chat.FailOutputLimit {
		return err
	}
	out := *failed
	out.Message = sentence(failed.Reason)
	return &out
}

// sentence explains a failure to a person, and what to do about it.
func sentence(reason chat.FailReason) string {
	switch reason { // the client returns no other reasons
	case chat.FailFirstByte:
		return "The server behind this agent did not begin to answer in time; try again later."
	case chat.FailSilence:
		return "The server behind this agent stopped in the middle of its answer; try again."
	case chat.FailRateLimit:
		return "The server behind this agent takes no more requests for now; try again in a minute."
	case chat.FailOverloaded:
		return "The server behind this agent is overloaded; try again in a minute."
	case chat.FailServer:
		return "The server behind this agent reported an internal error; try again later."
	case chat.FailConnection:
		return "The connection to the server behind this agent broke or could not be made; try again, and check url if it stays so."
	case chat.FailAuth:
		return "The server behind this agent refused the signature; the operator has to check the agent's secret and the clocks."
	case chat.FailContextLength:
		return "The conversation is too long for the server behind this agent; start a new one or send less."
	case chat.FailBadRequest:
		return "The server behind this agent did not accept the request; the operator has to check the agent's url."
	case chat.FailBadResponse:
		return "The server behind this agent returned an invalid answer; the operator has to check it."
	default:
		return "The server behind this agent gave no answer; try again."
	}
}

// Media types of a streamed answer besides server-sent events.
const (
	plainText = "text/plain"
	lines     = "application/x-ndjson"
)

// maxLine bounds a line, in bytes.
const maxLine = 4 << 20

// answer reads one response. It implements [modelhttp.PieceReader] and belongs to the goroutine of
// Run.
type answer struct {
	*jsonline.Answer

	plain bool   // the body is plain text, the answer itself
	line  []byte // the line that is not complete yet
}

var _ modelhttp.PieceReader = (*answer)(nil)

// Begun implements [modelhttp.Reader].
func (a *answer) Begun() bool { return a.Text.Begun() }

// Event implements [modelhttp.Reader].
func (a *answer) Event(event sse.Event) (bool, error) {
	if len(bytes.TrimSpace(event.Data)) == 0 {
		return false, nil
	}
	if event.Partial && !a.Complete {
		if _, ok := jsonline.Parse(event.Data); !ok {
			return false, modelhttp.BrokeOff()
		}
	}
	return a.take(event.Data)
}

// Whole implements [modelhttp.Reader].
func (a *answer) Whole(body []byte) error {
	_, err := a.take(body)
	return err
}

// Piece implements [modelhttp.PieceReader].
func (a *answer) Piece(kind string, piece []byte) (bool, error) {
	switch kind {
	case plainText:
		a.plain = true
		return false, a.Text.AppendBytes(piece)
	case lines, "application/jsonl", "application/json-lines":
		return a.lines(piece)
	default:
		return false, noAnswer(fmt.Errorf("the media type %q is not one of application/json, %s, text/event-stream, %s", chat.Cut(kind, 100), lines, plainText))
	}
}

func (a *answer) lines(piece []byte) (bool, error) {
	a.line = append(a.line, piece...)
	for {
		line, rest, whole := bytes.Cut(a.line, []byte("\n"))
		if !whole {
			if len(a.line) > maxLine {
				return false, noAnswer(fmt.Errorf("a line is longer than %d bytes", maxLine))
			}
			return false, nil
		}
		a.line = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if done, err := a.take(line); done || err != nil {
			return done, err
		}
	}
}

// take applies one object of the protocol and reports whether the answer is complete.
func (a *answer) take(raw []byte) (bool, error) {
	line, ok := jsonline.Parse(raw)
	if !ok {
		return false, noAnswer(fmt.Errorf("%d bytes are no object with delta, final, error, usage or done", len(raw)))
	}
	if err := a.Take(line); err != nil {
		return false, err
	}
	if a.Failed != nil {
		return false, a.Failed
	}
	return a.Complete, nil
}

// End implements [modelhttp.Reader]: the stream has ended without a line that completes it.
func (a *answer) End() error {
	if a.plain {
		return a.Text.Flush()
	}
	if rest := bytes.TrimSpace(a.line); len(rest) > 0 { // the last line may have no end
		a.line = nil
		if _, ok := jsonline.Parse(rest); !ok {
			return modelhttp.BrokeOff()
		}
		if _, err := a.take(rest); err != nil {
			return err
		}
	}
	if a.Complete {
		return nil
	}
	return modelhttp.BrokeOff()
}

func noAnswer(cause error) *agent.Error {
	return modelhttp.Fail(chat.FailBadResponse, cause)
}
