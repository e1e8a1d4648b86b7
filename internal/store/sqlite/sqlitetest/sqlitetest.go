// Package sqlitetest opens stores for the tests of other packages: the real [sqlite.Store] on a
// file of its own, as the product uses it, but cheap.
//
// The migrations run once per test process. Each store gets a copy of the file that they made, and
// its commits do not wait for the disk. So opening a store costs a few milliseconds, and an
// operation only the cost of its statements.
//
// A store may be used inside a testing/synctest bubble if it was opened there: its goroutines wait
// on channels of the bubble, so virtual time advances, and does not advance during work on the
// file. Its clock is the bubble's unless the configuration has another. Several nodes may share one
// store, as several processes share one PostgreSQL: each call names its node.
//
// The store is closed in a cleanup of the test, which runs inside the bubble. All users of the
// store must have ended by then.
//
//	synctest.Test(t, func(t *testing.T) {
//		st := sqlitetest.Open(t, sqlite.Config{})
//		…
//	})
package sqlitetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"laneway/internal/store/sqlite"
)

// template is the content of a database file with the newest schema and no rows.
var template = sync.OnceValues(func() (content []byte, err error) {
	dir, err := os.MkdirTemp("", "laneway-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "laneway.db")
	st, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Unsynced: true})
	if err != nil {
		return nil, err
	}
	if err := st.Close(); err != nil { // this copies the log into the file
		return nil, err
	}
	return os.ReadFile(path)
})

// Open opens an empty store that is closed at the end of the test. Its file is in a directory of
// its own unless cfg names a path, and Unsynced is set. A failure ends the test.
func Open(tb testing.TB, cfg sqlite.Config) *sqlite.Store {
	tb.Helper()
	content, err := template()
	if err != nil {
		tb.Fatalf("make the database template: %v", err)
	}
	if cfg.Unsynced = true; cfg.Path == "" {
		cfg.Path = filepath.Join(tb.TempDir(), "laneway.db")
	}
	if err := os.WriteFile(cfg.Path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	st, err := sqlite.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := st.Close(); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return st
}
