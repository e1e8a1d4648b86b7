package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"laneway/internal/chat"
)

// instant is a column with a time in milliseconds; NULL and 0 are the zero time.
type instant struct{ to *time.Time }

var _ sql.Scanner = instant{}

// Scan implements sql.Scanner.
func (c instant) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		*c.to = time.Time{}
	case int64:
		*c.to = fromMillis(v)
	default:
		return fmt.Errorf("a time is stored as %T", v)
	}
	return nil
}

// SetMillis sets the time from a number.
func (c instant) SetMillis(ms int64) { *c.to = fromMillis(ms) }

// fromMillis is the time of a stored number; 0 is the zero time.
func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// millis is a time where the column has no NULL; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// keyColumn is a column with the key of a session.
type keyColumn struct{ to *chat.SessionKey }

// Scan implements sql.Scanner.
func (c keyColumn) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("a session key is stored as %T", v)
	}
	*c.to = parseKey(text)
	return nil
}

// parseKey is the inverse of chat.SessionKey.String. It does not validate: keys were checked before they were stored.
func parseKey(text string) chat.SessionKey {
	agent, rest, _ := strings.Cut(strings.TrimPrefix(text, "agent:"), ":")
	return chat.SessionKey{Agent: agent, Rest: rest}
}

// encode makes the JSON of a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T for the database: %w", v, err)
	}
	return string(text), nil
}

// jsonColumn is a column with JSON; an empty string leaves the zero value.
type jsonColumn struct{ to any }

// Scan implements sql.Scanner.
func (c jsonColumn) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("JSON is stored as %T", v)
	}
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), c.to); err != nil {
		return fmt.Errorf("decode stored JSON: %w", err)
	}
	return nil
}

// span is a duration in milliseconds, rounded up: a lease or window is never shorter than requested. A negative one is 0.
func span(d time.Duration) int64 {
	return max(int64((d+time.Millisecond-1)/time.Millisecond), 0)
}

// null stores an empty string as NULL, in columns whose queries test for NULL.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// zero stores 0 as NULL.
func zero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}
