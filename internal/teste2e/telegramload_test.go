package teste2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// hundred is how many people write one message each, in a separate chat, so that Telegram's limit
// for a chat delays none of them.
const hundred = 100

func personOf(i int) int64    { return int64(1000 + i) }
func questionOf(i int) string { return fmt.Sprintf("question %03d.", i) }

// loadedChatroom is a chatroom whose bot answers many users; settings are additional lines below
// channels.telegram. It is not started.
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

// answered counts the answers to all users: how many people have none, how many have more than one,
// and the maximum.
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

// restartsAndAnswersOnce starts the next process and checks that every person is answered once, by
// one turn. It returns how long that took.
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

// A hundred messages were stored and answered, and Telegram knows of none of that when the process
// is killed: it delivers all of them again.
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

// A hundred models have answered and no end of a turn is stored when the process is killed: every
// turn runs again, once, and every person reads one answer.
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

// The process is killed repeatedly while a hundred turns end and their answers are sent. Every
// person receives an answer, no message becomes two finished turns, and a kill duplicates at most
// one answer in a chat. There are two kills: a turn that is interrupted three times is abandoned.
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

// allowed is how many messages of one user are accepted since a moment, when so many a minute are.
func allowed(aMinute int, since time.Time) int {
	return aMinute + int(time.Since(since).Minutes()*float64(aMinute)) + 1
}

// A hundred people have written while the bot was unavailable. Their messages arrive in one poll
// and wait for no common row: a few transactions store them. A message that waits for a row of the
// bot would need a separate transaction.
func TestMessagesOfOnePollShareTransactions(t *testing.T) {
	t.Parallel()
	c := loadedChatroom(t, testpg.DB(t), "lanes: {main: 1}\n")
	answer := make(chan struct{})
	c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
		<-answer // the other rows are unchanged since the insert
		return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
	})
	c.ask()
	c.Start()
	o := OpenOracle(t, c.Gateway, c.database)
	testrun.Eventually(t, "all are accepted, and one turn runs", func() bool {
		return o.Count("SELECT count(*) FROM inbox WHERE state = 'waiting'") == hundred-1
	})
	n := o.Count("SELECT count(DISTINCT xmin::text) FROM inbox WHERE state = 'waiting'")
	t.Logf("figure: %d transactions for %d messages", n, hundred-1)
	if n > hundred/2 {
		t.Errorf("%d transactions stored %d messages of one poll", n, hundred-1)
	}
	close(answer)
	c.wantAll()
	c.Close()
}

const webhookSecret = "a-secret-of-the-webhook-0123456789-abc"

// An update is delivered to the gateway as by Telegram, and one with another secret, which leaves
// no row.
func TestAWebhookIsReachedUnderTheNameThatTelegramWasGiven(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n    mode: webhook\n    webhook_url: https://bot.example.org/telegram/webhook/default\n"+
			"    webhook_secret: "+webhookSecret+"\n", testtelegram.Config{Drafts: true})
		c.Model.Answer(storyteller)
		c.Start()
		c.Await("the webhook is registered", func() bool { return len(c.Telegram.Calls("setWebhook")) == 1 })
		deliver := func(secret string, update map[string]any) int {
			t.Helper()
			update["update_id"] = 10
			raw, err := json.Marshal(update)
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL()+"/telegram/webhook/default", bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "bot.example.org" // a name that is valid for no other route
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
			status, _ := roundTrip(t, r)
			return status
		}
		if status := deliver(webhookSecret+"x", c.Telegram.Message(anna, anna, "unknown")); status != http.StatusUnauthorized {
			t.Errorf("with another secret: %d", status)
		}
		hello := c.Telegram.Message(anna, anna, "hello")
		testrun.Eventually(t, "the update is taken", func() bool { // Telegram repeats one that a busy gateway refuses
			status := deliver(webhookSecret, hello)
			if status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Fatalf("a delivery: %d", status)
			}
			return status == http.StatusOK
		})
		c.Says(anna, "hello")
		c.rest()
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM inbox"); n != 1 {
			t.Errorf("%d messages of one update", n)
		}
		c.Close()
	})
}

// The agent answers with a sentence and creates a picture and a text. Both have the right magic
// bytes.
const drawing = `#!/bin/sh
read -r question
printf '\211PNG\r\n\032\na chart of %s' "$question" >"$LANEWAY_OUTPUT_DIR/chart.png"
echo "the numbers of $question" >"$LANEWAY_OUTPUT_DIR/notes.txt"
echo "Here is the chart of $question."
`

// drawn is what Anna sees of one answer, and the files with their content.
func drawn(question string) []string {
	return []string{"Here is the chart of " + question + ".", "sendPhoto chart.png: \x89PNG\r\n\x1a\na chart of " + question, "sendDocument notes.txt: the numbers of " + question + "\n"}
}

// seen returns the content of a chat, files as METHOD NAME: CONTENT.
func (c *Chatroom) seen(chat int64) []string {
	var out []string
	for _, m := range c.Telegram.Messages(chat) {
		if m.File == nil {
			out = append(out, m.Text)
		} else {
			out = append(out, m.File.Method+" "+m.File.Name+": "+string(m.File.Content))
		}
	}
	return out
}

// wantSeen waits until everything is known to have arrived, and checks the content of a chat.
func (c *Chatroom) wantSeen(chat int64, want []string) {
	c.t.Helper()
	c.Await("all of the answer", func() bool { return len(c.seen(chat)) >= len(want) })
	c.rest()
	if got := c.seen(chat); !slices.Equal(got, want) {
		c.t.Errorf("shown are %q, want %q", got, want)
	}
}

// A chart is requested three times: undisturbed, with a kill while the second file waits for
// Telegram, and with a kill when Telegram has it and the process does not know. The sentence comes
// first, then the picture, then the text; only the one in flight may be duplicated.
func TestFilesReachThePersonOnceAcrossKills(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		script := filepath.Join(t.TempDir(), "draw.sh")
		if err := os.WriteFile(script, []byte(drawing), 0o700); err != nil {
			t.Fatal(err)
		}
		c := openChatroomOf(t, database, "{runner: command, command: ["+script+"]}", "    allow: [7]\n", testtelegram.Config{Drafts: true})
		c.Start()
		uploads := func(n int) func() bool {
			return func() bool { return len(c.Telegram.Calls("sendDocument")) == n }
		}

		c.Telegram.Say(anna, anna, "apples")
		want := drawn("apples")
		c.wantSeen(anna, want)

		c.Telegram.Break("sendDocument", testtelegram.Fault{Hang: true})
		c.Telegram.Say(anna, anna, "pears")
		c.Await("the second file is on its way", uploads(2))
		c.Restart()
		want = append(want, drawn("pears")...)
		c.wantSeen(anna, want)

		c.Telegram.Break("sendDocument", testtelegram.Fault{After: true, Hang: true})
		c.Telegram.Say(anna, anna, "plums")
		plums := drawn("plums")
		want = append(want, plums...)
		c.Await("the second file is shown", func() bool { return len(c.seen(anna)) == len(want) })
		c.Restart()
		want = append(want, plums[2])
		c.wantSeen(anna, want)

		o := OpenOracle(t, c.Gateway, database)
		if rows, again := o.Count("SELECT count(*) FROM outbox WHERE kind = 'reply' AND state = 'delivered'"), o.Count("SELECT count(*) FROM outbox WHERE maybe_sent = true"); rows != 9 || again != 2 {
			t.Errorf("%d outgoing messages were delivered and %d marked as possibly sent before, want 9 and 2", rows, again)
		}
		if n := o.Count("SELECT count(*) FROM transcript WHERE role = 'assistant'"); n != 3 {
			t.Errorf("the agent answered %d times", n)
		}
		for _, file := range c.attachments() { // turns leave nothing behind
			if strings.Contains(file, "/turns/") {
				t.Errorf("left is %s", file)
			}
		}
		c.Close()
	})
}
