package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// Redacted is what a [Secret] shows instead of itself.
const Redacted = "[redacted]"

// Secret is text that must not be printed: a token, a password, a key. Every way of formatting it gives [Redacted]; only
// Reveal gives the text. The zero value is no secret. Values are not comparable in a useful way; compare what Reveal gives,
// in constant time where it matters.
type Secret struct {
	// A pointer, because package fmt prints unexported fields of a surrounding struct without asking their methods: of a
	// pointer it can show the address only.
	text *string
}

// NewSecret keeps s. An empty s is no secret.
func NewSecret(s string) Secret {
	if s == "" {
		return Secret{}
	}
	return Secret{text: &s}
}

// Reveal is the text, "" when there is none. Its callers stand on a list that a test compares.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether there is a secret.
func (s Secret) IsSet() bool { return s.text != nil }

// String is [Redacted].
func (s Secret) String() string { return Redacted }

// GoString is [Redacted].
func (s Secret) GoString() string { return Redacted }

// Format writes [Redacted] for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(Redacted)) //nolint:errcheck // fmt.State has nobody to tell
}

// LogValue is [Redacted].
func (s Secret) LogValue() slog.Value { return slog.StringValue(Redacted) }

// MarshalText is [Redacted]; it also serves encoding/json and encoding/xml.
func (s Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalYAML is [Redacted].
func (s Secret) MarshalYAML() (any, error) { return Redacted, nil }

// UnmarshalText reads the secret itself. Blanks around it are cut, because a file or a variable often ends with a newline;
// blank text is refused, because "set but empty" is never "no secret".
func (s *Secret) UnmarshalText(text []byte) error {
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return errBlank
	}
	if strings.ContainsFunc(trimmed, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("must be one line without control characters")
	}
	*s = NewSecret(trimmed)
	return nil
}

// DatabaseURL is where the store is: `sqlite:PATH` or `postgres://…`. It may hold a password, so it prints without it.
type DatabaseURL struct{ secret Secret }

// NewDatabaseURL keeps raw. An empty raw means SQLite in the data directory.
func NewDatabaseURL(raw string) DatabaseURL { return DatabaseURL{secret: NewSecret(raw)} }

// Reveal is the address as given, with its password.
func (d DatabaseURL) Reveal() string { return d.secret.Reveal() }

// IsSet reports whether an address was given.
func (d DatabaseURL) IsSet() bool { return d.secret.IsSet() }

// SQLitePath is the path of an SQLite address; ok is false for every other address.
func (d DatabaseURL) SQLitePath() (path string, ok bool) {
	return strings.CutPrefix(d.Reveal(), "sqlite:")
}

// IsPostgres reports whether the address is one of Postgres.
func (d DatabaseURL) IsPostgres() bool {
	raw := d.Reveal()
	return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
}

// HasPassword reports whether the address carries one.
func (d DatabaseURL) HasPassword() bool { return d.password().IsSet() }

func (d DatabaseURL) password() Secret {
	u, err := d.parse()
	if err != nil {
		return Secret{}
	}
	if password, given := u.User.Password(); given {
		return NewSecret(password)
	}
	return NewSecret(u.Query().Get("password"))
}

// String is the address with its password replaced by [Redacted]. What cannot be parsed is shown as [Redacted] as a whole.
func (d DatabaseURL) String() string {
	raw := d.Reveal()
	if !d.IsPostgres() {
		if strings.HasPrefix(raw, "sqlite:") || raw == "" {
			return raw
		}
		return Redacted
	}
	u, err := d.parse()
	if err != nil {
		return Redacted
	}
	return redactURL(u)
}

func redactURL(u *url.URL) string {
	shown := *u
	if _, has := u.User.Password(); has {
		shown.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	q := shown.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if q.Has(name) {
			q.Set(name, "xxxxx")
		}
	}
	shown.RawQuery = q.Encode()
	return shown.String()
}

// GoString is the same as String.
func (d DatabaseURL) GoString() string { return d.String() }

// Format writes String for every verb.
func (d DatabaseURL) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(d.String())) //nolint:errcheck // fmt.State has nobody to tell
}

// LogValue is String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText is String.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalYAML is String.
func (d DatabaseURL) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalText reads an address; blank text is refused.
func (d *DatabaseURL) UnmarshalText(text []byte) error { return d.secret.UnmarshalText(text) }

// parse hides the error of net/url, which would carry the address and with it the password.
func (d DatabaseURL) parse() (*url.URL, error) {
	if !d.IsPostgres() {
		return nil, errNoPostgres
	}
	u, err := url.Parse(d.Reveal())
	if err != nil {
		return nil, errDatabaseURL
	}
	return u, nil
}
