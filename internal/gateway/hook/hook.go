// Package hook turns calls of `POST /hooks/{name}` into durable messages.
//
// # Ideas
//
// A call is authenticated by a signature of its body, under one of two schemes; see [Laneway] and
// [GitHub]. An unknown hook and a wrong signature have the same answer after the same work, so that
// hooks cannot be enumerated. Allowances are taken after the authentication: a caller without the
// secret cannot use up the allowances of others.
//
// A recorded call that is sent again makes no second message. Under the scheme laneway, the id of
// the message is derived from the signature; for GitHub, from the id of the delivery. Headers that
// the signature does not cover cannot change it.
//
// A hook writes into its own session. A caller may name another one only if the configuration
// allows it, and only the main session, a free name, or a session that the hook has created; see
// [Hook.AllowSessionKey].
//
// # Crash points
//
// The answer is sent after the message is durable. A caller that receives no answer repeats the
// call, which finds the same message. A client that disconnects does not interrupt the acceptance.
//
// # What it does not do
//
// It does not wait for the turn, and it starts no goroutine. Its handler ends with the request.
package hook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/inflight"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/secret"
	"laneway/internal/signature"
)

// Signature schemes of a [Hook].
const (
	// Laneway signs time and body, see package signature.
	Laneway = "laneway"
	// GitHub signs the body: `X-Hub-Signature-256: sha256=<hex>`.
	GitHub = "github"
)

const (
	maxBody   = 262_144 // bytes
	minSecret = 32      // characters
	channel   = "hook"
)

// Hook is one webhook: calls of `POST /hooks/{name}` become messages.
type Hook struct {
	// Secret of 32 characters or more authenticates the sender of a call.
	Secret secret.Secret
	// Scheme is [Laneway] (also when empty) or [GitHub].
	Scheme string
	// Agent that answers; "" = the default one.
	Agent string
	// Session of the message; "" = `agent:<agent>:hook:<name>`.
	Session string
	// Prefix is prepended to a body that is not a {"message": …}.
	Prefix string
	// AllowSessionKey lets the caller name another session of the same agent: the main one, or one
	// with a free name that is new or that the hook has created. Only Session can name a session of
	// another agent, a chat, a job, or another principal.
	AllowSessionKey bool
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (h Hook) check(name string) error {
	switch {
	case !namePattern.MatchString(name):
		return fmt.Errorf("hook name %q must match %s", name, namePattern)
	case utf8.RuneCountInString(h.Secret.Reveal()) < minSecret:
		return fmt.Errorf("the secret of hook %s needs %d characters", name, minSecret)
	case h.Scheme != "" && h.Scheme != Laneway && h.Scheme != GitHub:
		return fmt.Errorf("hook %s: the scheme %q is not laneway or github", name, h.Scheme)
	default:
		return nil
	}
}

// proof is the signature of one call, which is the same when the caller repeats the call.
type proof struct {
	given string // hex
	time  string // as written; "" when the scheme has no time
}

// proof parses the header of the scheme; false = missing, malformed or too old.
func (h Hook) proof(header http.Header, now time.Time) (proof, bool) {
	if h.Scheme == GitHub {
		given, ok := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		return proof{given: given}, ok
	}
	at, given, ok := signature.Parse(header.Get(signature.Header), now)
	return proof{given: given, time: at}, ok
}

// proves reports whether the signature belongs to the body, in constant time.
func (h Hook) proves(sig proof, body []byte) bool {
	if h.Scheme != GitHub {
		return signature.Proves(h.Secret.Reveal(), sig.time, sig.given, body)
	}
	mac := hmac.New(sha256.New, []byte(h.Secret.Reveal()))
	_, _ = mac.Write(body) // a hash never returns an error
	given, err := hex.DecodeString(sig.given)
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

// Config of a [Handler].
type Config struct {
	// Hooks by name.
	Hooks map[string]Hook
	// BodyTimeout limits the time in which the body of a call arrives, AcceptTimeout the acceptance
	// of its message.
	BodyTimeout, AcceptTimeout time.Duration
}

// Receiver makes messages durable.
type Receiver interface {
	ReceiveFrom(ctx context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error)
	DefaultAgent() string
}

// Handler answers the calls of all hooks. It is safe for concurrent use.
type Handler struct {
	cfg        Config
	receiver   Receiver
	allowances *auth.Authenticator
	server     auth.Server
	unknown    Hook // its secret is used for hooks that do not exist
}

// New checks the hooks and reports all faults.
func New(cfg Config, receiver Receiver, allowances *auth.Authenticator, server auth.Server) (*Handler, error) {
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

// ServeHTTP answers POST /hooks/{name}: it authenticates the caller, makes the call a durable
// message, and answers without waiting for the turn.
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

// begin waits for a place of the hook and for the bytes of the call. The body was read before,
// because its signature had to be verified; the connection limit of an address limits the memory of
// such bodies.
func (h *Handler) begin(ctx context.Context, c *call) (done func(), err error) {
	share := h.server.Share(c.principal(), true)
	held, err := share.Hold(ctx, int64(len(c.body)))
	if err != nil {
		return nil, fault.ErrRequestTimeout
	}
	leave, err := share.Enter(ctx, inflight.Call)
	if err != nil {
		held.Release()
		return nil, err // the cause of ctx
	}
	return func() { leave(); held.Release() }, nil
}

// verify finds the hook and checks the signature. For an unknown name it does the same work with a
// secret that no caller has.
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

// call is one call of a hook.
type call struct {
	name   string
	hook   Hook
	header http.Header
	body   []byte
	sig    proof
}

func (c *call) principal() string { return channel + ":" + c.name }

// message returns the message of a call. Under the scheme laneway its id is derived from the
// signature, which does not cover headers like Idempotency-Key. A recorded call that is sent again
// with another key has the same id and is refused, on every replica. GitHub signs only the body, so
// two deliveries may have the same signature; the id of the delivery distinguishes them. A message
// that may use only sessions that the hook has created is marked as Own.
func (c *call) message(defaultAgent string) (chat.Message, error) {
	var m chat.Message
	text, asked, err := c.read()
	if err != nil {
		return m, err
	}
	key, own, err := c.session(asked, defaultAgent)
	if err != nil {
		return m, err
	}
	idempotency, err := c.idempotencyKey()
	if err != nil {
		return m, err
	}
	digest := sha256.Sum256(c.body)
	id := c.sig.time + "\n" + strings.ToLower(c.sig.given)
	if c.hook.Scheme == GitHub {
		id = GitHub + "\n" + idempotency
	}
	return chat.Message{
		Session: key, Own: own, ID: uuid.NewSHA1(uuid.Nil, []byte(c.name+"\n"+id)).String(),
		Channel: channel, Dedupe: c.principal() + "/" + idempotency, ParamsHash: hex.EncodeToString(digest[:]),
		Content: chat.Content{
			Text: text, External: true, Sender: chat.Sender{ID: c.principal()},
			Options: chat.Options{NoMerge: true, ReplyTo: key.Target()},
		},
	}, nil
}

// idempotencyKey returns the name of the event: the key of the caller, or the signature. For GitHub
// it is the id of the delivery. A header that GitHub does not send would let a caller submit a
// recorded delivery under many names.
func (c *call) idempotencyKey() (string, error) {
	header := "Idempotency-Key"
	if c.hook.Scheme == GitHub {
		header = "X-GitHub-Delivery"
	}
	if key := c.header.Get(header); key != "" {
		return key, chat.CheckMessageID(header, key)
	}
	return strings.ToLower(c.sig.given), nil
}

// read extracts the text, and the session that the caller requests, from a JSON object with a
// message; any other body is the text itself.
func (c *call) read() (text, session string, err error) {
	if !utf8.Valid(c.body) {
		return "", "", fault.Invalid("the body is not valid UTF-8")
	}
	members := membersOf(c.body)
	text, ok := stringOf(members["message"])
	if !ok {
		text = c.hook.Prefix + c.event() + string(c.body)
	}
	if c.hook.AllowSessionKey {
		session, _ = stringOf(members["sessionKey"])
	}
	return text, session, nil
}

// eventName is the form of the name of an event; GitLab's have spaces.
var eventName = regexp.MustCompile(`^[A-Za-z0-9_. -]{1,100}$`)

// event returns a line with the name of the event, which services send in a header and not in the
// body; "" when there is none. No signature covers it: it is text from outside like the body.
func (c *call) event() string {
	for _, header := range []string{"X-GitHub-Event", "X-Gitlab-Event"} {
		if name := c.header.Get(header); eventName.MatchString(name) {
			return header + ": " + name + "\n"
		}
	}
	return ""
}

// membersOf returns the members of a JSON object; nil for any other body.
func membersOf(body []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if strictjson.Inspect(body) != nil || json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members
}

func stringOf(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	return strictjson.Unquote(raw)
}

// session returns the session of a message. own: the session may be used only if it is new or the
// hook's own, which its acceptance decides.
func (c *call) session(asked, defaultAgent string) (key chat.SessionKey, own bool, err error) {
	id := cmp.Or(c.hook.Agent, defaultAgent)
	text := cmp.Or(asked, c.hook.Session)
	if text == "" {
		return chat.SessionKey{Agent: id, Rest: c.principal()}, false, nil
	}
	if key, err = chat.ParseSessionKey(text, id); err != nil {
		return key, false, fault.Invalid("sessionKey: " + err.Error())
	}
	if asked == "" || key == chat.MainKey(id) {
		return key, false, nil
	}
	right := key.RightOf(c.principal())
	if key.Agent != id || right != chat.RightFree && right != chat.RightMine {
		return key, false, chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return key, true, nil
}
