package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"laneway/internal/secret"
)

// DatabaseURL is where the store is: `sqlite:PATH` or `postgres://…`. It may contain a password and prints without it. The zero
// value means SQLite in the data directory.
type DatabaseURL struct{ text secret.Secret }

// Reveal is the address as given, with its password.
func (d DatabaseURL) Reveal() string { return d.text.Reveal() }

// IsSet reports whether an address was given.
func (d DatabaseURL) IsSet() bool { return d.text.IsSet() }

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

// String is the address with its password replaced by [secret.Redacted]. What cannot be parsed is shown as [secret.Redacted] as a whole.
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

// GoString is the same as String.
func (d DatabaseURL) GoString() string { return d.String() }

// Format writes String for every verb.
func (d DatabaseURL) Format(f fmt.State, _ rune) {
	_, _ = f.Write([]byte(d.String())) //nolint:errcheck // the writer keeps its own error
}

// LogValue is String.
func (d DatabaseURL) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText is String.
func (d DatabaseURL) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// MarshalYAML is String.
func (d DatabaseURL) MarshalYAML() (any, error) { return d.String(), nil }

// UnmarshalText reads an address; blank text is refused.
func (d *DatabaseURL) UnmarshalText(text []byte) error { return d.text.UnmarshalText(text) }

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
