package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/storetest"
	"laneway/internal/testpg"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, newDatabases(t).harness)
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, newDatabases(b).harness) }

// databases lends empty databases to subtests and wipes what comes back: copying one for each of two hundred tests costs
// far more than the tests.
type databases struct {
	parent testing.TB
	mu     sync.Mutex
	free   []string
}

func newDatabases(parent testing.TB) *databases { return &databases{parent: parent} }

func (d *databases) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		url := d.free[n-1]
		d.free = d.free[:n-1]
		return url
	}
	return testpg.DB(d.parent)
}

func (d *databases) giveBack(t testing.TB, url string) {
	t.Helper()
	for _, table := range []string{"audit_log", "cron_run_logs", "cron_jobs", "transcript", "outbox", "runs", "inbox", "graves", "sessions", "leases", "nodes"} {
		exec(t, url, "DELETE FROM "+table)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, url)
}

// harness gives the suite a database of its own.
func (d *databases) harness(t testing.TB, now func() time.Time) storetest.Harness {
	t.Helper()
	url := d.take()
	handles := &handles{url: url, now: now}
	t.Cleanup(func() {
		handles.closeAll(t)
		d.giveBack(t, url)
	})
	return storetest.Harness{
		Open:   func() store.Store { return handles.open(t) },
		Reopen: func() store.Store { handles.closeAll(t); return handles.open(t) },
		Query:  func(t testing.TB, sql string) [][]any { return query(t, url, sql) },
		Exec:   func(t testing.TB, sql string) { exec(t, url, sql) },
	}
}

type handles struct {
	url  string
	now  func() time.Time
	list []*postgres.Store
}

func (h *handles) open(t testing.TB) *postgres.Store {
	t.Helper()
	s := open(t, postgres.Config{URL: h.url, Now: h.now, MaxConns: 16})
	h.list = append(h.list, s)
	return s
}

func (h *handles) closeAll(t testing.TB) {
	t.Helper()
	for _, s := range h.list {
		if err := s.Close(); err != nil {
			t.Errorf("closing a store: %v", err)
		}
	}
	h.list = nil
}

func open(t testing.TB, cfg postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	return s
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return conn
}

func query(t testing.TB, url, sql string) [][]any {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	rows, err := conn.Query(context.WithoutCancel(t.Context()), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

func exec(t testing.TB, url, sql string) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
