package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// killroom is a chatroom for tests that kill the process in a certain moment: previews are drafts, so that a sendMessage is an answer.
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

// wantOnce holds that a text was answered, and by one turn.
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

// rest waits until every message has its outcome and everything that goes out is known to have arrived.
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

// TestKilledBetweenTheUpdateAndTheCommit kills the process while it fetches the file of a message: Telegram has handed the message over, no
// row has it yet. Everything is handled after the restart, nothing twice.
func TestKilledBetweenTheUpdateAndTheCommit(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.AddFile("doc", []byte("text"))
		c.Telegram.Break("file", testtelegram.Fault{Hang: true})
		document := testtelegram.With("document", map[string]any{"file_id": "doc", "file_unique_id": "u", "file_name": "a.txt", "mime_type": "text/plain", "file_size": 4})
		c.Telegram.Say(anna, anna, "", document, testtelegram.With("caption", "what is in the file?"))
		c.Await("the download", func() bool { return len(c.Telegram.Calls("file")) == 1 })
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM inbox"); n != 0 {
			t.Errorf("%d rows before the file is there", n)
		}
		c.Restart()
		c.wantOnce("what is in the file?")
		c.Await("the update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
		c.Close()
	})
}

// TestKilledBetweenTheCommitAndTheNextPoll kills the process when the message is stored and answered, and Telegram does not know that it
// was taken: it comes again and is known.
func TestKilledBetweenTheCommitAndTheNextPoll(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Await("a poll that waits", c.Telegram.Polling)
		c.Telegram.Break("getUpdates", hanging(100, testtelegram.Fault{Hang: true})...)
		c.Telegram.Say(anna, anna, "take me once")
		c.Says(anna, "take me once")
		c.rest()
		if len(c.Telegram.Pending()) != 1 {
			t.Fatal("the update was confirmed although no poll came through")
		}
		c.Kill()
		c.remember()
		c.Telegram.Mend()
		c.Start()
		c.Await("the update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
		c.wantOnce("take me once")
		if n := len(c.Model.Calls()); n != 1 {
			t.Errorf("the model was called %d times", n)
		}
		c.Close()
	})
}

// TestKilledBetweenTheModelsEndAndTheRecord kills the process when the model has answered and the database does not let it write that down: the
// turn runs again and is answered once.
func TestKilledBetweenTheModelsEndAndTheRecord(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		thinking := make(chan struct{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			<-thinking
			return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
		})
		c.Telegram.Say(anna, anna, "hard question")
		ctx := withTimeout(t, 60*time.Second)
		if err := c.Model.WaitFor(ctx, 1, 1); err != nil {
			t.Fatal(err)
		}
		release := c.lockDatabase(ctx)
		close(thinking)
		if err := c.Model.WaitFor(ctx, 1, 0); err != nil {
			t.Fatal(err)
		}
		c.Kill()
		c.dropWaiting(ctx)
		c.remember()
		release()
		c.Start()
		c.wantOnce("hard question")
		if n := len(c.Model.Calls()); n != 2 {
			t.Errorf("the model was called %d times, want its turn run again once", n)
		}
		c.Close()
	})
}

// dropWaiting ends the transactions of a killed process that wait for a lock: PostgreSQL has read them as a whole and would commit them when it is released.
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

// deadlockDetected is PostgreSQL's code for a transaction that it ended because two waited for each other.
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
	for { // a transaction of the gateway may have the tables in another order
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

// TestKilledBetweenTheRecordAndTheDelivery kills the process while Telegram keeps the answer waiting: it is sent after the restart.
func TestKilledBetweenTheRecordAndTheDelivery(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.Break("sendMessage", testtelegram.Fault{Hang: true})
		c.Telegram.Say(anna, anna, "send me later")
		c.Await("the sending", func() bool { return len(c.Telegram.Calls("sendMessage")) == 1 })
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM outbox WHERE kind = 'reply' AND state = 'sending'"); n != 1 {
			t.Errorf("%d answers are recorded and under way", n)
		}
		began := time.Now()
		c.Restart()
		c.wantOnce("send me later")
		t.Logf("delivered %s after the kill", time.Since(began).Round(time.Millisecond))
		c.Close()
	})
}

// TestKilledBetweenTelegramsAnswerAndTheMark kills the process when Telegram has shown the answer and the process does not know it: at
// most one double, and it is marked as possible.
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

// TestTelegramIsAwayAtTheStart starts the gateway while nothing of Telegram answers: everything else works at once, and the bot is there
// soon after it heals.
func TestTelegramIsAwayAtTheStart(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\n", testtelegram.Config{})
		c.Model.Answer(storyteller)
		c.Telegram.BreakAlways(testtelegram.Fault{HTML: 502})
		c.Start()
		ctx := withTimeout(t, time.Minute)
		if out, errs, code := c.CLI(ctx, "", "send", "hello"); !strings.Contains(out, "hello") || code != 0 {
			t.Errorf("send: %q %q", out, errs)
		}
		if code, body := c.Get("/readyz"); code != 200 {
			t.Errorf("/readyz: %d %s", code, body)
		}
		if out, errs, code := c.CLI(ctx, "", "cron", "add", "--every", "1s", "--name", "tick", "--message", "tick"); code != 0 {
			t.Fatalf("cron add: %q %q", out, errs)
		}
		oracle := OpenOracle(t, c.Gateway, database)
		testrun.Eventually(t, "cron fires as if nothing were", func() bool {
			return oracle.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") >= 3
		})
		testrun.Eventually(t, "status shows that the bot is not connected", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return strings.Contains(out, "telegram") && strings.Contains(out, "degraded")
		})
		c.Telegram.Say(anna, anna, "are you there?")
		c.Telegram.Mend()
		began := time.Now()
		c.Says(anna, "are you there?")
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("the bot came back after %s", took)
		}
		t.Logf("answered %s after Telegram healed", time.Since(began).Round(time.Millisecond))
		c.Close()
	})
}

// TestTwoProcessesShareOneBot runs two replicas on one database with one bot: one of them polls, and when it dies the other one does.
func TestTwoProcessesShareOneBot(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	c := openChatroom(t, testpg.DB(t), "    allow: [7]\n", testtelegram.Config{Drafts: true})
	c.Model.Answer(storyteller)
	c.Start()
	c.Await("the first poll", c.Telegram.Polling)
	other := c.install()
	other.Start()
	c.Telegram.Say(anna, anna, "one")
	c.Says(anna, "one")
	c.rest()
	c.Kill()
	c.remember()
	c.Telegram.Say(anna, anna, "two")
	c.Says(anna, "two")
	for _, text := range []string{"one", "two"} {
		if n := c.Count(anna, text); n != 1 {
			t.Errorf("%q was answered %d times", text, n)
		}
	}
	for _, call := range c.Telegram.Calls("getUpdates") {
		if call.Code == 409 {
			t.Error("two processes polled at once")
		}
	}
	c.Gateway = other
	c.Close()
}
