package hook

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
	"laneway/internal/secret"
)

// Config of a [Handler].
type Config struct {
	// Hooks by name.
	Hooks map[string]Hook
	// BodyTimeout limits the time in which the body of a call arrives, AcceptTimeout the acceptance of its message.
	BodyTimeout, AcceptTimeout time.Duration
}

// Receiver makes messages durable.
type Receiver interface {
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	DefaultAgent() string
}

// Allowances limit the calls of each hook; [auth.Authenticator] implements it.
type Allowances interface {
	Spend(ctx context.Context, principal, name string, class auth.LimitClass) *fault.Error
	SpendBytes(ctx context.Context, principal, name string, n int) *fault.Error
}

// Server is the HTTP server around a [Handler].
type Server interface {
	// Share returns the requests in flight of a principal; own: it sees only its own sessions.
	Share(principal string, own bool) *inflight.Share
	// Refusal returns why no work is accepted now, or nil.
	Refusal() *fault.Error
	// Verified records whether the caller was authenticated.
	Verified(r *http.Request, ok bool)
	// Explain converts an error to the form for clients, Count counts a call.
	Explain(ctx context.Context, method string, err error) *fault.Error
	Count(method string, err error, took time.Duration)
}

// Handler answers the calls of all hooks. It is safe for concurrent use.
type Handler struct {
	cfg        Config
	receiver   Receiver
	allowances Allowances
	server     Server
	unknown    Hook // its secret is used for hooks that do not exist
}

// New checks the hooks and reports all faults.
func New(cfg Config, receiver Receiver, allowances Allowances, server Server) (*Handler, error) {
	var faults []error
	for name, h := range cfg.Hooks {
		faults = append(faults, h.check(name))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	unknown := Hook{Secret: secret.New(uuid.NewString() + uuid.NewString())}
	return &Handler{cfg: cfg, receiver: receiver, allowances: allowances, server: server, unknown: unknown}, nil
}

type answer struct {
	OK         bool   `json:"ok"`
	RunID      string `json:"runId"`
	SessionKey string `json:"sessionKey"`
	Duplicate  bool   `json:"duplicate"`
}

// ServeHTTP answers POST /hooks/{name}: it authenticates the caller, makes the call a durable message, and answers without waiting for the
// turn.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out, err := h.accept(w, r)
	h.server.Count(channel, err, time.Since(began))
	if err != nil {
		e := h.server.Explain(r.Context(), channel, err)
		httpbody.WriteError(w, e.HTTPStatus(), e)
		return
	}
	httpbody.WriteJSON(w, http.StatusAccepted, out)
}

func (h *Handler) accept(w http.ResponseWriter, r *http.Request) (answer, error) {
	var none answer
	body, err := httpbody.Read(w, r, maxBody, h.cfg.BodyTimeout)
	if err != nil {
		return none, err
	}
	c := call{name: chi.URLParam(r, "name"), header: r.Header, body: body}
	ok := h.verify(&c)
	h.server.Verified(r, ok)
	if !ok {
		return none, fault.Invalid("unknown hook or wrong signature").WithStatus(http.StatusUnauthorized)
	}
	if e := h.refusal(r.Context(), &c); e != nil {
		return none, e
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), h.cfg.AcceptTimeout, fault.ErrRequestTimeout)
	defer cancel()
	done, err := h.begin(ctx, &c)
	if err != nil {
		return none, err
	}
	defer done()
	m, err := c.message(h.receiver.DefaultAgent())
	if err != nil {
		return none, err
	}
	receipt, err := h.receiver.ReceiveFrom(ctx, m, chat.Caller{Principal: c.principal(), Own: m.Own})
	if err != nil {
		return none, err
	}
	return answer{OK: true, RunID: receipt.RunID, SessionKey: receipt.Session.String(), Duplicate: receipt.Duplicate}, nil
}

// begin waits for a place of the hook and for the bytes of the call. The body was read before, because its signature had to be verified;
// the connection limit of an address limits the memory of such bodies.
func (h *Handler) begin(ctx context.Context, c *call) (done func(), err error) {
	share := h.server.Share(c.principal(), true)
	held, err := share.Hold(ctx, int64(len(c.body)))
	if err != nil {
		return nil, fault.ErrRequestTimeout
	}
	leave, err := share.Enter(ctx, inflight.Call)
	if err != nil {
		held.Release()
		return nil, err //nolint:wrapcheck // the cause of ctx
	}
	return func() { leave(); held.Release() }, nil
}

// verify finds the hook and checks the signature. For an unknown name it does the same work with a secret that no caller has.
func (h *Handler) verify(c *call) bool {
	hook, known := h.cfg.Hooks[c.name]
	if !known {
		hook = h.unknown
	}
	sig, timely := hook.proof(c.header, time.Now())
	c.hook, c.sig = hook, sig
	proven := hook.proves(sig, c.body)
	return known && timely && proven
}

// refusal returns why an authenticated call is not accepted now, or nil.
func (h *Handler) refusal(ctx context.Context, c *call) *fault.Error {
	if e := h.allowances.Spend(ctx, c.name, "hooks/"+c.name, auth.LimitHooks); e != nil {
		return e
	}
	if e := h.allowances.SpendBytes(ctx, c.principal(), channel, len(c.body)); e != nil {
		return e
	}
	return h.server.Refusal()
}
