package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"laneway/internal/secret"
)

// DatabaseURL is the address of the store: `sqlite:PATH` or `postgres://…`. It may contain a password and prints without it. The zero value
// means SQLite in the data directory.
type DatabaseURL struct{ text secret.Secret }

// Reveal returns the address as given, with its password.
func (d DatabaseURL) Reveal() string { return d.text.Reveal() }

// IsSet reports whether an address was given.
func (d DatabaseURL) IsSet() bool { return d.text.IsSet() }

// SQLitePath returns the path of an SQLite address; ok is false for every other address.
func (d DatabaseURL) SQLitePath() (path string, ok bool) {
	return strings.CutPrefix(d.Reveal(), "sqlite:")
}

// IsPostgres reports whether the address names a PostgreSQL database.
func (d DatabaseURL) IsPostgres() bool {
	raw := d.Reveal()
	return strings.HasPrefix(raw, "postgres://") || strings.HasPrefix(raw, "postgresql://")
}

// HasPassword reports whether the address contains a password.
func (d DatabaseURL) HasPassword() bool { return d.password().IsSet() }

func (d DatabaseURL) password() secret.Secret {
	u, err := d.parse()
	if err != nil {
		return secret.Secret{}
	}
	if password, given := u.User.Password(); given {
		return secret.New(password)
	}
	return secret.New(u.Query().Get("password"))
}

// String returns the address with its password replaced by [secret.Redacted]. An address that cannot be parsed is redacted as a whole.
func (d DatabaseURL) String() string {
	raw := d.Reveal()
	if !d.IsPostgres() {
		if strings.HasPrefix(raw, "sqlite:") || raw == "" {
			return raw
		}
		return secret.Redacted
	}
	u, err := d.parse()
	if err != nil {
		return secret.Redacted
	}
	return secret.URL(u)
}

// GoString returns the same as String.
func (d DatabaseURL) GoString() string { return d.String() }

// Format writes String for every verb.
func (d DatabaseURL) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(d.String())) //nolint:errcheck // the writer keeps its own error
}

// LogValue returns the string of String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText returns the string of String.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalYAML returns the string of String.
func (d DatabaseURL) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalText parses an address; blank text is refused.
func (d *DatabaseURL) UnmarshalText(text []byte) error { return d.text.UnmarshalText(text) }

// parse hides the error of net/url, which would contain the address and its password.
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
