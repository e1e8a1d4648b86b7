package sqlite

import (
	"testing"
	"time"

	"laneway/internal/store"
	"laneway/internal/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness)
}

// harness is a store in a directory of its own, and a separate connection to its tables.
func harness(tb testing.TB, now func() time.Time) storetest.Harness {
	tb.Helper()
	path := migrated(tb)
	s := reopen(tb, nil, path, now)
	tb.Cleanup(func() { // one for all handles: the suite uses the last one in a cleanup
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	below := outside(tb, path) // one for all statements of a test, because each new connection first parses the whole schema
	// Processes keep what they have read of a transcript, so no operation may change an entry.
	if _, err := below.Exec(`CREATE TRIGGER entries_are_final BEFORE UPDATE ON transcript
		BEGIN SELECT RAISE(ABORT, 'an entry of a transcript was changed'); END`); err != nil {
		tb.Fatal(err)
	}
	return storetest.Harness{
		Open: func() store.Store { return s },
		Reopen: func() store.Store {
			s = reopen(tb, s, path, now)
			return s
		},
		Query: func(tb testing.TB, text string, args ...any) [][]any {
			tb.Helper()
			return storetest.Query(tb, below, text, args...)
		},
		Exec: func(tb testing.TB, text string) {
			tb.Helper()
			if _, err := below.Exec(text); err != nil {
				tb.Fatalf("%s: %v", text, err)
			}
			s.gate.Changed() // the writer would notice it with its next transaction
		},
	}
}

func reopen(tb testing.TB, old *Store, path string, now func() time.Time) *Store {
	tb.Helper()
	if old != nil {
		if err := old.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := Open(tb.Context(), Config{Path: path, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	if _, benchmark := tb.(*testing.B); !benchmark {
		s.Recent, s.Loose = 2, 1 // so that a few entries reach each step of a search
	}
	return s
}
