// Package openai serves the part of the HTTP API of OpenAI that existing clients need: chat
// completions and responses, whole or streamed, the list of models, and files.
//
// # Ideas
//
// A request is a message like any other: it becomes durable, waits in the queue of its session and
// runs in a lane. The request waits for the end of the run. Completions and responses are two forms
// of one request: a form parses a body to a prompt, and writes an answer, whole or as events.
//
// A response continues another one: in its session while it is the newest there, otherwise in a new
// session with a copy of the conversation. The store decides between two requests that continue the
// same response, because the id of the message is derived from the response that it continues.
//
// A file is on the disk before a message names it. Files in a request are stored before the message
// is accepted, and removed when the message is refused or was accepted before. The end comes from
// [Runs.Wait] and not from events, because another process may take over the run, and its events do
// not reach this one. Events only fill the stream.
//
// Tools of a client are for requests without a conversation: the agent has them in place of its
// own, the answer ends with the calls, and the next request brings their results with all messages.
// They count as text from outside.
//
// A client that disconnects stops its run, unless it set X-Laneway-Detach. A gateway that stops
// does not: another process continues the run.
//
// A stream cannot revoke text. When a run starts again after an interruption and its text differs
// from what was sent, the stream ends with an error.
//
// # Goroutines
//
// A streamed answer starts one goroutine, which waits for the end of the run; the handler waits for
// it before it returns. A stream needs memory for one copy of the answer so far, however slowly the
// client reads.
//
// # Crash points
//
// The message is durable before the first byte of the answer. A file whose message was not accepted
// stays until retention removes it. With an Idempotency-Key, a repeated request finds the same run
// and receives its answer.
//
// # What it does not do
//
// It offers one choice per request, fetches nothing from other addresses, calls no tool of a
// client, and keeps no list of responses. It identifies no client: the server decides about
// credentials and sessions.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/store"
)

// Config of a [Handler].
type Config struct {
	// MaxBody is the maximum size of the body of a request, in bytes.
	MaxBody int64
	// BodyTimeout limits the time in which a body arrives, AcceptTimeout the acceptance of its
	// message.
	BodyTimeout, AcceptTimeout time.Duration
	// StartedAt is shown as the creation time of the models.
	StartedAt time.Time
}

// Runs accepts messages and follows their runs; package dispatch implements it.
type Runs interface {
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	// Wait returns when the message has ended, in this process or in another, or when ctx is done
	// (then with its cause).
	Wait(ctx context.Context, messageID string) (chat.RunEnd, error)
	Stop(ctx context.Context, p store.StopParams) ([]string, error)
	// Place finds an accepted message by its id; chat.ErrNotFound.
	Place(ctx context.Context, messageID string) (chat.Place, error)
	// DeleteWhole deletes the session of a run that is its whole conversation, and reports whether
	// it did. chat.CodeForbidden: the caller may not.
	DeleteWhole(ctx context.Context, at chat.Place, by chat.Caller) (bool, error)
	// BranchAt returns the end of a run, from which a new session may branch. chat.ErrNotFound: the
	// transcript no longer has the run.
	BranchAt(ctx context.Context, key chat.SessionKey, runID string) (chat.Branch, error)
	Subscribe(fn func(chat.Event), wanted func(chat.Event) bool) (cancel func())
	// DefaultAgent and Agents are the models.
	DefaultAgent() string
	Agents() []agent.Info
}

// Deps are the dependencies of a [Handler].
type Deps struct {
	Runs       Runs
	Allowances *auth.Authenticator
	// Files may be nil: then files are not supported.
	Files  Files
	Server auth.Server
	Log    *slog.Logger
}

// Handler answers requests below /v1. It is safe for concurrent use.
type Handler struct {
	cfg        Config
	runs       Runs
	allowances *auth.Authenticator
	files      Files
	server     auth.Server
	log        *slog.Logger
}

// New returns a handler. It starts no goroutine.
func New(cfg Config, d Deps) *Handler {
	return &Handler{cfg: cfg, runs: d.Runs, allowances: d.Allowances, files: d.Files, server: d.Server, log: d.Log}
}

// Completions answers POST /v1/chat/completions. When stopping is done, because the gateway stops,
// requests that still wait are answered.
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

// accept makes the request a durable message, in a place of its principal. Its body is held in
// memory until then.
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
	// The acceptance does not end with the client: the handler has to know whether a run must be
	// stopped.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), h.cfg.AcceptTimeout, fault.ErrRequestTimeout)
	defer cancel()
	leave, err := share.Enter(ctx, inflight.Call)
	if err != nil {
		return nil, err // the cause of ctx
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
	if c.to.claims && errors.Is(err, chat.ErrKeyReused) { // another request has just continued the same response
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
		out.progress = &progress{run: m.ID, changed: make(chan struct{}, 1)}
		out.unsubscribe = h.runs.Subscribe(out.progress.observe, out.progress.wanted)
	}
	var err error
	out.receipt, err = h.runs.ReceiveFrom(ctx, m, c.caller())
	if err == nil && out.receipt.Duplicate {
		err = h.kept(ctx, out.receipt.RunID)
	}
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

// kept returns an error if the answer to a repeated request was deleted with its session. To run
// the request again would do its work twice.
func (h *Handler) kept(ctx context.Context, run string) error {
	_, err := h.runs.Place(ctx, run)
	if errors.Is(err, chat.ErrNotFound) {
		return chat.Errorf(chat.CodeKeyReused, "this request was accepted before as run %s, and its answer was deleted with its session (store: false, or sessions delete); "+
			"to run it again, send it with another %s", chat.ShownRunID(run), headerKey)
	}
	return err // for the client as it is
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
		return err // an error of the protocol
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
		return m, err // an error of the protocol
	}
	return h.message(ctx, c)
}

func (h *Handler) fail(ctx context.Context, w http.ResponseWriter, form form, err error) {
	refuse(ctx, h.server, w, form.name(), err)
}

// call is one request in progress.
type call struct {
	cred   auth.Credential
	header http.Header
	body   []byte
	form   form
	prompt prompt
	to     destination
	// attachments are the files of the message; saved are those that this request has stored.
	attachments, saved []chat.Attachment
}

// dedupe returns the key of the request in the store; "" when it has no idempotency key.
func (c *call) dedupe() string {
	key := c.header.Get(headerKey)
	if key == "" {
		return ""
	}
	return c.cred.Name + "/" + c.form.name() + "/" + key
}

func (c *call) caller() chat.Caller {
	return chat.Caller{Principal: c.cred.Name, Scopes: c.cred.Scopes, Own: c.cred.Own()}
}

// destination is the session and position of a request's message.
type destination struct {
	key   chat.SessionKey
	fresh bool // the session is new
	// id of the message; "" = a new one. claims: only one message can have it, the first that
	// continues a response.
	id     string
	claims bool
	// branch is where a new session begins; nil = it begins empty.
	branch *chat.Branch
}

// destinationOf returns the destination of a request.
func (h *Handler) destinationOf(ctx context.Context, c *call) (destination, error) {
	id := agentOf(c.prompt.model, h.runs)
	if id == "" {
		return destination{}, noModel(c.prompt.model)
	}
	if err := errors.Join(h.checkFormat(c, id), h.checkRange(c, id)); err != nil {
		return destination{}, err
	}
	if err := h.checkTools(c, id); err != nil {
		return destination{}, err
	}
	if c.prompt.passing && (c.header.Get(headerSession) != "" || c.prompt.conversation != nil || c.prompt.previous != "") {
		return destination{}, invalid("store", "store is false, and the request belongs to a conversation, which is kept; leave store out, or send all messages without %s, conversation and previous_response_id", headerSession)
	}
	if name := c.header.Get(headerSession); name != "" {
		if c.prompt.previous != "" || c.prompt.conversation != nil {
			return destination{}, fault.Invalid(headerSession + " cannot be used together with previous_response_id or conversation")
		}
		key, err := chat.ParseSessionKey(name, id)
		switch {
		case err != nil:
			return destination{}, fault.Invalid(headerSession + ": " + err.Error())
		case key.Agent != id:
			return destination{}, fault.Invalid(headerSession + " names another agent than the model")
		}
		return destination{key: key}, h.server.MayUse(ctx, c.cred, key)
	}
	if name := c.prompt.conversation; name != nil {
		key := chat.SessionKey{Agent: id, Rest: channel + ":" + c.cred.Name + ":" + *name}
		return destination{key: key}, h.server.MayUse(ctx, c.cred, key)
	}
	if c.prompt.previous != "" {
		return h.following(ctx, c, id)
	}
	return c.newDestination(id), nil
}

// newPlace returns a new session. With an idempotency key its name is derived from the key, so that
// a repetition finds the same session.
func (c *call) newDestination(agentID string) destination {
	name := uuid.NewString()
	if dedupe := c.dedupe(); dedupe != "" {
		name = uuid.NewSHA1(uuid.Nil, []byte(dedupe)).String()
	}
	if c.prompt.passing {
		return destination{key: chat.SessionKey{Agent: agentID, Rest: chat.PassingName(name)}, fresh: true}
	}
	return destination{key: chat.SessionKey{Agent: agentID, Rest: channel + ":" + name}, fresh: true}
}

// message returns the message of a request.
func (h *Handler) message(ctx context.Context, c *call) (chat.Message, error) {
	if given := c.header.Get(headerKey); given != "" {
		if err := chat.CheckMessageID(headerKey, given); err != nil {
			return chat.Message{}, err
		}
	}
	var err error
	if err := h.recall(ctx, c); err != nil {
		return chat.Message{}, err
	}
	if err := c.prompt.arrange(); err != nil {
		return chat.Message{}, err
	}
	if c.to, err = h.destinationOf(ctx, c); err != nil {
		return chat.Message{}, err
	}
	if err := h.attach(ctx, c); err != nil {
		return chat.Message{}, err
	}
	return c.message(), nil
}

// message returns the message of a request whose place is known.
func (c *call) message() chat.Message {
	p := &c.prompt
	if p.format != nil {
		p.params[paramFormat] = p.format
	}
	m := chat.Message{
		Session: c.to.key, ID: cmp.Or(c.to.id, uuid.Must(uuid.NewV7()).String()), Principal: c.cred.Name, Channel: channel, Branch: c.to.branch,
		Content: chat.Content{
			Text: p.input, Sender: chat.Sender{ID: c.cred.Name}, Attachments: c.attachments, Client: p.client,
			Options: chat.Options{NoMerge: true, SystemPrompt: p.system, Thinking: p.thinking, Params: p.params, KeepContext: p.keep},
		},
	}
	if c.to.fresh || p.keep {
		m.Content.Context = p.earlier
	}
	switch dedupe := c.dedupe(); {
	case dedupe != "":
		m.Dedupe, m.ParamsHash = dedupe, c.paramsHash()
	case c.to.claims:
		m.ParamsHash = uuid.NewString() // equal to no other message
	}
	return m
}

// paramsHash distinguishes requests with the same key. It does not include how the answer is
// delivered, nor the session if the gateway chooses it.
func (c *call) paramsHash() string {
	named := ""
	if c.header.Get(headerSession) != "" || c.prompt.conversation != nil {
		named = c.to.key.String()
	}
	return paramsHash(c.body, named)
}

func paramsHash(body []byte, session string) string {
	var members map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&members); err != nil {
		members = nil // it was parsed before
	}
	delete(members, "stream")
	delete(members, "stream_options")
	sum := sha256.Sum256(append(strictjson.Encode(members), session...))
	return hex.EncodeToString(sum[:])
}
