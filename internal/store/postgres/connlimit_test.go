package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// limited is a database of a role with a limit of n connections: as the role and as the
// administrator.
func limited(t *testing.T, n int) (role, as, admin string) {
	t.Helper()
	role, admin = testpg.Role(t), testpg.DB(t)
	exec(t, admin, fmt.Sprintf(`ALTER ROLE %s CONNECTION LIMIT %d; GRANT ALL ON ALL TABLES IN SCHEMA public TO %s; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO %s`, role, n, role, role))
	return role, testpg.As(admin, role), admin
}

// TestAHeartbeatHasAConnectionWhenTheRoleHasFive keeps the pools busy, and closes every connection
// once, so that all of them connect at the same time.
func TestAHeartbeatHasAConnectionWhenTheRoleHasFive(t *testing.T) {
	t.Parallel()
	role, as, admin := limited(t, postgres.LeastConns)
	s := openAsIs(t, postgres.Config{URL: as, MaxConns: 16})
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 16)
	for w := range cap(ended) {
		go func() {
			key := chat.SessionKey{Agent: "main", Rest: fmt.Sprintf("w%d", w)}
			for i := 0; ctx.Err() == nil; i++ {
				if err := turn(ctx, s, "n", key, fmt.Sprintf("m-%d-%d", w, i)); err != nil && ctx.Err() == nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	beats := func(when string) {
		t.Helper()
		for range 5 {
			bound, done := context.WithTimeout(t.Context(), 30*time.Second)
			err := persist(bound, func() error { _, err := s.Heartbeat(bound, "n", false); return err })
			done()
			if err != nil {
				t.Fatalf("a heartbeat %s: %v", when, err)
			}
		}
		if err := s.Listen(t.Context()); err != nil {
			t.Fatalf("listening %s: %v", when, err)
		}
	}
	s.Wakeups("n", store.HintMessage)
	beats("under load")
	exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '`+role+`'`)
	beats("after all connections have ended")
	if n := query(t, admin, `SELECT count(*) FROM pg_stat_activity WHERE usename = '`+role+`'`)[0][0]; n.(int64) > postgres.LeastConns {
		t.Errorf("the role has %v connections", n)
	}
	cancel()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestARoleWithTooFewConnectionsIsRefused(t *testing.T) {
	t.Parallel()
	_, as, _ := limited(t, postgres.LeastConns-1)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: as})
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, chat.ErrStoreUnavailable) || !strings.Contains(err.Error(), "a gateway needs at least 5") {
		t.Fatalf("got %v", err)
	}
}

// TestConnectionsRecoverFromAReadOnlyDefault opens every connection while the database is read-only
// by default, as administrators set it to make a copy.
func TestConnectionsRecoverFromAReadOnlyDefault(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	s := open(t, postgres.Config{URL: url, MaxConns: 4})
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), store.Node{ID: "n", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	set := func(value string) {
		t.Helper()
		exec(t, url, `BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = `+value+`', current_database()); END $$; COMMIT`)
	}
	set("on")
	exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'laneway'`)
	for range 20 { // each connection of the pools starts a session
		_, err := s.Accept(t.Context(), message("n", chat.SessionKey{Agent: "main", Rest: "a"}, "m"))
		if !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("a read-only database accepted a message: %v", err)
		}
		if err := s.SetSession(t.Context(), chat.SessionKey{Agent: "main", Rest: "a"}, "ann", store.SessionSettings{Notes: map[string]string{"x": "y"}}); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("a read-only database kept a note: %v", err)
		}
		if err := s.Ping(t.Context()); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("a read-only database is ready: %v", err)
		}
		if _, err := s.Heartbeat(t.Context(), "n", false); !errors.Is(err, chat.ErrStoreUnavailable) {
			t.Fatalf("a read-only database took a heartbeat: %v", err)
		}
	}
	set("off")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for what, op := range map[string]func() error{
		"ready":     func() error { return s.Ping(ctx) },
		"heartbeat": func() error { _, err := s.Heartbeat(ctx, "n", false); return err },
		"note": func() error {
			return s.SetSession(ctx, chat.SessionKey{Agent: "main", Rest: "a"}, "ann", store.SessionSettings{Notes: map[string]string{"x": "y"}})
		},
		"turn": func() error { return turn(ctx, s, "n", chat.SessionKey{Agent: "main", Rest: "a"}, "m") },
	} {
		if err := persist(ctx, op); err != nil {
			t.Errorf("%s after the default was lifted: %v", what, err)
		}
	}
}

// TestConnectionsWithoutWorkAreClosed checks that after a burst the store has only its control
// connections. The gateway adds the listener, a connection for its polls and those that are planned
// ahead.
func TestConnectionsWithoutWorkAreClosed(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	usual := open(t, postgres.Config{URL: url})
	if err := usual.Close(); err != nil || usual.IdleTime() != 5*time.Minute {
		t.Errorf("a connection stays open for %s without use, want 5 minutes (%v)", usual.IdleTime(), err)
	}
	s := open(t, postgres.Config{URL: url + separator + "pool_max_conn_idle_time=10ms&pool_health_check_period=10ms"})
	defer func() { _ = s.Close() }()
	var burst errgroup.Group
	for range 8 {
		burst.Go(func() error {
			_, _, err := s.ListSessions(t.Context(), store.SessionFilter{Limit: 1})
			return err
		})
	}
	if err := burst.Wait(); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	testrun.Eventually(t, "the pools have closed their connections", func() bool {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'laneway'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n <= 2
	})
}

func TestReplicasTakeFromOneAllowance(t *testing.T) {
	t.Parallel()
	const perMinute = 600
	var now atomic.Int64
	now.Store(time.Date(2026, 3, 14, 9, 0, 0, 0, time.UTC).UnixMilli())
	h := newDatabases(t).harness(t, func() time.Time { return time.UnixMilli(now.Load()) })
	replicas := []store.Allowances{h.Open().(store.Allowances), h.Open().(store.Allowances)}
	take := func(s store.Allowances, n int) (int, time.Duration) {
		t.Helper()
		got, wait, err := s.TakeAllowance(t.Context(), "ann/chat", n, perMinute)
		if err != nil {
			t.Error(err)
		}
		return got, wait
	}
	var all sync.WaitGroup
	var total atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for got := 1; got > 0; {
				got, _ = take(replicas[i%2], 7)
				total.Add(int64(got))
			}
		})
	}
	all.Wait()
	if total.Load() != perMinute {
		t.Errorf("two replicas took %d calls of %d", total.Load(), perMinute)
	}
	if _, wait := take(replicas[0], 1); wait != 100*time.Millisecond {
		t.Errorf("the next call in %s, want in 100ms", wait)
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{99 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 10}, {-time.Minute, 0}, {61 * time.Second, 10}, {time.Hour, perMinute}} {
		now.Add(step.pass.Milliseconds())
		if got, _ := take(replicas[1], perMinute); got != step.want {
			t.Errorf("after %s: %d, want %d", step.pass, got, step.want)
		}
	}
	if got, _, err := replicas[0].TakeAllowance(t.Context(), "bob/chat", 5, perMinute); err != nil || got != 5 {
		t.Errorf("another principal's allowance: %d, %v", got, err)
	}
}

// No connection of a gateway waits without a limit, holds a lock without a limit, or stays idle in
// a transaction, whatever the defaults of the database are.
func TestEveryConnectionHasItsTimeLimits(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	want := map[string]string{"statement_timeout": "30s", "lock_timeout": "10s", "idle_in_transaction_session_timeout": "30s", "default_transaction_isolation": "read committed"}
	for name := range want {
		value := "0"
		if name == "default_transaction_isolation" {
			value = "serializable"
		}
		exec(t, url, fmt.Sprintf(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET %s = %s', current_database()); END $$`, name, value))
	}
	s := open(t, postgres.Config{URL: url, MaxConns: 6})
	defer func() { _ = s.Close() }()
	seen := map[string]int{}
	err := s.EachConnection(t.Context(), func(purpose string, conn *pgx.Conn) error {
		seen[purpose]++
		for name, value := range want {
			var got string
			if err := conn.QueryRow(t.Context(), "SHOW "+name).Scan(&got); err != nil {
				return err
			}
			if got != value {
				t.Errorf("a connection for %s has %s = %s, want %s", purpose, name, got, value)
			}
		}
		return nil
	})
	if err != nil || fmt.Sprint(seen) != "map[everything else:3 heartbeats:1 hints:1 stops:1 turns:3]" {
		t.Errorf("looked at %v, %v", seen, err)
	}
}

func TestRightsOfTheRoleAreRead(t *testing.T) {
	t.Parallel()
	role := testpg.Role(t)
	url := testpg.DB(t)
	as := testpg.As(url, role)
	exec(t, url, `CREATE TABLE of_another_role (n int); ALTER TABLE of_another_role OWNER TO pg_monitor; GRANT SELECT ON laneway_migrations TO `+role)
	look := func(as string) postgres.Rights {
		t.Helper()
		s := open(t, postgres.Config{URL: as})
		defer func() { _ = s.Close() }()
		r, err := s.Rights(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(url); !r.Superuser || !r.OwnsLog || !r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("the superuser: %+v", r)
	}
	r := look(as)
	if r.Role != role || r.Superuser || r.OwnsLog || r.ChangesLog || !slices.Contains(r.Lacks, "UPDATE on sessions") || !slices.Contains(r.Lacks, "INSERT on audit_log") ||
		slices.ContainsFunc(r.Lacks, func(s string) bool {
			return strings.Contains(s, "another_role") || strings.Contains(s, "migrations") || s == "DELETE on audit_log"
		}) {
		t.Errorf("without any right: %+v", r)
	}
	exec(t, url, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	if r := look(as); r.OwnsLog || !r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("with all rights on rows: %+v", r)
	}
	exec(t, url, `REVOKE UPDATE, DELETE ON audit_log FROM `+role)
	if r := look(as); r.ChangesLog || len(r.Lacks) > 0 {
		t.Errorf("with the rights that it needs: %+v", r)
	}
	exec(t, url, `ALTER TABLE audit_log OWNER TO `+role)
	if r := look(as); !r.OwnsLog || r.Superuser {
		t.Errorf("as the owner: %+v", r)
	}
}
