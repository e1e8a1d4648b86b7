// Package secret keeps credentials out of everything that the gateway prints.
//
// A [Secret] is a token, a password or a key. Package fmt, encoding/json, encoding/xml, YAML and
// log/slog print [Redacted] in its place, even when it is an unexported field of another struct.
// Only [Secret.Reveal] returns the text; a test of package archtest lists the files that may call
// it. [Secret.Redact] removes the text from errors of other programs.
//
// [Generate] makes a token.
//
// [URL], [RawURL] and [WithoutURL] remove credentials from addresses and from errors that quote
// addresses.
//
// The package imports nothing of the gateway, starts no goroutine and reads neither files nor the
// environment. Values are immutable, except that UnmarshalText sets its receiver; copies are safe
// for concurrent use.
package secret

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

const (
	// Redacted is printed in place of a [Secret].
	Redacted = "[redacted]"
	// Hidden replaces a secret within a longer string, see [Secret.Redact].
	Hidden = "[hidden]"
)

// Errors of [Secret.UnmarshalText].
var (
	ErrBlank   = errors.New("is set but empty")
	ErrNotLine = errors.New("must be one line without control characters")
	ErrQuoted  = errors.New("is in quotes; write it without them")
	ErrNamed   = errors.New("begins with a name, as in a file of variables; write only the value")
	ErrBearer  = errors.New("begins with Bearer, the word of the header; write only the value")
)

// named is the beginning of a line that assigns a variable. Its name has an underscore, because a
// random value may have letters and = as well.
var named = regexp.MustCompile(`^(?:export\s+)?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+=[^=]`)

// Secret is text that must not be printed: a token, a password, a key. Every way of formatting it
// prints [Redacted]; only Reveal returns the text. The zero value is no secret, and prints as
// [Redacted] too. Do not compare values with ==: it compares pointers. Compare what Reveal returns,
// in constant time where a caller is authenticated.
type Secret struct {
	// A pointer, because package fmt prints unexported fields of a surrounding struct without
	// calling their methods: of a pointer it prints only the address.
	text *string
}

// New returns a secret with this text. For an empty text it returns the zero value.
func New(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// generatedBytes is the strength of a generated secret, which has 43 characters in URL-safe base64
// (RFC 4648, section 5).
const generatedBytes = 32

// Generate returns a new secret of 32 bytes from crypto/rand as 43 characters of URL-safe base64.
// It does not begin with a hyphen: command-line programs would take it for a flag.
func Generate() Secret {
	raw := make([]byte, generatedBytes)
	for {
		_, _ = rand.Read(raw) // never returns an error; a failure ends the process
		if text := base64.RawURLEncoding.EncodeToString(raw); text[0] != '-' {
			return New(text)
		}
	}
}

// Reveal returns the text, "" if none is set. A test compares its callers with a list.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether a secret is set.
func (s Secret) IsSet() bool { return s.text != nil }

// Redact replaces the secret in text of another program, such as an error message that quotes the
// key, with [Hidden].
func (s Secret) Redact(text string) string {
	if s.text == nil {
		return text
	}
	return strings.ReplaceAll(text, *s.text, Hidden)
}

// String returns [Redacted].
func (s Secret) String() string { return Redacted }

// GoString returns [Redacted].
func (s Secret) GoString() string { return Redacted }

// Format writes [Redacted] for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(Redacted)) // package fmt keeps the error of its own writer
}

// LogValue returns [Redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalText returns [Redacted]; encoding/json and encoding/xml use it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalYAML returns [Redacted].
func (s Secret) MarshalYAML() (any, error) { return Redacted, nil }

// UnmarshalText sets the secret. It cuts a byte order mark, blanks and invisible characters around
// the text, because a file or a variable often ends with a newline. It refuses blank text with
// [ErrBlank], because "set but empty" never means "no secret", control characters and invisible
// ones with [ErrNotLine], and what was copied together with the value: quotes, the name of a
// variable, the word of a header. An error leaves the secret unchanged.
func (s *Secret) UnmarshalText(text []byte) error {
	invisible := func(r rune) bool { return unicode.Is(unicode.Cf, r) }
	trimmed := strings.TrimFunc(string(text), func(r rune) bool { return unicode.IsSpace(r) || invisible(r) })
	if trimmed == "" {
		return ErrBlank
	}
	if strings.ContainsFunc(trimmed, func(r rune) bool { return r < ' ' || r == 0x7f || invisible(r) }) {
		return ErrNotLine
	}
	switch first, last := trimmed[0], trimmed[len(trimmed)-1]; {
	case len(trimmed) > 1 && first == last && strings.IndexByte("\"'`", first) >= 0:
		return ErrQuoted
	case named.MatchString(trimmed):
		return ErrNamed
	case len(trimmed) > len("Bearer ") && strings.EqualFold(trimmed[:len("Bearer ")], "Bearer "):
		return ErrBearer
	}
	*s = New(trimmed)
	return nil
}

// masked replaces a password within an address. It needs no escaping, so the address stays
// readable.
const masked = "xxxxx"

// URL returns the address with its passwords masked: the one of the user, and the query parameters
// `password` and `sslpassword` of PostgreSQL. It does not change u.
func URL(u *url.URL) string {
	shown := *u
	if _, has := u.User.Password(); has {
		shown.User = url.UserPassword(u.User.Username(), masked)
	}
	q := shown.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if q.Has(name) {
			q.Set(name, masked)
		}
	}
	shown.RawQuery = q.Encode()
	return shown.String()
}

// RawURL returns an address that may be an invalid URL, for an error that quotes it, or "…" if a
// part of it may be a credential.
func RawURL(raw string) string {
	if strings.ContainsAny(raw, "@?#") {
		return "…"
	}
	return raw
}

// WithoutURL removes the address from an error of net/http, which quotes it as it was given. Any
// other error is returned unchanged.
func WithoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", strings.ToUpper(outer.Op), outer.Err)
	}
	return err
}
