package postgres_test

import (
	"context"
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
	storetest.Run(t, openHarness)
}

// openHarness gives the suite a database of its own.
func openHarness(t testing.TB, now func() time.Time) storetest.Harness {
	t.Helper()
	url := testpg.DB(t)
	handles := &handles{url: url, now: now}
	t.Cleanup(func() { handles.closeAll(t) })
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
	s := open(t, postgres.Config{URL: h.url, Now: h.now, MaxConns: 4})
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
