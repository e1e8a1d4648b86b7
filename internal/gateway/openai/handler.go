package openai

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
	"laneway/internal/store"
)

// Config of a [Handler].
type Config struct {
	// MaxBody is the maximum size of the body of a request, in bytes.
	MaxBody int64
	// BodyTimeout limits the time in which a body arrives, AcceptTimeout the acceptance of its message.
	BodyTimeout, AcceptTimeout time.Duration
	// StartedAt is shown as the creation time of the models.
	StartedAt time.Time
}

// Runs accepts messages and follows their runs; package dispatch implements it.
type Runs interface {
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Wait returns when the message has ended, in this process or in another, or when ctx is done (then with its cause).
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Place finds an accepted message by its id; chat.ErrNotFound.
	Place(ctx context.Context, messageID string) (chat.Place, error)
	// BranchAt returns the end of a run, from which a new session may branch. chat.ErrNotFound: the transcript no longer has the run.
	BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error)
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
}

// Agents lists the agents.
type Agents interface {
	DefaultAgent() string
	Agents() []agent.Info
}

// Allowances limit the calls of a principal; [auth.Authenticator] implements it.
type Allowances interface {
	Spend(ctx context.Context, principal, name string, class auth.LimitClass) *fault.Error
	SpendBytes(ctx context.Context, principal, name string, n int) *fault.Error
}

// Server is the HTTP server around a [Handler].
type Server interface {
	// Bearer identifies the client of a request. It answers a client without a credential of that scope itself, and ok is then false.
	Bearer(w http.ResponseWriter, r *http.Request, scope string) (cred auth.Credential, ok bool)
	// MayUse returns an error for a session that the principal may not write into.
	MayUse(ctx context.Context, cred auth.Credential, key chat.SessionKey) error
	// Share returns the requests in flight of a principal; own: it sees only its own sessions.
	Share(principal string, own bool) *inflight.Share
	// Refusal returns why no work is accepted now, or nil.
	Refusal() *fault.Error
	// Explain converts an error to the form for clients, Count counts a request.
	Explain(ctx context.Context, method string, err error) *fault.Error
	Count(method string, err error, took time.Duration)
}

// Deps are the dependencies of a [Handler].
type Deps struct {
	Runs       Runs
	Agents     Agents
	Allowances Allowances
	// Files may be nil: then files are not supported.
	Files  Files
	Server Server
	Log    *slog.Logger
}

// Handler answers requests below /v1. It is safe for concurrent use.
type Handler struct {
	cfg        Config
	runs       Runs
	agents     Agents
	allowances Allowances
	files      Files
	server     Server
	log        *slog.Logger
}

// New returns a handler. It starts no goroutine.
func New(cfg Config, d Deps) *Handler {
	return &Handler{cfg: cfg, runs: d.Runs, agents: d.Agents, allowances: d.Allowances, files: d.Files, server: d.Server, log: d.Log}
}

// Completions answers POST /v1/chat/completions. When stopping is done, because the gateway stops, requests that still wait are answered.
func (h *Handler) Completions(stopping context.Context) http.HandlerFunc {
	return h.serve(stopping, completions{})
}

// Responses answers POST /v1/responses; see [Handler.Completions].
func (h *Handler) Responses(stopping context.Context) http.HandlerFunc {
	return h.serve(stopping, responses{})
}

func (h *Handler) serve(stopping context.Context, form form) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		cred, ok := h.server.Bearer(w, r, chat.ScopeWrite)
		if !ok {
			return
		}
		c := &call{cred: cred, header: r.Header, form: form}
		run, err := h.accept(c, w, r)
		h.server.Count(form.name(), err, time.Since(began))
		if err != nil {
			h.fail(r.Context(), w, form, err)
			return
		}
		defer run.unsubscribe()
		w.Header().Set(headerRun, chat.ShownRunID(run.receipt.RunID))
		h.answer(stopping, w, r, run)
	}
}

// accept makes the request a durable message, in a place of its principal. Its body is held in memory until then.
func (h *Handler) accept(c *call, w http.ResponseWriter, r *http.Request) (*run, error) {
	if err := h.admit(r, c); err != nil {
		return nil, err
	}
	share := h.server.Share(c.cred.Name, c.cred.Own())
	held, err := share.Hold(r.Context(), h.bodySize(r))
	if err != nil {
		return nil, fault.ErrRequestTimeout
	}
	defer held.Release()
	if err := h.readBody(c, w, r); err != nil {
		return nil, err
	}
	held.Keep(int64(len(c.body)))
	// The acceptance does not end with the client: the handler has to know whether a run must be stopped.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), h.cfg.AcceptTimeout, fault.ErrRequestTimeout)
	defer cancel()
	leave, err := share.Enter(ctx, inflight.Call)
	if err != nil {
		return nil, err //nolint:wrapcheck // the cause of ctx
	}
	defer leave()
	return h.receive(ctx, c, share)
}

// bodySize returns the maximum size of the body of a request, in bytes.
func (h *Handler) bodySize(r *http.Request) int64 {
	if n := r.ContentLength; n >= 0 && n < h.cfg.MaxBody {
		return n
	}
	return h.cfg.MaxBody
}

// receive makes a message from a request whose body was read.
func (h *Handler) receive(ctx context.Context, c *call, share *inflight.Share) (out *run, err error) {
	m, err := h.prepare(ctx, c, share)
	if err != nil {
		return nil, err
	}
	out, err = h.offer(ctx, c, m)
	defer func() {
		certain := err != nil && ctx.Err() == nil // after a timeout, the message may still be accepted
		if certain || (err == nil && out.receipt.Duplicate) {
			h.discard(ctx, c)
		}
	}()
	if c.place.claims && errors.Is(err, chat.ErrKeyReused) { // another request has just continued the same response
		if m, err = h.branch(ctx, c); err == nil {
			out, err = h.offer(ctx, c, m)
		}
	}
	return out, err
}

// offer passes the message to the core, and follows its run when the answer is streamed.
func (h *Handler) offer(ctx context.Context, c *call, m chat.Message) (*run, error) {
	out := &run{cred: c.cred, prompt: c.prompt, form: c.form, unsubscribe: func() {}}
	if c.prompt.stream {
		out.progress = newProgress(m.ID)
		out.unsubscribe = h.runs.Subscribe(out.progress.observe, out.progress.wanted)
	}
	var err error
	out.receipt, err = h.runs.ReceiveFrom(ctx, m, c.caller())
	if err == nil && c.prompt.stream && out.receipt.Duplicate {
		err = chat.Errorf(chat.CodeKeyReused, "this request was accepted before as run %s; send it without stream to get its answer", chat.ShownRunID(out.receipt.RunID))
	}
	if err != nil {
		out.unsubscribe()
		return nil, err
	}
	out.created = time.Now().Unix()
	return out, nil
}

// admit refuses a request before its body is read.
func (h *Handler) admit(r *http.Request, c *call) error {
	if e := h.server.Refusal(); e != nil {
		return e
	}
	if e := h.allowances.Spend(r.Context(), c.cred.Name, c.form.name(), auth.LimitChats); e != nil {
		return e
	}
	if !httpbody.IsJSON(r) {
		return fault.Invalid("the body must be application/json").WithStatus(http.StatusUnsupportedMediaType)
	}
	return nil
}

func (h *Handler) readBody(c *call, w http.ResponseWriter, r *http.Request) (err error) {
	if c.body, err = httpbody.Read(w, r, h.cfg.MaxBody, h.cfg.BodyTimeout); err != nil {
		return err //nolint:wrapcheck // an error of the protocol
	}
	if e := h.allowances.SpendBytes(r.Context(), c.cred.Name, c.form.name(), len(c.body)); e != nil {
		return e
	}
	return nil
}

// prepare refuses a request that cannot become a message, before it has any effect.
func (h *Handler) prepare(ctx context.Context, c *call, share *inflight.Share) (m chat.Message, err error) {
	err = share.Parsing(ctx, len(c.body), func() (err error) {
		c.prompt, err = c.form.read(c.body)
		var named *chat.Error
		if err == nil || errors.As(err, &named) {
			return err
		}
		return fault.Invalid(err.Error())
	})
	if err != nil {
		return m, err //nolint:wrapcheck // an error of the protocol
	}
	return h.message(ctx, c)
}

func (h *Handler) fail(ctx context.Context, w http.ResponseWriter, form form, err error) {
	h.refuse(ctx, w, form.name(), err)
}
