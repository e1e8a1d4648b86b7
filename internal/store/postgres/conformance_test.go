package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/storetest"
	"laneway/internal/testpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// open makes a store. In tests it plans no statement before its first use unless requested: the
// plans of four connections cost more than most tests.
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

func TestCredentials(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	storetest.RunCredentials(t, newDatabases(t).harness)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	storetest.RunRecords(t, newDatabases(t).harness)
}

// BenchmarkSearch searches 1,000,000 messages on request, or the number in LANEWAY_BENCH_MESSAGES,
// else a few.
func BenchmarkSearch(b *testing.B) {
	messages := 2_000
	if os.Getenv("LANEWAY_BENCH_LARGE") != "" {
		messages = 1_000_000
	}
	if n, err := strconv.Atoi(os.Getenv("LANEWAY_BENCH_MESSAGES")); err == nil {
		messages = n
	}
	storetest.BenchSearch(b, newDatabases(b).harness, messages)
}

// databases provides empty databases to subtests and wipes returned ones: creating a copy for each
// of two hundred tests costs far more than the tests.
type databases struct {
	parent testing.TB
	mu     sync.Mutex
	free   []*database
}

// database is a database with one connection outside of the store: a connection for each statement
// of a test, most of which are invariants, costs the server more than the statements. For the same
// reason it keeps the stores of the previous test: the server needs some 20 ms of processor time
// for a new connection, which reads the catalog and plans each statement again.
type database struct {
	url string
	// kept are the idle stores by their clock: that of the server, or that of the tests.
	kept [2][]*keptStore

	mu   sync.Mutex // a connection serves one statement at a time
	conn *pgx.Conn
}

// keptStores is how many stores of each kind a database keeps; each has up to eighteen connections.
const keptStores = 1

// keptStore is a store that is reused by one test after the other.
type keptStore struct {
	*postgres.Store

	now atomic.Pointer[func() time.Time] // of the test that uses it
}

func newDatabases(tb testing.TB) *databases {
	tb.Helper()
	return &databases{parent: tb}
}

func (d *databases) take() *database {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.free); n > 0 {
		db := d.free[n-1]
		d.free = d.free[:n-1]
		return db
	}
	url := testpg.DB(d.parent)
	db := &database{url: url, conn: connect(d.parent, url)}
	db.exec(d.parent, "SET plan_cache_mode = force_generic_plan") // the queries after each test are planned once
	d.parent.Cleanup(func() {
		for _, list := range db.kept {
			closeAll(d.parent, list)
		}
		_ = db.conn.Close(context.WithoutCancel(d.parent.Context()))
	})
	return db
}

func (d *databases) giveBack(tb testing.TB, db *database) {
	tb.Helper()
	db.wipe(tb)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, db)
}

// wipe empties every table except that of the migrations, in one transaction. Rows are deleted,
// because truncating costs a file for each table.
func (db *database) wipe(tb testing.TB) {
	tb.Helper()
	var statements []string
	for _, row := range db.query(tb, "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'laneway_migrations'") {
		statements = append(statements, fmt.Sprintf("DELETE FROM %s", row[0]))
	}
	if len(statements) == 0 {
		tb.Fatal("there is no table to wipe")
	}
	db.exec(tb, strings.Join(statements, "; "))
}

func (db *database) query(tb testing.TB, sql string, args ...any) [][]any {
	tb.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	return queryOn(tb, db.conn, sql, args...)
}

func (db *database) exec(tb testing.TB, sql string) {
	tb.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	execOn(tb, db.conn, sql)
}

// harness gives the suite a database of its own.
func (d *databases) harness(tb testing.TB, now func() time.Time) storetest.Harness {
	tb.Helper()
	handles := &handles{db: d.take(), now: now}
	tb.Cleanup(func() {
		handles.keep(tb)
		closeAll(tb, handles.list)
		d.giveBack(tb, handles.db)
	})
	return storetest.Harness{
		Open:   func() store.Store { return handles.open(tb) },
		Reopen: func() store.Store { return handles.reopen(tb) },
		Query:  handles.db.query,
		Exec:   handles.db.exec,
	}
}

// handles are the stores of one test.
type handles struct {
	db   *database
	now  func() time.Time
	list []*keptStore
}

// kept are the stores of the database that use the clock of this test.
func (h *handles) kept() *[]*keptStore {
	if h.now == nil {
		return &h.db.kept[0]
	}
	return &h.db.kept[1]
}

// open takes a kept store of the database, or opens another one.
func (h *handles) open(tb testing.TB) store.Store {
	tb.Helper()
	var s *keptStore
	if kept := h.kept(); len(*kept) > 0 {
		s, *kept = (*kept)[0], (*kept)[1:]
		s.now.Store(&h.now)
	} else {
		s = openKept(tb, h.db.url, h.now)
	}
	h.list = append(h.list, s)
	return s.Store
}

func openKept(tb testing.TB, url string, now func() time.Time) *keptStore {
	tb.Helper()
	s := &keptStore{}
	s.now.Store(&now)
	cfg := postgres.Config{URL: url, MaxConns: 16, WarmConns: -1}
	if now != nil {
		cfg.Now = func() time.Time { return (*s.now.Load())() }
	}
	s.Store = open(tb, cfg)
	return s
}

// keep leaves the stores to the next test with this database, except those with a goroutine or
// state of the ending test.
func (h *handles) keep(tb testing.TB) {
	tb.Helper()
	h.list = slices.DeleteFunc(h.list, func(s *keptStore) bool {
		if tb.Failed() || !s.Unchanged() || len(*h.kept()) == keptStores {
			return false
		}
		*h.kept() = append(*h.kept(), s)
		return true
	})
}

// reopen is a restart: no store of the test continues.
func (h *handles) reopen(tb testing.TB) store.Store {
	tb.Helper()
	closeAll(tb, h.list)
	h.list = nil
	return h.open(tb)
}

func closeAll(tb testing.TB, list []*keptStore) {
	tb.Helper()
	for _, s := range list {
		if err := s.Close(); err != nil {
			tb.Errorf("closing a store: %v", err)
		}
	}
}
