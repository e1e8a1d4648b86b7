package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"laneway/internal/chat"
)

// instant is a stored time; 0 and NULL (scanned as 0) are the zero time.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// millis is the stored form of t; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// wait is d in milliseconds, rounded up: a lease or window is never shorter than requested.
func wait(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// null stores the absence of a text as NULL, where queries ask for it.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// zero stores the absence of a number as NULL.
func zero(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// bit is a boolean as SQLite has it.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// sessionKey reads a key from a table; there it always has its prefix.
func sessionKey(s string) chat.SessionKey {
	rest, _ := strings.CutPrefix(s, "agent:")
	agent, rest, _ := strings.Cut(rest, ":")
	return chat.SessionKey{Agent: agent, Rest: rest}
}

// encode makes the JSON text of a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode for the database: %w", err)
	}
	return string(text), nil
}
