package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/store/sqlstore"
	"laneway/internal/store/storetest"
	"laneway/internal/testpg"
)

// trips records the statements of each round trip.
type trips struct {
	list [][]string
	now  []string
}

// TraceQueryStart implements pgx.QueryTracer.
func (r *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	r.list = append(r.list, []string{d.SQL})
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (r *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (r *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.now = nil
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (r *trips) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	r.now = append(r.now, d.SQL)
}

// TraceBatchEnd implements pgx.BatchTracer.
func (r *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	r.list = append(r.list, r.now)
}

func openTraced(t *testing.T) (*trips, sqlstore.Engine, string) {
	t.Helper()
	url, r := testpg.DB(t), &trips{}
	s := open(t, postgres.Traced(postgres.Config{URL: url, WarmConns: -1}, r))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	exec(t, url, `CREATE TABLE notes (n bigint)`)
	r.list = nil
	return r, s.Engine(), url
}

const addNote = `INSERT INTO notes VALUES ($1)`

// TestATransactionHasTheRoundTripsOfItsReads checks that BEGIN and COMMIT add no round trips, and that statements whose results are not needed immediately are
// sent with others.
func TestATransactionHasTheRoundTripsOfItsReads(t *testing.T) {
	t.Parallel()
	r, db, _ := openTraced(t)
	var sum, last int64
	err := db.Update(t.Context(), "add notes", func(ctx context.Context, tx sqlstore.Tx) error {
		err := errors.Join(tx.Later(ctx, addNote, nil, 1), tx.Later(ctx, addNote, nil, 2))
		if err == nil {
			err = tx.Query(ctx, `SELECT sum(n) FROM notes`, func(r sqlstore.Row) error { return r.Scan(&sum) })
		}
		if err == nil {
			err = tx.Later(ctx, `INSERT INTO notes VALUES ($1) RETURNING n`, func(r sqlstore.Row) error { return r.Scan(&last) }, sum)
		}
		return err
	})
	if err != nil || sum != 3 || last != 3 {
		t.Fatalf("the sum is %d and the last is %d, %v", sum, last, err)
	}
	want := [][]string{{"BEGIN", addNote, addNote, `SELECT sum(n) FROM notes`}, {`INSERT INTO notes VALUES ($1) RETURNING n`, "COMMIT"}}
	if !slices.EqualFunc(r.list, want, slices.Equal) {
		t.Errorf("round trips are %q, want %q", r.list, want)
	}
}

func TestAChangeWithoutAStatementHasNoTransaction(t *testing.T) {
	t.Parallel()
	r, db, _ := openTraced(t)
	if err := db.Update(t.Context(), "do nothing", func(context.Context, sqlstore.Tx) error { return nil }); err != nil || len(r.list) > 0 {
		t.Errorf("round trips are %q, %v, want none", r.list, err)
	}
}

// TestAFailedChangeLeavesNothing covers a refusal before and after statements were sent, a statement that fails at the end, and an ignored error.
func TestAFailedChangeLeavesNothing(t *testing.T) {
	t.Parallel()
	_, db, url := openTraced(t)
	refused := errors.New("refused")
	for name, change := range map[string]func(ctx context.Context, tx sqlstore.Tx) error{
		"refused before it is sent": func(ctx context.Context, tx sqlstore.Tx) error {
			return errors.Join(tx.Later(ctx, addNote, nil, 1), refused)
		},
		"refused later": func(ctx context.Context, tx sqlstore.Tx) error {
			_, err := tx.Exec(ctx, addNote, 1)
			return errors.Join(err, refused)
		},
		"a statement fails with the commit": func(ctx context.Context, tx sqlstore.Tx) error {
			return errors.Join(tx.Later(ctx, addNote, nil, 1), tx.Later(ctx, `SELECT 1 / $1::bigint`, nil, 0))
		},
		"an error is ignored": func(ctx context.Context, tx sqlstore.Tx) error {
			_, err := tx.Exec(ctx, addNote, 1)
			_, _ = tx.Exec(ctx, `SELECT 1 / $1::bigint`, 0)
			return err
		},
	} {
		if err := db.Update(t.Context(), name, change); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := query(t, url, `SELECT count(*) FROM notes`)[0][0]; got != int64(0) {
		t.Errorf("%v notes are left, want none", got)
	}
}

// TestAHeartbeatNamesTheHistoryOfTheDatabase checks the value by which a failover that loses commits is noticed.
func TestAHeartbeatNamesTheHistoryOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(t.Context(), store.Node{ID: "n"}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Heartbeat(t.Context(), "n", false)
	system := query(t, url, `SELECT system_identifier::text FROM pg_control_system()`)[0][0].(string)
	if err != nil || !strings.Contains(b.History, system) {
		t.Errorf("the history is %q, %v, want one of the system %s", b.History, err, system)
	}
}

// A principal that floods the store with lists takes one connection, and all principals together leave two.
func TestListsLeaveConnectionsToEverythingElse(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: testpg.DB(t), MaxConns: 10})
	storetest.ListsLeaveReaders(t, s.Engine(), 5)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
