package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"laneway/internal/chat"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/httpbody"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/secret"
)

// Signature schemes of a [Hook].
const (
	// HookLaneway signs time and body: `X-Laneway-Signature: t=<unix seconds>,v1=<hex>`, HMAC-SHA256 over "t.body".
	HookLaneway = "laneway"
	// HookGitHub signs the body: `X-Hub-Signature-256: sha256=<hex>`.
	HookGitHub = "github"
)

const (
	maxHookBody   = 262_144
	minHookSecret = 32
	hookWindow    = 300 * time.Second // how far the clocks may differ, and how long a call may travel
	hookChannel   = "hook"
)

// Hook makes messages of the calls of `POST /hooks/{name}`.
type Hook struct {
	// Secret of 32 characters or more proves the sender.
	Secret secret.Secret
	// Scheme is [HookLaneway] (also when empty) or [HookGitHub].
	Scheme string
	// Agent that answers; "" = the default one.
	Agent string
	// Session that the message goes to; "" = `agent:<agent>:hook:<name>`.
	Session string
	// Prefix is put before a body that is no {"message": …}.
	Prefix string
	// AllowSessionKey lets the caller name another session of the same agent: the main one, or one of a free name that is new or that the hook has
	// made. Only Session can name another agent's, one that is made for a chat or a job, or one of another principal.
	AllowSessionKey bool
}

var hookName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (h Hook) check(name string) error {
	switch {
	case !hookName.MatchString(name):
		return fmt.Errorf("hook name %q must match %s", name, hookName)
	case utf8.RuneCountInString(h.Secret.Reveal()) < minHookSecret:
		return fmt.Errorf("the secret of hook %s needs %d characters", name, minHookSecret)
	case h.Scheme != "" && h.Scheme != HookLaneway && h.Scheme != HookGitHub:
		return fmt.Errorf("hook %s: the scheme %q is not laneway or github", name, h.Scheme)
	default:
		return nil
	}
}

// signature is what proves one call: the text that a caller repeats when it repeats the call.
type signature struct {
	given string // hex
	time  string // as written; "" = the scheme has none
}

// signature reads the header of the scheme; false = missing, malformed or too old.
func (h Hook) signature(header http.Header, now time.Time) (signature, bool) {
	if h.Scheme == HookGitHub {
		given, ok := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		return signature{given: given}, ok
	}
	first, second, ok := strings.Cut(header.Get("X-Laneway-Signature"), ",")
	at, timed := strings.CutPrefix(first, "t=")
	given, versioned := strings.CutPrefix(second, "v1=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if !ok || !timed || !versioned || err != nil {
		return signature{}, false
	}
	age := now.Unix() - seconds
	limit := int64(hookWindow / time.Second)
	return signature{given: given, time: at}, age >= -limit && age <= limit
}

// proves reports whether the signature belongs to the body. The comparison takes the same time for every wrong one.
func (h Hook) proves(sig signature, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(h.Secret.Reveal()))
	if h.Scheme != HookGitHub {
		_, _ = mac.Write([]byte(sig.time + ".")) // a hash takes everything
	}
	_, _ = mac.Write(body)
	given, err := hex.DecodeString(sig.given)
	return err == nil && subtle.ConstantTimeCompare(given, mac.Sum(nil)) == 1
}

type hookAnswer struct {
	OK         bool   `json:"ok"`
	RunID      string `json:"runId"`
	SessionKey string `json:"sessionKey"`
	Duplicate  bool   `json:"duplicate"`
}

// hook answers POST /hooks/{name}: it checks who calls, makes the call a durable message, and answers without waiting for the turn. An
// unknown hook and a wrong signature look alike.
func (s *Server) hook(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	cl := s.httpCall(hookChannel, auth.Credential{Name: hookChannel + ":" + chi.URLParam(r, "name")})
	answer, err := s.takeHook(cl, w, r)
	s.count(cl.m, err, time.Since(began))
	if err != nil {
		e := s.explain(r.Context(), cl, err)
		httpbody.WriteError(w, e.HTTPStatus(), e)
		return
	}
	httpbody.WriteJSON(w, http.StatusAccepted, answer)
}

func (s *Server) takeHook(cl *call, w http.ResponseWriter, r *http.Request) (hookAnswer, error) {
	var none hookAnswer
	body, err := httpbody.Read(w, r, maxHookBody, s.cfg.Deadlines.Message)
	if err != nil {
		return none, err
	}
	name := chi.URLParam(r, "name")
	hook, sig, ok := s.provenHook(name, r.Header, body)
	if !ok {
		s.observer.AuthFailed("hook")
		return none, fault.Invalid("unknown hook or wrong signature").WithStatus(http.StatusUnauthorized)
	}
	proven(r)
	// Counted after the proof: whoever has no secret cannot use up the allowance of those who have.
	if no := s.auth.Spend(r.Context(), name, "hooks/"+name, auth.LimitHooks); no != nil {
		return none, no
	}
	if no := s.auth.SpendBytes(r.Context(), cl.principal(), cl.m.name, len(body)); no != nil {
		return none, no
	}
	if no := s.doorFault(); no != nil {
		return none, no
	}
	m, err := s.hookMessage(hook, name, r, sig, body)
	if err != nil {
		return none, err
	}
	by := cl.caller()
	by.Own = m.Own
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), s.cfg.Deadlines.Request, fault.ErrRequestTimeout)
	defer cancel()
	receipt, err := s.backend.ReceiveFrom(ctx, m, by)
	if err != nil {
		return none, err
	}
	return hookAnswer{OK: true, RunID: receipt.RunID, SessionKey: receipt.Session.String(), Duplicate: receipt.Duplicate}, nil
}

// provenHook finds the hook and checks the signature. For a name that is none the same work is done with a key that nobody has.
func (s *Server) provenHook(name string, header http.Header, body []byte) (Hook, signature, bool) {
	hook, known := s.cfg.Hooks[name]
	if !known {
		hook.Secret = s.noHook
	}
	sig, timely := hook.signature(header, time.Now())
	proven := hook.proves(sig, body)
	return hook, sig, known && timely && proven
}

func newNoHook() secret.Secret { return secret.New(uuid.NewString() + uuid.NewString()) }

// hookMessage makes the message of a call. Under the scheme laneway its id follows from the signature, which headers like Idempotency-Key are
// no part of: a call that was recorded and is sent again under another key meets its own id and is refused, on every replica. GitHub signs
// the body alone, so that two deliveries may well have one signature; what tells them apart is the id of the delivery. A message that may use only
// what the hook has made is marked as Own.
func (s *Server) hookMessage(h Hook, name string, r *http.Request, sig signature, body []byte) (chat.Message, error) {
	var m chat.Message
	said, err := h.read(body)
	if err != nil {
		return m, err
	}
	key, own, err := s.hookSession(h, name, said.sessionKey)
	if err != nil {
		return m, err
	}
	once, err := hookKey(r.Header, h.Scheme, sig)
	if err != nil {
		return m, err
	}
	digest := sha256.Sum256(body)
	call := sig.time + "\n" + strings.ToLower(sig.given)
	if h.Scheme == HookGitHub {
		call = HookGitHub + "\n" + once
	}
	return chat.Message{
		Session: key, Own: own, ID: uuid.NewSHA1(uuid.Nil, []byte(name+"\n"+call)).String(),
		Channel: hookChannel, Dedupe: hookChannel + ":" + name + "/" + once, ParamsHash: hex.EncodeToString(digest[:]),
		Content: chat.Content{
			Text: said.text, External: true, Sender: chat.Sender{ID: hookChannel + ":" + name},
			Options: chat.Options{NoMerge: true, ReplyTo: targetOf(key)},
		},
	}, nil
}

// hookKey names the event: what the caller says, else the signature. From GitHub it is what GitHub says; a header that GitHub does not send would
// let a recorded delivery come in again under as many names as its sender likes.
func hookKey(header http.Header, scheme string, sig signature) (string, error) {
	name := headerOnce
	if scheme == HookGitHub {
		name = "X-GitHub-Delivery"
	}
	if key := header.Get(name); key != "" {
		return key, chat.CheckMessageID(name, key)
	}
	return strings.ToLower(sig.given), nil
}

type hookText struct{ text, sessionKey string }

// read takes the message out of a JSON object that has one; everything else is the text itself.
func (h Hook) read(body []byte) (hookText, error) {
	if !utf8.Valid(body) {
		return hookText{}, fault.Invalid("the body is not valid UTF-8")
	}
	out := hookText{}
	members := membersOf(body)
	if text, ok := optionalText(members["message"]); ok {
		out.text = text
	} else {
		out.text = h.Prefix + string(body)
	}
	if h.AllowSessionKey {
		out.sessionKey, _ = optionalText(members["sessionKey"])
	}
	return out, nil
}

// membersOf are the members of a JSON object; none for any other text.
func membersOf(body []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if strictjson.Inspect(body) != nil || json.Unmarshal(body, &members) != nil {
		return nil
	}
	return members
}

func optionalText(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	return strictjson.Unquote(raw)
}

// hookSession is where a message goes. own: the session may be used only when it is new or the hook's own, which its acceptance decides.
func (s *Server) hookSession(h Hook, name, asked string) (key chat.SessionKey, own bool, err error) {
	id := orWord(h.Agent, s.backend.DefaultAgent())
	text := orWord(asked, h.Session)
	if text == "" {
		return chat.SessionKey{Agent: id, Rest: hookChannel + ":" + name}, false, nil
	}
	if key, err = chat.ParseSessionKey(text, id); err != nil {
		return key, false, fault.Invalid("sessionKey: " + err.Error())
	}
	if asked == "" || key == chat.MainKey(id) {
		return key, false, nil
	}
	right := key.RightOf(hookChannel + ":" + name)
	if key.Agent != id || right != chat.RightFree && right != chat.RightMine {
		return key, false, chat.Errorf(chat.CodeSessionNotFound, "session not found: %s", key).With("key", key.String())
	}
	return key, true, nil
}
