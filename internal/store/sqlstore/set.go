package sqlstore

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Set is the row set of a statement: rows with the columns that the statement declares. A value is a string, an integer or a boolean.
type Set [][]any

// HasSet reports whether the statement has a row set.
func (s *Statement) HasSet() bool { return s.names != nil }

// Split separates the plain arguments of a statement from its row set.
func (s *Statement) Split(args []any) (plain []any, rows Set, err error) {
	if !s.HasSet() {
		return args, nil, nil
	}
	if len(args) > 0 {
		if rows, ok := args[len(args)-1].(Set); ok {
			return args[:len(args)-1], rows, nil
		}
	}
	return nil, nil, fmt.Errorf("the last argument of a statement with a row set is not a Set: %s", s.SQL)
}

// JSON is the row set in the form for PostgreSQL; clean makes a string storable.
func (s *Statement) JSON(rows Set, clean func(string) string) ([]byte, error) {
	b := append(make([]byte, 0, 32*len(rows)*len(s.names)+2), '[')
	for i, row := range rows {
		if len(row) != len(s.names) {
			return nil, fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
		}
		if i > 0 {
			b = append(b, ',')
		}
		for c, v := range row {
			b = append(append(append(b, "{,"[min(c, 1)], '"'), s.names[c]...), `":`...)
			var err error
			if b, err = appendJSON(b, v, clean); err != nil {
				return nil, fmt.Errorf("encode a row set: %w", err)
			}
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// appendJSON appends a value. Most are numbers and plain words, which need no reflection.
func appendJSON(b []byte, v any, clean func(string) string) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		text := clean(v)
		if plain(text) {
			return append(append(append(b, '"'), text...), '"'), nil
		}
		quoted, err := json.Marshal(text)
		return append(b, quoted...), err
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// plain reports whether a string needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return true
}

// Parameters calls bind with the number and the value of each parameter of a row of the set, for SQLite. A statement without a set has no such parameters.
func (s *Statement) Parameters(row []any, bind func(n int, v any) error) error {
	if len(row) != len(s.names) {
		return fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
	}
	for i, c := range s.order {
		if err := bind(s.first+i, row[c]); err != nil {
			return err
		}
	}
	return nil
}
