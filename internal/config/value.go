package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"laneway/internal/secret"
)

// Errors of values. They are wrapped in a [Fault] with the path and the place.
var (
	errNoPostgres  = errors.New("is no Postgres address")
	errDatabaseURL = errors.New("is no valid address; write it as postgres://USER@HOST/NAME or sqlite:PATH")
)

// Duration is a time.Duration that is written as `800ms`, `10m`, `1h30m` or `30d` (a day has 24 hours).
type Duration time.Duration

const day = 24 * time.Hour

// String writes whole days as `30d` and other durations as package time does.
func (d Duration) String() string {
	if d != 0 && time.Duration(d)%day == 0 {
		return strconv.FormatInt(int64(time.Duration(d)/day), 10) + "d"
	}
	return time.Duration(d).String()
}

// MarshalText returns the string of String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a duration. A number without a unit other than 0 is refused, because seconds and milliseconds are easily confused.
func (d *Duration) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" {
		return secret.ErrBlank
	}
	if whole, found := strings.CutSuffix(s, "d"); found {
		return setDays(d, whole, s)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("must be a duration such as 800ms, 10m or 30d, is %q", s)
	}
	*d = Duration(parsed)
	return nil
}

func setDays(d *Duration, whole, given string) error {
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || n > int64(math.MaxInt64/day) {
		return fmt.Errorf("must be a duration such as 800ms, 10m or 30d, is %q", given)
	}
	*d = Duration(time.Duration(n) * day)
	return nil
}

// ID is the decimal identity of a person or a chat on Telegram; ids of groups are negative. A @username is not accepted, because it can be
// released and then taken by another account.
type ID int64

// String returns the decimal form.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// MarshalText returns the string of String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses a decimal id other than 0.
func (id *ID) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n == 0 {
		return identityError(s)
	}
	*id = ID(n)
	return nil
}

// identityError is a complete sentence: it is shown without the path.
type identityError string

func (s identityError) Error() string {
	return fmt.Sprintf("%q is not an identity; use the numeric id", string(s))
}

func parseSwitch(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "on", "yes", "1":
		return true, nil
	case "false", "off", "no", "0":
		return false, nil
	case "":
		return false, secret.ErrBlank
	default:
		return false, fmt.Errorf("must be true or false, is %q", s)
	}
}
