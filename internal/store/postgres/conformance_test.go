package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store/postgres"
	"laneway/internal/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	storetest.Run(t, newDatabases(t).harness)
}

func BenchmarkCron(b *testing.B) {
	storetest.BenchCron(b, newDatabases(b).harness, os.Getenv("LANEWAY_BENCH_LARGE") != "")
}

// open makes a store. In tests it plans no statement before its first use unless requested: the plans of four connections cost more than most tests.
func open(tb testing.TB, cfg postgres.Config) *postgres.Store {
	tb.Helper()
	if _, benchmark := tb.(*testing.B); !benchmark && cfg.WarmConns == 0 {
		cfg.WarmConns = -1
	}
	return openAsIs(tb, cfg)
}

// openAsIs is open with the default of WarmConns.
func openAsIs(tb testing.TB, cfg postgres.Config) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("opening the store: %v", err)
	}
	if _, benchmark := tb.(*testing.B); !benchmark {
		s.BoundSearch(2) // so that a few entries reach each step of a search
	}
	return s
}

func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(context.WithoutCancel(tb.Context()), url)
	if err != nil {
		tb.Fatalf("connecting: %v", err)
	}
	return conn
}

func query(tb testing.TB, url, sql string) [][]any {
	tb.Helper()
	conn := connect(tb, url)
	defer func() { _ = conn.Close(context.WithoutCancel(tb.Context())) }()
	return queryOn(tb, conn, sql)
}

func exec(tb testing.TB, url, sql string) {
	tb.Helper()
	conn := connect(tb, url)
	defer func() { _ = conn.Close(context.WithoutCancel(tb.Context())) }()
	execOn(tb, conn, sql)
}

func queryOn(tb testing.TB, conn *pgx.Conn, sql string, args ...any) [][]any {
	tb.Helper()
	rows, err := conn.Query(context.WithoutCancel(tb.Context()), sql, args...)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return list
}

func execOn(tb testing.TB, conn *pgx.Conn, sql string) {
	tb.Helper()
	if _, err := conn.Exec(context.WithoutCancel(tb.Context()), sql); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}
