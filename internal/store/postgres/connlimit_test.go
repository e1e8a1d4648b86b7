package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// limited is a database of a role with a limit of n connections: as the role and as the administrator.
func limited(t *testing.T, n int) (role, as, admin string) {
	t.Helper()
	role, admin = testpg.Role(t), testpg.DB(t)
	exec(t, admin, fmt.Sprintf(`ALTER ROLE %s CONNECTION LIMIT %d; GRANT ALL ON ALL TABLES IN SCHEMA public TO %s; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO %s`, role, n, role, role))
	return role, testpg.As(admin, role), admin
}

// TestAHeartbeatHasAConnectionWhenTheRoleHasFive keeps the pools busy, and closes every connection once, so that all of them connect at the same time.
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

// TestConnectionsRecoverFromAReadOnlyDefault opens every connection while the database is read-only by default, as administrators set it to make a copy.
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
