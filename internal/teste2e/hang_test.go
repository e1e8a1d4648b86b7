package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// lockOut holds the database of a gateway so that nothing can be written, until the returned function is called.
func lockOut(t *testing.T, g *Gateway, url string) (letGo func()) {
	t.Helper()
	driver, dsn, statements := "pgx", url, []string{"BEGIN", "LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE"}
	if url == "" {
		driver, dsn, statements = "sqlite", "file:"+g.SQLite()+"?_pragma=busy_timeout(10000)", []string{"BEGIN IMMEDIATE"}
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	for _, s := range statements {
		if err == nil {
			_, err = conn.ExecContext(context.Background(), s)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		_, err := conn.ExecContext(context.Background(), "ROLLBACK")
		if err := errors.Join(err, conn.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	}
}

// While the store hangs every call is answered within the deadline, as one that may be tried again; under the same key it is done once.
func TestACallIsAnsweredInTimeWhileTheStoreHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo}}\n").AtOnce()
		g.Start()
		c := connect(t, g)
		say := map[string]any{"sessionKey": "main", "message": "hello", "idempotencyKey": "said-once"}
		letGo := lockOut(t, g, database)
		began := time.Now()
		_, err := c.Call("chat.send", say, 60*time.Second)
		took := time.Since(began)
		var refused *WireError
		if !errors.As(err, &refused) || refused.Code != "UNAVAILABLE" || !refused.Retryable {
			t.Errorf("chat.send while the store hangs: %v, want UNAVAILABLE, retryable", err)
		}
		if took > 30*time.Second {
			t.Errorf("the answer came after %s, want 25 s at most", took)
		}
		if _, err := c.Call("health", nil, 20*time.Second); err != nil {
			t.Errorf("health while the store hangs: %v", err)
		}
		letGo()
		t.Logf("answered after %s: %v", took.Round(time.Millisecond), err)
		testrun.Eventually(t, "the message is taken", func() bool { _, err := c.Call("chat.send", say, 30*time.Second); return err == nil })
		oracle := OpenOracle(t, g, database)
		testrun.Eventually(t, "it has its outcome", func() bool { return oracle.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'") == 1 })
		if n := oracle.Count("SELECT count(*) FROM inbox"); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
		oracle.Check(15 * time.Second)
	})
}
