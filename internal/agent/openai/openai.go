package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
	"laneway/internal/secret"
)

// Defaults of [Config].
const (
	DefaultBaseURL       = "https://api.openai.com/v1"
	DefaultContextWindow = 32_768
	// answerReserve is kept free of history for the answer when max_tokens is not set, a quarter of the window at most.
	answerReserve = 4_096
)

// Config of a [Runner]. Zero fields take the defaults.
type Config struct {
	// BaseURL is everything before /chat/completions; default [DefaultBaseURL]. Without query or fragment.
	BaseURL string
	// APIKey is sent as a bearer token; zero if none (local models).
	APIKey secret.Secret
	// Model must be set; a request may name another one.
	Model string
	// System prompt; a request may bring its own.
	System string
	// ContextWindow in tokens; default [DefaultContextWindow]. History is cut to it.
	ContextWindow int
	// MaxTokens of an answer; 0 means the endpoint's own.
	MaxTokens int
	// Temperature 0 to 2 and TopP 0 to 1; nil means the endpoint's own.
	Temperature, TopP *float64
	// Stop are strings at which the model ends, at most 16.
	Stop []string
	// Gauge measures how the endpoint counts tokens; nil means estimates are not corrected.
	Gauge *agent.Gauge
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer].
	MaxAnswer int
	// FirstByte and Silence bound the wait for the first and for each further line; default 60 s, negative disables the bound.
	FirstByte, Silence time.Duration
	// Retries before any text was emitted; default 3, at most 10, negative disables retries.
	Retries int
	// Headers are sent in addition (for example OpenRouter's HTTP-Referer).
	Headers map[string]string
	// SendUser sends the endpoint the session key as `user`, for abuse reports and cache affinity; off by default, since it may
	// contain the number of a chat.
	SendUser bool
}

// Validate reports every fault with the name of its field.
func (c Config) Validate() error {
	var faults []error
	if strings.TrimSpace(c.Model) == "" {
		faults = append(faults, errors.New("model: must be set"))
	}
	if c.ContextWindow < 0 || c.MaxTokens < 0 || c.MaxAnswer < 0 {
		faults = append(faults, errors.New("context_window, max_tokens and max_answer must not be negative"))
	}
	if c.ContextWindow > 0 && c.MaxTokens >= c.ContextWindow {
		faults = append(faults, fmt.Errorf("max_tokens: %d leaves nothing of the context window of %d", c.MaxTokens, c.ContextWindow))
	}
	if err := c.params().Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c Config) params() modelhttp.Params {
	params := modelhttp.Params{Temperature: c.Temperature, TopP: c.TopP, Stop: c.Stop}
	if c.MaxTokens > 0 {
		params.MaxTokens = &c.MaxTokens
	}
	return params
}

// Runner answers with a model. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	client  *modelhttp.Client
	support *toolloop.Support
	// What the endpoint has refused. It is harmless if two turns set the same flag.
	noUsage, newLimit atomic.Bool
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log discards.
func New(cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the openai runner: %w", err)
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	if cfg.ContextWindow == 0 {
		cfg.ContextWindow = max(DefaultContextWindow, 2*cfg.MaxTokens)
	}
	client, err := modelhttp.New(modelhttp.Config{
		URL:       strings.TrimRight(cfg.BaseURL, "/") + "/chat/completions",
		Header:    cfg.header(),
		Key:       cfg.APIKey,
		FirstByte: cfg.FirstByte,
		Silence:   cfg.Silence,
		Retries:   cfg.Retries,
	}, transport, log)
	if err != nil {
		return nil, fmt.Errorf("configuring the openai runner: %w", err)
	}
	return &Runner{cfg: cfg, client: client, support: toolloop.NewSupport(log)}, nil
}

func (c Config) header() http.Header {
	header := http.Header{}
	for name, value := range c.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "text/event-stream, application/json")
	if c.APIKey.IsSet() {
		header.Set("Authorization", "Bearer "+c.APIKey.Reveal())
	}
	return header
}

// Close closes idle connections.
func (r *Runner) Close() { r.client.Close() }

// Run implements [agent.Runner].
func (r *Runner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if err := agent.Ended(ctx); err != nil {
		return agent.Result{}, err
	}
	params, err := r.cfg.params().Override(req.Params)
	if err != nil {
		return agent.Result{}, err
	}
	text := toolloop.NewText(r.cfg.MaxAnswer, emit)
	t := &turn{runner: r, req: req, params: params, text: text, images: toolloop.ImagesOf(req)}
	return toolloop.Run(ctx, req, t, text, toolloop.Options{
		Support: r.support,
		Window: func() (int, agent.Ratio) {
			room := r.room(req, params, t.images)
			return agent.RoundTokens(req, r.cfg.System, room), room.Ratio
		},
		Learn: func(estimated, counted int) { r.cfg.Gauge.Note(r.model(req), req.Session.String(), estimated, counted) },
	})
}

// turn is the model of one turn, for the loop.
type turn struct {
	runner *Runner
	req    agent.Request
	params modelhttp.Params
	text   *toolloop.Text
	images toolloop.Images
}

// Ask implements [toolloop.Model]. It posts the request, and repeats it without each parameter that the endpoint refuses, and without pictures if it
// does not accept them.
func (t *turn) Ask(ctx context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	answer := &answer{client: t.runner.client, text: t.text}
	for {
		request, estimated := t.runner.body(t.req, t.params, talk, t.images)
		body, err := json.Marshal(request)
		if err != nil {
			return toolloop.Reply{StopReason: agent.StopNormal}, modelhttp.Fail(chat.FailBadRequest, err)
		}
		err = t.runner.client.Do(ctx, modelhttp.Call{Body: body, Once: t.req.CallOnce}, func() modelhttp.Reader {
			answer.reset()
			return answer
		})
		if err == nil || answer.Begun() || (!t.images.Refused(err) && !t.runner.adapt(err, t.params)) {
			reply := answer.reply(t.runner.model(t.req))
			reply.Estimated = estimated
			return reply, err
		}
	}
}

// adapt records a refused option and reports whether it was new.
func (r *Runner) adapt(err error, params modelhttp.Params) bool {
	var refusal *modelhttp.StatusError
	if !errors.As(err, &refusal) || (refusal.Status != http.StatusBadRequest && refusal.Status != http.StatusUnprocessableEntity) {
		return false
	}
	switch {
	case strings.Contains(refusal.Message, "max_completion_tokens") && params.MaxTokens != nil:
		return r.newLimit.CompareAndSwap(false, true)
	case strings.Contains(refusal.Message, "stream_options"), strings.Contains(refusal.Message, "include_usage"):
		return r.noUsage.CompareAndSwap(false, true)
	default:
		return false
	}
}

func (r *Runner) model(req agent.Request) string {
	if req.Model != "" {
		return req.Model
	}
	return r.cfg.Model
}
