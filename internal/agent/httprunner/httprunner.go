package httprunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/jsonline"
	"laneway/internal/agent/internal/modelhttp"
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
	// FirstByte and Silence bound the wait for the first and for each further line, or byte of plain text; default 60 s, negative disables the bound.
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

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log discards.
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

// inWords replaces the sentence of an error of the client, which mentions models, by one for an agent behind HTTP. A failure that the agent reported
// is not changed.
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
