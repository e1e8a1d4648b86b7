package postgres_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// TestConnectionsWithoutWorkAreClosed checks that after a burst the store has only its control connections. The gateway adds the listener, a connection for its
// polls and those that are planned ahead.
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
