package agent

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// hidden is what a secret shows of itself.
const hidden = "[hidden]"

// Secret is a key or token that is never printed: every verb of fmt, JSON, slog and text marshalling show `[hidden]`. The
// text is behind a pointer, so that printing a struct with an unexported Secret does not show it either. The zero value is
// no secret.
type Secret struct{ text *string }

// NewSecret keeps text; "" gives the zero value.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal is the text itself, for the one place that sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == nil }

// Hide replaces the secret in text that somebody else made, such as an error message that quotes the key.
func (s Secret) Hide(text string) string {
	if s.text == nil {
		return text
	}
	return strings.ReplaceAll(text, *s.text, hidden)
}

// String never shows the text.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return hidden
}

// Format answers every verb with [Secret.String].
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, s.String()) //nolint:errcheck // fmt keeps the error of its own writer
}

// MarshalText never shows the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue never shows the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
