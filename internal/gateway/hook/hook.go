package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/secret"
)

// Signature schemes of a [Hook].
const (
	// Laneway signs time and body: `X-Laneway-Signature: t=<unix seconds>,v1=<hex>`, HMAC-SHA256 over "t.body".
	Laneway = "laneway"
	// GitHub signs the body: `X-Hub-Signature-256: sha256=<hex>`.
	GitHub = "github"
)

const (
	maxBody   = 262_144           // bytes
	minSecret = 32                // characters
	window    = 300 * time.Second // how far the clocks may differ, and how long a call may travel
	channel   = "hook"
)

// Hook is one webhook: its calls of `POST /hooks/{name}` become messages.
type Hook struct {
	// Secret of 32 characters or more proves that a call is from the sender.
	Secret secret.Secret
	// Scheme is [Laneway] (also when empty) or [GitHub].
	Scheme string
	// Agent that answers; "" = the default one.
	Agent string
	// Session that the message goes to; "" = `agent:<agent>:hook:<name>`.
	Session string
	// Prefix is prepended to a body that is no {"message": …}.
	Prefix string
	// AllowSessionKey lets the caller name another session of the same agent: the main one, or one of a free name that is new or that the hook has
	// made. Only Session can name another agent's, one that is made for a chat or a job, or one of another principal.
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

// signature is the proof of one call: the text that a caller repeats when it repeats the call.
type signature struct {
	given string // hex
	time  string // as written; "" = the scheme has none
}

// signature reads the header of the scheme; false = missing, malformed or too old.
func (h Hook) signature(header http.Header, now time.Time) (signature, bool) {
	if h.Scheme == GitHub {
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
	limit := int64(window / time.Second)
	return signature{given: given, time: at}, age >= -limit && age <= limit
}

// proves reports whether the signature belongs to the body. The comparison takes the same time for every wrong one.
func (h Hook) proves(sig signature, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(h.Secret.Reveal()))
	if h.Scheme != GitHub {
		_, _ = mac.Write([]byte(sig.time + ".")) // a hash takes everything
	}
	_, _ = mac.Write(body)
	given, err := hex.DecodeString(sig.given)
	return err == nil && subtle.ConstantTimeCompare(given, mac.Sum(nil)) == 1
}
