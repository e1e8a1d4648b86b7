package teste2e

import (
	"fmt"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// hundred is how many people write one message each, in a separate chat, so that Telegram's limit for a chat delays none of them.
const hundred = 100

func personOf(i int) int64    { return int64(1000 + i) }
func questionOf(i int) string { return fmt.Sprintf("question %03d.", i) }

// loadedChatroom is a chatroom whose bot answers many users; settings are additional lines below channels.telegram. It is not started.
func loadedChatroom(t *testing.T, database, settings string) *Chatroom {
	t.Helper()
	c := openChatroom(t, database, "    access: open\n"+settings, testtelegram.Config{Drafts: true})
	c.AtOnce()
	c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
	})
	for i := range hundred {
		c.Telegram.AddPrivate(personOf(i), fmt.Sprint("Person ", i))
	}
	return c
}

// ask lets every person write.
func (c *Chatroom) ask() {
	for i := range hundred {
		c.Telegram.Say(personOf(i), personOf(i), questionOf(i))
	}
}

// answered counts the answers to all users: how many people have none, how many have more than one, and the maximum.
func (c *Chatroom) answered() (missing, doubled, most int) {
	for i := range hundred {
		n := c.Count(personOf(i), questionOf(i))
		if n == 0 {
			missing++
		}
		if n > 1 {
			doubled++
		}
		most = max(most, n)
	}
	return missing, doubled, most
}

// wantAll waits until all hundred were answered and checks that each message became one turn.
func (c *Chatroom) wantAll() {
	c.t.Helper()
	c.Await("every person is answered", func() bool { missing, _, _ := c.answered(); return missing == 0 })
	c.rest()
	c.Await("every update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
	o := OpenOracle(c.t, c.Gateway, c.database)
	if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"); n != hundred {
		c.t.Errorf("%d messages have the outcome answered, want %d", n, hundred)
	}
	if n := o.Count("SELECT count(*) FROM inbox"); n != hundred {
		c.t.Errorf("%d messages are in the inbox, want %d", n, hundred)
	}
}

// restartsAndAnswersOnce starts the next process and checks that every person is answered once, by one turn. It returns how long that took.
func (c *Chatroom) restartsAndAnswersOnce() time.Duration {
	c.t.Helper()
	began := time.Now()
	c.Start()
	c.wantAll()
	_, doubled, _ := c.answered()
	if doubled != 0 || len(c.Model.Calls()) != hundred {
		c.t.Errorf("%d answers came twice, %d turns for %d messages", doubled, len(c.Model.Calls()), hundred)
	}
	return time.Since(began).Round(100 * time.Millisecond)
}

// A hundred messages were delivered and none is stored when the process is killed.
func TestAHundredMessagesOutliveAKillBeforeTheCommit(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "")
		c.Start()
		c.Await("a poll that waits", c.Telegram.Polling)
		release := c.lockDatabase(withTimeout(t, time.Minute))
		c.ask()
		c.Await("Telegram has handed messages over", func() bool { return !c.Telegram.Polling() })
		c.Kill()
		c.remember()
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM inbox"); n != 0 || len(c.Telegram.Pending()) != hundred {
			t.Errorf("%d rows, %d of %d unconfirmed when nothing could be stored", n, len(c.Telegram.Pending()), hundred)
		}
		release()
		t.Logf("lost 0, doubled 0 of %d; all answered %s after the start", hundred, c.restartsAndAnswersOnce())
		c.Close()
	})
}

// A hundred messages were stored and answered, and Telegram knows of none of that when the process is killed: it delivers all of them
// again.
func TestAHundredMessagesThatComeAgainAreKnown(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "")
		c.ask()
		c.Telegram.Break("getUpdates", append([]testtelegram.Fault{{Delay: time.Millisecond}}, hanging(100, testtelegram.Fault{Hang: true})...)...)
		c.Start()
		c.Await("every person is answered", func() bool { missing, _, _ := c.answered(); return missing == 0 })
		c.rest()
		if n := len(c.Telegram.Pending()); n != hundred {
			t.Fatalf("%d of %d are unconfirmed although no poll came through", n, hundred)
		}
		c.Kill()
		c.remember()
		c.Telegram.Mend()
		t.Logf("doubled turns 0, doubled answers 0 of %d; confirmed %s after the start", hundred, c.restartsAndAnswersOnce())
		c.Close()
	})
}

// A hundred models have answered and no end of a turn is stored when the process is killed: every turn runs again, once, and every person
// reads one answer.
func TestAHundredAnswersThatWereNotWrittenDownAreMadeAgain(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, fmt.Sprintf("lanes: {main: %d}\n", hundred))
		thinking := make(chan struct{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			<-thinking
			return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
		})
		c.Start()
		c.ask()
		ctx := withTimeout(t, time.Minute)
		if err := c.Model.WaitFor(ctx, hundred, hundred); err != nil {
			t.Fatal(err)
		}
		release := c.lockDatabase(ctx)
		close(thinking)
		if err := c.Model.WaitFor(ctx, hundred, 0); err != nil {
			t.Fatal(err)
		}
		c.Kill()
		c.dropWaiting(ctx)
		c.remember()
		o := OpenOracle(t, c.Gateway, database)
		if running, sent := o.Count("SELECT count(*) FROM runs WHERE state = 'running'"), o.Count("SELECT count(*) FROM outbox"); running != hundred || sent != 0 {
			t.Errorf("%d of %d turns are under way and %d answers are stored when nothing could be written", running, hundred, sent)
		}
		release()
		began := time.Now()
		c.Start()
		c.wantAll()
		_, doubled, _ := c.answered()
		again := len(c.Model.Calls()) - hundred
		if doubled != 0 || again != hundred {
			t.Errorf("%d answers came twice, %d of %d turns ran again", doubled, again, hundred)
		}
		for _, rows := range []string{
			"SELECT count(*) FROM runs", "SELECT count(*) FROM outbox WHERE state = 'delivered'", "SELECT count(*) FROM transcript WHERE role = 'assistant'", "SELECT count(*) FROM transcript WHERE role = 'user'",
		} {
			if n := o.Count(rows); n != hundred {
				t.Errorf("%s: %d, want %d", rows, n, hundred)
			}
		}
		t.Logf("lost 0, doubled 0 of %d; %d turns ran again, all answered %s after the start", hundred, again, time.Since(began).Round(100*time.Millisecond))
		c.Close()
	})
}

// The process is killed repeatedly while a hundred turns end and their answers are sent. Every person receives an answer, no message
// becomes two finished turns, and a kill duplicates at most one answer in a chat. There are two kills: a turn that is interrupted three
// times is abandoned.
func TestAHundredAnswersOutliveKillsWhileTheyGoOut(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "")
		c.Start()
		c.ask()
		began := time.Now()
		kills := 0
		for _, delivered := range []int{15, 60} {
			c.Await(fmt.Sprint(delivered, " answers"), func() bool { missing, _, _ := c.answered(); return hundred-missing >= delivered })
			c.Restart()
			kills++
		}
		c.wantAll()
		_, doubled, most := c.answered()
		if most > 1+kills {
			t.Errorf("a question was answered %d times after %d kills", most, kills)
		}
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM outbox WHERE maybe_sent = true"); n < doubled {
			t.Errorf("%d people got an answer again and %d answers are marked as possibly sent before", doubled, n)
		}
		again := len(c.Model.Calls()) - hundred
		t.Logf("%d kills: lost 0, %d of %d answers doubled (at most %d times one), %d turns run again, all delivered after %s",
			kills, doubled, hundred, most-1, again, time.Since(began).Round(100*time.Millisecond))
		c.Close()
	})
}
