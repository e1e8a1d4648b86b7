// Package model is the runner for model APIs: what a turn does, for every dialect.
//
// A [Dialect] is the wire form of an API: the body of a request, the events of an answer and its
// words for the end of one. This package makes the requests of a turn (package toolloop has its
// rounds), reads tolerantly what comes back, and keeps what an endpoint cannot do.
//
// # What the model sends goes back
//
// Members that this package does not know return with the next request of the turn as they came,
// since some endpoints refuse a conversation without them. They are part of the journal of the turn
// ([Members]), so they return after a restart as well, to the same endpoint and model only.
//
// # What an endpoint cannot do
//
// A refusal that names a part of the request is learned for that endpoint and model: the request is
// repeated without the part, which is left out for ten minutes or until a request with it is
// accepted. A 400 that names nothing is repeated once unchanged. Tools are left out after such
// refusals only if two turns with small requests ended with them. See [Runner.Lacks].
package model

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/modelhttp"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
	"laneway/internal/secret"
)

// Config of a [Runner]. Zero fields take the defaults of the dialect.
type Config struct {
	// BaseURL of the API, without query or fragment.
	BaseURL string
	// APIKey is zero if none is needed (local models, a proxy that adds it).
	APIKey secret.Secret
	// Model must be set; a request may name another one.
	Model string
	// System prompt; a request may bring its own.
	System string
	// ContextWindow in tokens. History is cut to it.
	ContextWindow int
	// MaxTokens of an answer; 0 means the default of the dialect, or else the endpoint's own.
	MaxTokens int
	// Temperature and TopP; nil means the endpoint's own.
	Temperature, TopP *float64
	// Stop are strings at which the model ends, at most 16.
	Stop []string
	// Gauge measures how the endpoint counts tokens; nil means estimates are not corrected.
	Gauge *agent.Gauge
	// MaxAnswer in bytes; default [agent.DefaultMaxAnswer].
	MaxAnswer int
	// FirstByte and Silence bound the wait for the first and for each further line; default 60 s,
	// negative disables the bound.
	FirstByte, Silence time.Duration
	// Retries before any text was emitted; default 3, at most 10, negative disables retries.
	Retries int
	// Headers are sent in addition.
	Headers map[string]string
	// SendUser sends the endpoint the session key as the user, for abuse reports and cache
	// affinity; off by default, since it may contain the number of a chat.
	SendUser bool
}

// Dialect is the wire form of an API.
type Dialect struct {
	// Name is the provider in usage, and the runner in errors.
	Name string
	// URL returns the address of requests below a base URL, which may be empty.
	URL func(base string) string
	// Filled returns a configuration with the defaults of the API.
	Filled func(Config) Config
	// Authorize sets the headers of the API; key is "" if none is configured.
	Authorize func(header http.Header, key string)
	// MaxTemperature is the largest one that the API takes.
	MaxTemperature float64
	// Body returns the JSON of a request.
	Body func(*Draft) any
	// Event takes one event of a stream into the answer; done means that the answer is complete.
	Event func(a *Answer, event Object) (done bool, err error)
	// Whole takes a JSON document that was sent instead of a stream, and reports whether it is an
	// answer.
	Whole func(a *Answer, document Object) (bool, error)
}

func (c Config) params() modelhttp.Params {
	params := modelhttp.Params{Temperature: c.Temperature, TopP: c.TopP, Stop: c.Stop}
	if c.MaxTokens > 0 {
		params.MaxTokens = &c.MaxTokens
	}
	return params
}

// validate reports every fault with the name of its field.
func (c Config) validate(dialect Dialect) error {
	var faults []error
	if strings.TrimSpace(c.Model) == "" {
		faults = append(faults, errors.New("model: must be set"))
	}
	if c.ContextWindow < 0 || c.MaxTokens < 0 || c.MaxAnswer < 0 {
		faults = append(faults, errors.New("context_window, max_tokens and max_answer must not be negative"))
	}
	if filled := dialect.Filled(c); filled.MaxTokens > 0 && filled.MaxTokens >= filled.ContextWindow {
		faults = append(faults, fmt.Errorf("max_tokens: %d leaves nothing of the context window of %d", filled.MaxTokens, filled.ContextWindow))
	}
	if c.Temperature != nil && *c.Temperature > dialect.MaxTemperature {
		faults = append(faults, fmt.Errorf("temperature must be a number from 0 to %v", dialect.MaxTemperature))
	}
	if err := c.params().Validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Runner answers with a model. It is safe for concurrent use.
type Runner struct {
	cfg      Config
	dialect  Dialect
	endpoint string // for the members of rounds: without a password
	client   *modelhttp.Client
	learned  *learned
	log      *slog.Logger
}

var _ agent.Runner = (*Runner)(nil)

// New checks cfg; it sends nothing. With a nil transport the runner makes its own; a nil log
// discards.
func New(dialect Dialect, cfg Config, transport http.RoundTripper, log *slog.Logger) (*Runner, error) {
	if err := cfg.validate(dialect); err != nil {
		return nil, fmt.Errorf("configuring the %s runner: %w", dialect.Name, err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg = dialect.Filled(cfg)
	header := http.Header{}
	for name, value := range cfg.Headers {
		header.Set(name, value)
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "text/event-stream, application/json")
	dialect.Authorize(header, cfg.APIKey.Reveal())
	address := dialect.URL(strings.TrimRight(cfg.BaseURL, "/"))
	client, err := modelhttp.New(modelhttp.Config{
		URL: address, Header: header, Key: cfg.APIKey, FirstByte: cfg.FirstByte, Silence: cfg.Silence, Retries: cfg.Retries,
	}, transport, log)
	if err != nil {
		return nil, fmt.Errorf("configuring the %s runner: %w", dialect.Name, err)
	}
	return &Runner{cfg: cfg, dialect: dialect, endpoint: withoutUser(address), client: client, learned: &learned{log: log, lacks: map[[2]string]agent.Lack{}, suspected: map[string]int{}}, log: log}, nil
}

func withoutUser(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	parsed.User = nil
	return parsed.String()
}

// Close closes idle connections.
func (r *Runner) Close() { r.client.Close() }

// Lacks returns what the endpoint has refused in the last ten minutes.
func (r *Runner) Lacks() []agent.Lack { return r.learned.list() }

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
	t := &turn{Runner: r, req: req, params: params, text: text, images: toolloop.ImagesOf(req), window: r.cfg.ContextWindow}
	result, err := toolloop.Run(ctx, req, t, text, toolloop.Options{
		Window: func() (int, agent.Ratio) {
			room := t.room()
			return agent.RoundTokens(req, r.cfg.System, room), room.Ratio
		},
		Shrink: t.shrink,
		Learn:  func(estimated, counted int) { r.cfg.Gauge.Note(t.model(), req.Session.String(), estimated, counted) },
	})
	result.Asked = t.requests
	return result, err
}

// turn is the model of one turn, for the loop.
type turn struct {
	*Runner
	req    agent.Request
	params modelhttp.Params
	text   *toolloop.Text
	images toolloop.Images
	window int // in tokens; smaller than the configured one after a refusal of a conversation that is too long
	asked  int // estimated tokens of the last request

	requests chat.Asked
}

func (t *turn) model() string {
	return cmp.Or(t.req.Model, t.cfg.Model)
}

// answerReserve is kept free of history for the answer when max_tokens is not set, a quarter of the
// window at most.
const answerReserve = 4_096

// room returns the part of the window that a request may fill.
func (t *turn) room() agent.Room {
	reserve := min(answerReserve, t.window/4)
	if t.params.MaxTokens != nil {
		reserve = min(*t.params.MaxTokens, t.window/2)
	}
	return agent.Room{Window: t.window, Reserve: reserve + t.images.Tokens(), Ratio: t.cfg.Gauge.Ratio(t.model(), t.req.Session.String())}
}

// shrink halves the window for the rest of the turn, once, after an endpoint has refused a request
// as too long. It reports whether that may help.
func (t *turn) shrink() bool {
	if t.window != t.cfg.ContextWindow || t.asked == 0 {
		return false
	}
	t.window = min(t.window, max(t.asked, 1024)) / 2
	smaller := t.draft(toolloop.Conversation{}).Estimated
	return smaller < t.asked*9/10
}

// Draft is the content of one request, for a dialect.
type Draft struct {
	Model, System string
	Lines         []agent.Line
	// Images of the last line, whose text names those that are left out.
	Images []agent.Image
	Talk   toolloop.Conversation
	Params modelhttp.Params
	// Thinking is the level that is asked for; User the session, "" if it is not sent.
	Thinking, User string
	// Estimated tokens of the request; 0 if it has pictures.
	Estimated int

	req      agent.Request
	endpoint string
	refused  map[string]bool
	used     []string
}

// Can reports whether the endpoint takes a part of the request, one of the constants of this
// package or the name of a member. The dialect asks before it adds the part.
func (d *Draft) Can(part string) bool {
	if d.refused[part] {
		return false
	}
	d.used = append(d.used, part)
	return true
}

// Input returns the messages that arrived during a round as one message of the person; "" if none
// arrived.
func (d *Draft) Input(round agent.Round) string {
	if len(round.Input) == 0 {
		return ""
	}
	req := d.req
	req.Messages = round.Input
	return agent.Prompt(req)
}

// CallID returns the id of a call of a round as the endpoint takes it. In one request it is the
// same for the call and its result.
func (d *Draft) CallID(round agent.Round, call int) string {
	if id := round.Calls[call].ID; d.Can(CallIDs) {
		return id
	}
	return toolloop.CallID(round.Number, call)
}

// Result returns the text of a result. Some endpoints refuse one that is empty.
func (d *Draft) Result(round agent.Round, call int) string {
	result := round.Results[call]
	switch {
	case strings.TrimSpace(result.Text) != "":
		return result.Text
	case result.IsError:
		return "The tool failed and said nothing."
	default:
		return "The tool returned nothing."
	}
}

// draft returns the next request. The rounds follow the new input, because they answer it.
func (t *turn) draft(talk toolloop.Conversation) *Draft {
	d := &Draft{
		Model: t.model(), Images: t.images.List, Talk: talk, Params: t.params, Thinking: t.req.Thinking,
		req: t.req, endpoint: t.endpoint, refused: t.learned.refused(t.model()),
	}
	if len(talk.Rounds) == 0 && len(talk.Tools) > 0 && !d.Can(Tools) {
		d.Talk.Tools = nil
	}
	room := t.room()
	room.Rounds = d.Talk.Room(room.Ratio)
	d.System, d.Lines = agent.Conversation(t.req, t.cfg.System, room)
	if len(d.Images) == 0 {
		d.Estimated = agent.EstimateRequest(d.System, d.Lines) + d.Talk.Tokens()
	}
	if n := len(d.Lines); n > 0 {
		d.Lines[n-1].Text = t.images.Text(d.Lines[n-1].Text)
	}
	if user := t.params.User; (user != "" || t.cfg.SendUser) && d.Can(User) {
		d.User = cmp.Or(user, t.req.Session.String())
	}
	return d
}

// maxAsks bounds the requests for one answer: an endpoint may refuse one part after the other.
const maxAsks = 12

// Ask implements [toolloop.Model]. It posts the request, and repeats it without each part that the
// endpoint refuses.
func (t *turn) Ask(ctx context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	answer := &Answer{client: t.client, dialect: &t.dialect, text: t.text}
	repeated := false
	for n := 1; ; n++ {
		d := t.draft(talk)
		body, err := json.Marshal(t.dialect.Body(d))
		if err != nil {
			return toolloop.Reply{StopReason: agent.StopNormal}, modelhttp.Fail(chat.FailBadRequest, err)
		}
		t.asked = d.Estimated
		err = t.client.Do(ctx, modelhttp.Call{Body: body, Once: t.req.CallOnce, Asked: &t.requests}, func() modelhttp.Reader {
			answer.reset(d)
			return answer
		})
		switch {
		case err == nil:
			t.learned.accepted(d.Model, d.used)
		case answer.Begun() || n == maxAsks || ctx.Err() != nil:
		case t.images.Refused(err), t.learned.refusal(ctx, d, err):
			continue
		case unnamed(err) && !repeated && !t.req.CallOnce:
			repeated = true
			continue
		case unnamed(err):
			t.learned.suspect(ctx, d, t.cfg.ContextWindow, err)
		}
		reply := answer.reply(ctx, t, d)
		return reply, err
	}
}
