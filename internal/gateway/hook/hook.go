package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

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
	// AllowSessionKey lets the caller name another session of the same agent: the main one, or one with a free name that is new or that the
	// hook has created. Only Session can name a session of another agent, a chat, a job, or another principal.
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
