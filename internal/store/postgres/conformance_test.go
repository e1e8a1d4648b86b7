package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

func BenchmarkCron(b *testing.B) { storetest.BenchCron(b, newDatabases(b).harness) }

// databases lends empty databases to subtests and wipes what comes back: copying one for each of two hundred tests costs
// far more than the tests.
type databases struct {
	parent testing.TB
	mu     sync.Mutex
	free   []*database
}

// database is a database with one connection past the store: a connection for each statement of a test, most of which are invariants, costs the
// server more than the statements.
type database struct {
	url string

	mu   sync.Mutex // a connection serves one statement at a time
	conn *pgx.Conn
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
	d.parent.Cleanup(func() { _ = db.conn.Close(context.WithoutCancel(d.parent.Context())) })
	return db
}

func (d *databases) giveBack(tb testing.TB, db *database) {
	tb.Helper()
	db.wipe(tb)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, db)
}

// wipe empties every table but that of the migrations, in one transaction. Rows are deleted, because truncating costs a file for each table.
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

func (db *database) query(tb testing.TB, sql string) [][]any {
	tb.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	return queryOn(tb, db.conn, sql)
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
	db := d.take()
	handles := &handles{url: db.url, now: now}
	tb.Cleanup(func() {
		handles.closeAll(tb)
		d.giveBack(tb, db)
	})
	return storetest.Harness{
		Open:   func() store.Store { return handles.open(tb) },
		Reopen: func() store.Store { handles.closeAll(tb); return handles.open(tb) },
		Query:  db.query,
		Exec:   db.exec,
	}
}

type handles struct {
	url  string
	now  func() time.Time
	list []*postgres.Store
}

func (h *handles) open(tb testing.TB) store.Store {
	tb.Helper()
	s := open(tb, postgres.Config{URL: h.url, Now: h.now, MaxConns: 16, WarmConns: -1})
	h.list = append(h.list, s)
	return &remembering{Store: s}
}

// remembering gives back to an end what the start of its run has returned for it, as dispatch does; of each third end it does not, so that the suite
// runs over both ways.
type remembering struct {
	*postgres.Store

	begun sync.Map // by run
	ends  atomic.Int64
}

func (r *remembering) Start(ctx context.Context, p store.StartParams) (store.Started, error) {
	s, err := r.Store.Start(ctx, p)
	if s.Begun != nil {
		r.begun.Store(p.RunID, s.Begun)
	}
	return s, err
}

func (r *remembering) Finish(ctx context.Context, p store.FinishParams) (store.Finished, error) {
	if r.ends.Add(1)%3 != 0 {
		p.Begun, _ = r.begun.Load(p.RunID)
	}
	return r.Store.Finish(ctx, p)
}

func (h *handles) closeAll(tb testing.TB) {
	tb.Helper()
	for _, s := range h.list {
		if err := s.Close(); err != nil {
			tb.Errorf("closing a store: %v", err)
		}
	}
	h.list = nil
}

func open(tb testing.TB, cfg postgres.Config) *postgres.Store {
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

func queryOn(tb testing.TB, conn *pgx.Conn, sql string) [][]any {
	tb.Helper()
	rows, err := conn.Query(context.WithoutCancel(tb.Context()), sql)
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
