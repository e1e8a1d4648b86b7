package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness)
}

// harness is a store in a directory of its own, with a way past it to the tables.
func harness(t testing.TB, now func() time.Time) storetest.Harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "laneway.db")
	s := reopen(t, nil, path, now)
	t.Cleanup(func() { // one for all handles: the suite uses the last one in a cleanup of its own
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return storetest.Harness{
		Open: func() store.Store { return s },
		Reopen: func() store.Store {
			s = reopen(t, s, path, now)
			return s
		},
		Query: func(t testing.TB, text string) [][]any { return query(t, outside(t, path), text) },
		Exec: func(t testing.TB, text string) {
			if _, err := outside(t, path).Exec(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		},
	}
}

func reopen(t testing.TB, old *Store, path string, now func() time.Time) *Store {
	t.Helper()
	if old != nil {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(t.Context(), Config{Path: path, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func query(t testing.TB, db *sql.DB, text string) [][]any {
	t.Helper()
	rows, err := db.Query(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]any
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		out = append(out, values)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
