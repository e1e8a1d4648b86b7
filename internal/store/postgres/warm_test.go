package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

// TestTurnConnectionsArePlannedBeforeUse checks that the first turns on a connection prepare and plan nothing.
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

// TestTheAddressSaysHowManyConnectionsArePlanned checks that pool_min_conns applies when the program sets no number.
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
