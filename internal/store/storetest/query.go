package storetest

import (
	"context"
	"database/sql"
	"testing"
)

// Query runs a SELECT and returns its rows, each with its columns in order. It also works in a cleanup of the test.
func Query(tb testing.TB, db *sql.DB, text string, args ...any) [][]any {
	tb.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(tb.Context()), text, args...)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		tb.Fatal(err)
	}
	var out [][]any
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			tb.Fatal(err)
		}
		out = append(out, values)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}
