package sqlstore

import (
	"encoding/json"
	"fmt"
)

// Set is the row set of a statement: rows with the columns that its text declares. A value is a string, an integer or a boolean.
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

// JSON is the row set as PostgreSQL gets it.
func (s *Statement) JSON(rows Set) (string, error) {
	list := make([]map[string]any, len(rows))
	for i, row := range rows {
		if len(row) != len(s.names) {
			return "", fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
		}
		list[i] = make(map[string]any, len(row))
		for c, v := range row {
			list[i][s.names[c]] = v
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", fmt.Errorf("encode a row set: %w", err)
	}
	return string(text), nil
}

// Parameters adds a row of the set to the plain arguments, for SQLite.
func (s *Statement) Parameters(plain, row []any) ([]any, error) {
	if len(row) != len(s.names) {
		return nil, fmt.Errorf("a row has %d values for the columns %v", len(row), s.names)
	}
	args := append(make([]any, 0, len(plain)+len(s.order)), plain...)
	for _, c := range s.order {
		args = append(args, row[c])
	}
	return args, nil
}
