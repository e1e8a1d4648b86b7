package sqlite

import (
	"encoding/json"
	"fmt"
	"time"
)

// instant is a stored time; 0 and NULL (scanned as 0) are the zero time.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// encode makes the JSON of a column.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode for the database: %w", err)
	}
	return string(text), nil
}
