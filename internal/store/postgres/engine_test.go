package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
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

// TestATransactionHasTheRoundTripsOfItsReads checks that BEGIN and COMMIT add no round trips, and
// that statements whose results are not needed immediately are sent with others.
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

// TestAFailedChangeLeavesNothing covers a refusal before and after statements were sent, a
// statement that fails at the end, and an ignored error.
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

// TestAHeartbeatNamesTheHistoryOfTheDatabase checks the value by which a failover that loses
// commits is noticed.
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

// A principal that floods the store with lists takes one connection, and all principals together
// leave two.
func TestListsLeaveConnectionsToEverythingElse(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: testpg.DB(t), MaxConns: 10})
	storetest.ListsLeaveReaders(t, s.Engine(), 5)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestPollsOfAnIdleReplicaShareOneStatement checks that the polls of a second are one statement,
// that the next poll sees a change of this process, and that one of another replica is seen within
// the second.
func TestPollsOfAnIdleReplicaShareOneStatement(t *testing.T) {
	t.Parallel()
	url, r := testpg.DB(t), &trips{}
	s := open(t, postgres.Traced(postgres.Config{URL: url, WarmConns: -1}, r))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	found := 0
	look := func() {
		t.Helper()
		out, err := s.ClaimOutgoing(t.Context(), store.ClaimOutgoingParams{Node: "n", Channels: []string{"web"}, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		found += len(out)
	}
	polls := func() {
		t.Helper()
		if _, err := s.Sweep(t.Context(), store.SweepParams{Node: "n", Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fronts(t.Context(), store.FrontsParams{Node: "n", Limit: 10}); err != nil {
			t.Fatal(err)
		}
		look()
	}
	polls()
	r.list = nil
	for range 20 {
		polls()
	}
	if len(r.list) > 3 { // a slow machine may need more than a second
		t.Errorf("twenty rounds of polls were %d round trips: %q", len(r.list), r.list)
	}
	send := func(ctx context.Context, s *postgres.Store) {
		t.Helper()
		o := store.Outgoing{Kind: store.KindNotice, Text: "now", Target: chat.Target{Channel: "web", ChatID: "1"}}
		if err := s.Enqueue(ctx, []store.Outgoing{o}); err != nil {
			t.Fatal(err)
		}
	}
	send(t.Context(), s)
	if look(); found != 1 {
		t.Errorf("the next poll found %d rows, want the one that this process has added", found)
	}
	exec(t, url, `UPDATE outbox SET state = 'delivered', done_at = 1`)
	other := open(t, postgres.Config{URL: url, WarmConns: -1})
	polls()
	send(t.Context(), other)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(3 * time.Second); found < 2 && time.Now().Before(end); {
		look()
		<-again.C
	}
	if found != 2 {
		t.Errorf("the polls of three seconds found %d rows, want that of another replica too", found)
	}
}

// TestTurnConnectionsArePlannedBeforeUse checks that the first turns on a connection prepare and
// plan nothing.
func TestTurnConnectionsArePlannedBeforeUse(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := openAsIs(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	check := func(what string) {
		err := s.EachConnection(t.Context(), func(purpose string, conn *pgx.Conn) error {
			if purpose != "turns" {
				return nil
			}
			row := queryOn(t, conn, `SELECT count(*) FILTER (WHERE generic_plans > 0), count(*) - count(DISTINCT statement) FROM pg_prepared_statements`)[0]
			if planned, double := row[0], row[1]; planned.(int64) < postgres.TurnStatements() || double != int64(0) {
				t.Errorf("%s: a connection has %v planned statements of %d, and %v texts twice", what, planned, postgres.TurnStatements(), double)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check("before use")
	if err := s.Register(t.Context(), store.Node{ID: "n1", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := talk(t.Context(), s, chat.SessionKey{Agent: "main", Rest: "a"}, "m-1"); err != nil {
		t.Fatal(err)
	}
	addJobs(t, url, 1)
	for _, l := range claimAll(t, s) {
		if err := fire(t, s, l); err != nil {
			t.Fatal(err)
		}
	}
	check("after a turn and a fire")
}

// TestTheAddressSaysHowManyConnectionsArePlanned checks that pool_min_conns applies when the
// program sets no number.
func TestTheAddressSaysHowManyConnectionsArePlanned(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	for _, c := range []struct {
		parameter string
		asked     int
		want      int
	}{{"", 0, 4}, {"pool_min_conns=1", 0, 1}, {"pool_min_conns=0", 0, 0}, {"pool_min_conns=0", 3, 3}, {"", -1, 0}, {"pool_min_conns=1", 3, 3}, {"pool_min_conns=100", 0, 8}} {
		s := openAsIs(t, postgres.Config{URL: url + separator + c.parameter, WarmConns: c.asked})
		got := s.WarmConns()
		if err := s.Close(); err != nil || got != c.want {
			t.Errorf("%q, %d asked for: %d connections are planned before use, want %d (%v)", c.parameter, c.asked, got, c.want, err)
		}
	}
}
