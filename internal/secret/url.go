package secret

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// masked replaces a password within an address. It needs no escaping, so the address stays readable.
const masked = "xxxxx"

// URL returns the address with its passwords masked: the one of the user, and the query parameters `password` and `sslpassword` of
// PostgreSQL. It does not change u.
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

// RawURL returns an address that may be an invalid URL, for an error that quotes it, or "…" if a part of it may be a credential.
func RawURL(raw string) string {
	if strings.ContainsAny(raw, "@?#") {
		return "…"
	}
	return raw
}

// WithoutURL removes the address from an error of net/http, which quotes it as it was given. Any other error is returned unchanged.
func WithoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", strings.ToUpper(outer.Op), outer.Err)
	}
	return err
}
