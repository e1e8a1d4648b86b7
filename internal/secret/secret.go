package secret

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
)

// Secret is text that must not be printed: a token, a password, a key. Every way of formatting it prints [Redacted]; only Reveal returns
// the text. The zero value is no secret, and prints as [Redacted] too. Do not compare values with ==: it compares
// pointers. Compare what Reveal returns, in constant time where a caller is authenticated.
type Secret struct {
	// A pointer, because package fmt prints unexported fields of a surrounding struct without calling their methods: of a
	// pointer it prints only the address.
	text *string
}

// New returns a secret with this text. For an empty text it returns the zero value.
func New(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// generatedBytes is the strength of a generated secret, which has 43 characters in URL-safe base64 (RFC 4648, section 5).
const generatedBytes = 32

// Generate returns a new secret of 32 bytes from crypto/rand as 43 characters of URL-safe base64. It does not begin with a hyphen: command-line
// programs would take it for a flag.
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

// Redact replaces the secret in text of another program, such as an error message that quotes the key, with [Hidden].
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
	_, _ = f.Write([]byte(Redacted)) //nolint:errcheck // package fmt keeps the error of its own writer
}

// LogValue returns [Redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalText returns [Redacted]; encoding/json and encoding/xml use it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalYAML returns [Redacted].
func (s Secret) MarshalYAML() (any, error) { return Redacted, nil }

// UnmarshalText sets the secret. It cuts a byte order mark and blanks around the text, because a file or a variable often ends with a newline. It refuses blank text with
// [ErrBlank], because "set but empty" never means "no secret", and control characters with [ErrNotLine]; an error leaves the secret unchanged.
func (s *Secret) UnmarshalText(text []byte) error {
	trimmed := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	if trimmed == "" {
		return ErrBlank
	}
	if strings.ContainsFunc(trimmed, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ErrNotLine
	}
	*s = New(trimmed)
	return nil
}
