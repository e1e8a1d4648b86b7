package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// killroom is a chatroom for tests that kill the process at a certain moment: previews are drafts, so that a sendMessage is an answer.
func killroom(t *testing.T, database string) *Chatroom {
	t.Helper()
	c := openChatroom(t, database, "    allow: [7, 8]\n", testtelegram.Config{Drafts: true})
	c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
	})
	c.Start()
	c.Await("the first poll", func() bool { return len(c.Telegram.Calls("getUpdates")) > 0 })
	return c
}

// wantOnce checks that a text was answered, and by one turn.
func (c *Chatroom) wantOnce(text string) {
	c.t.Helper()
	c.Says(anna, text)
	c.rest()
	if n := c.Count(anna, text); n != 1 {
		c.t.Errorf("%q was answered %d times: %q", text, n, c.Telegram.Texts(anna))
	}
	if n := OpenOracle(c.t, c.Gateway, c.database).Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"); n != 1 {
		c.t.Errorf("%d messages are answered", n)
	}
}

// rest waits until every message has its outcome and every outgoing message is known to have arrived.
func (c *Chatroom) rest() {
	c.t.Helper()
	oracle := OpenOracle(c.t, c.Gateway, c.database)
	testrun.Eventually(c.t, "every message has its outcome and was delivered", func() bool {
		return oracle.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 &&
			oracle.Count("SELECT count(*) FROM outbox WHERE state IN ('pending', 'sending')") == 0
	})
}

func hanging(n int, f testtelegram.Fault) []testtelegram.Fault {
	list := make([]testtelegram.Fault, n)
	for i := range list {
		list[i] = f
	}
	return list
}

// dropWaiting ends the transactions of a killed process that wait for a lock: PostgreSQL has received them completely and would commit them
// when the lock is released.
func (c *Chatroom) dropWaiting(ctx context.Context) {
	c.t.Helper()
	if c.database == "" {
		return
	}
	db, err := sql.Open("pgx", c.database)
	if err == nil {
		_, err = db.ExecContext(ctx, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	}
	if err := errors.Join(err, db.Close()); err != nil {
		c.t.Errorf("ending the transactions that wait: %v", err)
	}
}

// deadlockDetected is PostgreSQL's code for a transaction that it ended to resolve a deadlock.
const deadlockDetected = "40P01"

// lockDatabase refuses every write until release is called.
func (c *Chatroom) lockDatabase(ctx context.Context) (release func()) {
	c.t.Helper()
	driver, dsn, begin := "pgx", c.database, "LOCK TABLE runs, inbox, sessions IN EXCLUSIVE MODE"
	if c.database == "" {
		driver, dsn, begin = "sqlite", "file:"+c.SQLite()+"?_pragma=busy_timeout(20000)&_txlock=immediate", "SELECT 1"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	var tx *sql.Tx
	for { // a transaction of the gateway may lock the tables in another order
		if tx, err = db.BeginTx(ctx, nil); err == nil {
			_, err = tx.ExecContext(ctx, begin)
		}
		if err == nil {
			break
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != deadlockDetected {
			c.t.Fatalf("locking the database: %v", err)
		}
		if err := tx.Rollback(); err != nil {
			c.t.Fatalf("giving up a lock: %v", err)
		}
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			c.t.Errorf("unlocking the database: %v", err)
		}
		if err := db.Close(); err != nil {
			c.t.Errorf("closing the database: %v", err)
		}
	}
}

// The process is killed when Telegram has shown the answer and the process does not know that: the answer is repeated at most once, and
// marked as a possible repetition.
func TestKilledBetweenTelegramsAnswerAndTheMark(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		const kills = 3
		for i := range kills {
			text := fmt.Sprintf("number %d", i)
			c.Telegram.Break("sendMessage", testtelegram.Fault{After: true, Hang: true})
			c.Telegram.Say(anna, anna, text)
			c.Says(anna, text)
			c.Restart()
			c.Await("the second sending", func() bool { return c.Count(anna, text) == 2 })
		}
		c.rest()
		doubles := len(c.Telegram.Texts(anna)) - kills
		if doubles > kills {
			t.Errorf("%d doubles after %d kills", doubles, kills)
		}
		t.Logf("%d kills, %d doubles", kills, doubles)
		if n := len(c.Model.Calls()); n != kills {
			t.Errorf("the model was called %d times", n)
		}
		c.Close()
	})
}
