package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// killroom is a chatroom for tests that kill the process at a certain moment: previews are drafts,
// so that a sendMessage is an answer.
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

// rest waits until every message has its outcome and every outgoing message is known to have
// arrived.
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

// dropWaiting ends the transactions of a killed process that wait for a lock: PostgreSQL has
// received them completely and would commit them when the lock is released.
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

// The process is killed when Telegram has shown the answer and the process does not know that: the
// answer is repeated at most once, and marked as a possible repetition.
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

// fleet is the replicas of one bot, and the questions of their people.
type fleet struct {
	*Chatroom
	replicas []*Gateway
	chat     func(i int) int64 // where question i is asked
	asked    int
}

func numberedQuestion(i int) string { return fmt.Sprintf("message %04d.", i) }

// groupOf is the group of a person.
func groupOf(i int) int64 { return -1_000_000 - personOf(i) }

// openFleet starts two replicas on PostgreSQL, the one process on SQLite. People write in private
// chats if drafts are on, else every second one in a group of its own: there the unfinished answers
// are messages.
func openFleet(t *testing.T, database string, drafts bool) *fleet {
	t.Helper()
	settings := "    access: open\n"
	if !drafts {
		settings += "    members: any\n    activation: always\n    groups: ["
		for i := range hundred {
			settings += fmt.Sprint(groupOf(i), ", ") //nolint:perfsprint // a hundred numbers
		}
		settings = strings.TrimSuffix(settings, ", ") + "]\n"
	}
	f := &fleet{Chatroom: openChatroom(t, database, settings+"drain_timeout: 10s\n", testtelegram.Config{Drafts: drafts})}
	f.Model.Answer(func(call testmodel.Call) testmodel.Reply {
		return testmodel.Reply{Pieces: []string{"You said: ", call.Last()}, Pause: time.Millisecond}
	})
	for i := range hundred {
		f.Telegram.AddPrivate(personOf(i), fmt.Sprint("Person ", i))
		f.Telegram.AddGroup(groupOf(i), fmt.Sprint("Group ", i))
	}
	f.chat = func(i int) int64 {
		if !drafts && i%2 == 1 {
			return groupOf(i % hundred)
		}
		return personOf(i % hundred)
	}
	f.replicas = []*Gateway{f.AtOnce()}
	if database != "" {
		f.replicas = append(f.replicas, f.install().AtOnce())
	}
	for _, g := range f.replicas {
		g.Start()
	}
	f.Await("a poll that waits", f.Telegram.Polling)
	return f
}

// ask lets the next people write, and waits until answers are being sent to Telegram, which is
// slow.
func (f *fleet) ask(messages int) {
	f.t.Helper()
	before := len(f.Telegram.Calls("sendMessage"))
	f.Telegram.Break("sendMessage", slices.Repeat([]testtelegram.Fault{{Delay: 2500 * time.Millisecond}}, messages)...)
	for range messages {
		f.Telegram.Say(f.chat(f.asked), personOf(f.asked%hundred), numberedQuestion(f.asked))
		f.asked++
	}
	f.Await("answers are on the wire", func() bool {
		return slices.ContainsFunc(f.Telegram.Calls("sendMessage")[before:], func(c testtelegram.Call) bool { return c.Code == 0 })
	})
}

// unanswered returns how many questions have no complete answer; doubled are those that have
// several, and most is the number of additional answers of one chat.
func (f *fleet) unanswered() (missing int, doubled []string, most int) {
	further := map[int64]int{}
	for i := range f.asked {
		n := f.Count(f.chat(i), numberedQuestion(i))
		if n == 0 {
			missing++
		}
		if n > 1 {
			doubled = append(doubled, numberedQuestion(i))
			further[f.chat(i)] += n - 1
			most = max(most, further[f.chat(i)])
		}
	}
	return missing, doubled, most
}

// settle waits until every question has its outcome, and checks that each has its answer, unless
// three processes ended during its turn: then it is parked. It returns how many are.
func (f *fleet) settle() (parked int) {
	f.t.Helper()
	o := OpenOracle(f.t, f.Gateway, f.database)
	testrun.Eventually(f.t, "every question was received", func() bool { return o.Count("SELECT count(*) FROM inbox") == f.asked })
	f.rest()
	missing, _, _ := f.unanswered()
	parked = o.Count("SELECT count(*) FROM inbox i JOIN runs r ON r.id = i.run_id WHERE i.outcome = 'dead' AND r.crashes >= 3")
	if missing != parked {
		f.t.Errorf("%d of %d questions have no answer, and %d are parked: %q", missing, f.asked, parked,
			o.Rows("SELECT session_key, outcome, reason FROM inbox WHERE outcome <> 'answered'"))
	}
	return parked
}

// interruptions returns how often a replica is ended during the traffic, and how many messages
// people write before each time.
func interruptions(t *testing.T, usual int) (times, messages int) {
	t.Helper()
	times = testrun.Size(usual, 20)
	return times, max(1, testrun.Size(25*times, 500)/times)
}

// The replicas restart one after the other during the traffic: a provider that answers within the
// drain timeout shows each answer once.
func TestRollingRestartsSendEveryTelegramAnswerOnce(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		f := openFleet(t, database, true)
		restarts := f.roll()
		_, doubled, _ := f.unanswered()
		o := OpenOracle(t, f.Gateway, database)
		t.Logf("%d restarts, %d messages: lost 0, duplicated %d, resent %d, maybe sent %d", restarts, f.asked, len(doubled),
			o.Count("SELECT count(*) FROM outbox WHERE maybe_sent = true AND state = 'delivered'"), o.Count("SELECT count(*) FROM outbox WHERE state = 'maybe_sent'"))
		if len(doubled) > 0 {
			t.Errorf("%d of %d messages were answered more than once: %q", len(doubled), f.asked, doubled)
		}
		if n := o.Count("SELECT count(*) FROM outbox WHERE state = 'maybe_sent'"); n != 0 {
			t.Errorf("%d answers ended as maybe_sent although Telegram answered in time", n)
		}
		f.Close()
	})
}

// roll restarts the replicas one after the other during the traffic, and returns how often.
func (f *fleet) roll() (restarts int) {
	f.t.Helper()
	restarts, messages := interruptions(f.t, 4)
	for i := range restarts {
		f.ask(messages)
		g := f.replicas[i%len(f.replicas)]
		g.Signal(syscall.SIGTERM)
		if took, code := g.WaitExit(13 * time.Second); code != 0 {
			f.t.Errorf("restart %d: exit code %d after %s\n%s", i, code, took, tail(g.Output()))
		}
		f.spoken = append(f.spoken, g.Output())
		g.Start()
	}
	f.settle()
	return restarts
}

// The same where answers grow as messages, in groups and in private chats without drafts: no part
// of an answer stays beside it.
func TestRollingRestartsLeaveOneMessageWithoutDrafts(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		f := openFleet(t, database, false)
		restarts := f.roll()
		doubled := 0
		for i := range min(f.asked, hundred) {
			asked := (f.asked - i + hundred - 1) / hundred
			if texts := f.Telegram.Texts(f.chat(i)); len(texts) != asked {
				doubled += len(texts) - asked
				t.Errorf("%d questions, but the chat shows %q", asked, texts)
			}
		}
		t.Logf("%d restarts, %d messages: %d doubled", restarts, f.asked, doubled)
		f.Close()
	})
}

// The same with SIGKILL: a request in transit may be repeated, at most once in a chat for each
// kill, and is marked.
func TestKilledReplicasRepeatAtMostTheRequestOnTheWire(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		f := openFleet(t, database, true)
		kills, messages := interruptions(t, 3)
		for i := range kills {
			f.ask(messages)
			g := f.replicas[i%len(f.replicas)]
			g.Kill()
			f.spoken = append(f.spoken, g.Output())
			g.Start()
		}
		parked := f.settle()
		_, doubled, most := f.unanswered()
		marked := OpenOracle(t, f.Gateway, database).Count("SELECT count(*) FROM outbox WHERE maybe_sent = true")
		t.Logf("%d kills, %d messages: lost 0, parked %d, duplicated %d, marked as possibly sent before %d, most in one chat %d",
			kills, f.asked, parked, len(doubled), marked, most)
		if most > kills {
			t.Errorf("%d further answers in one chat after %d kills", most, kills)
		}
		f.Close()
	})
}

// passing returns n calls without a fault, to be put between the faults of a queue.
func passing(n int) []testtelegram.Fault {
	return hanging(n, testtelegram.Fault{Delay: time.Millisecond})
}

// wantOrder checks that every sender received the answers to its messages once each, in the order
// of the messages.
func (c *Chatroom) wantOrder(people, messages int) {
	c.t.Helper()
	for i := range people {
		var got []string
		for _, text := range c.Telegram.Texts(personOf(i)) {
			if rest, ok := strings.CutPrefix(text, "You said: "); ok {
				got = append(got, strings.Split(rest, "\n")...)
			}
		}
		want := make([]string, messages)
		for m := range want {
			want[m] = fmt.Sprintf("message %d of %d.", m, i)
		}
		if !slices.Equal(got, want) {
			c.t.Errorf("person %d reads %q, want %q", i, got, want)
		}
	}
}

// A fifth of all sends is refused with a time to wait. Nothing is lost or duplicated, every chat
// keeps its order, and the server receives no call during such a time (Close checks).
func TestAFifthOfTheSendsIsFlooded(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "    queue: {debounce_ms: 0}\n")
		const people, messages = 10, 4
		for i := range 40 {
			c.Telegram.Break("sendMessage", append(passing(4), testtelegram.Flood(1+i%3))...)
		}
		c.Start()
		began := time.Now()
		for m := range messages {
			for i := range people {
				c.Telegram.Say(personOf(i), personOf(i), fmt.Sprintf("message %d of %d.", m, i))
			}
		}
		c.Await("every person is answered", func() bool {
			for i := range people {
				if c.Count(personOf(i), fmt.Sprintf("message %d of %d.", messages-1, i)) == 0 {
					return false
				}
			}
			return true
		})
		c.rest()
		c.wantOrder(people, messages)
		floods := 0
		for _, call := range c.Telegram.Calls("sendMessage") {
			if call.Code == 429 {
				floods++
			}
		}
		if floods < 3 {
			t.Errorf("only %d sends were flooded", floods)
		}
		t.Logf("%d messages answered through %d floods in %s", people*messages, floods, time.Since(began).Round(time.Millisecond))
		c.Close()
	})
}

// Another process polls with the same token for a while. The state shows that; the bot stops
// polling and starts again when it can.
func TestASecondPollerIsOutlived(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.Break("getUpdates", hanging(1, testtelegram.Refuse(409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"))...)
		c.Telegram.OtherPoller()
		ctx := withTimeout(t, 2*time.Minute)
		testrun.Eventually(t, "status says that another program polls", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return strings.Contains(out, "conflict")
		})
		c.Telegram.Say(anna, anna, "who has you?")
		began := time.Now()
		c.wantOnce("who has you?")
		t.Logf("answered after %s", time.Since(began).Round(time.Millisecond))
		if left := c.Telegram.Faults("getUpdates"); left != 0 {
			t.Errorf("%d conflicts were not met", left)
		}
		testrun.Eventually(t, "status says that all is well", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return !strings.Contains(out, "conflict")
		})
		c.Close()
	})
}

// One person writes continuously. They receive one notice that it is too much; the answers of
// others are not affected.
func TestAFloodOfOnePersonIsTheirOwn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := loadedChatroom(t, database, "")
		c.Start()
		c.Await("a poll that waits", c.Telegram.Polling)
		const flood, others, aMinute = 200, 20, 20
		start := time.Now()
		for i := range flood {
			c.Telegram.Say(anna, anna, fmt.Sprintf("and %d", i))
		}
		began := time.Now()
		for i := range others {
			c.Telegram.Say(personOf(i), personOf(i), questionOf(i))
		}
		c.Await("the others are answered", func() bool {
			for i := range others {
				if c.Count(personOf(i), questionOf(i)) == 0 {
					return false
				}
			}
			return true
		})
		took := time.Since(began)
		testrun.Eventually(t, "every update is confirmed", func() bool { return len(c.Telegram.Pending()) == 0 })
		oracle := OpenOracle(t, c.Gateway, database)
		if n := oracle.Count("SELECT count(*) FROM inbox WHERE principal LIKE 'telegram:%:7'"); n < aMinute || n > allowed(aMinute, start) {
			t.Errorf("%d messages of the flood were taken; %d a minute are allowed", n, aMinute)
		}
		c.Await("the one who writes too much is told", func() bool { return c.Count(anna, "You have reached the limit") > 0 })
		c.rest()
		if n := c.Count(anna, "You have reached the limit"); n != 1 {
			t.Errorf("told %d times", n)
		}
		t.Logf("%d others were answered %s after a flood of %d", others, took.Round(time.Millisecond), flood)
		c.Close()
	})
}

// A replica that was stopped for longer than its lease has claimed messages whose next parts wait
// for the limit of their chats. Another replica sends them meanwhile; the first one continues and
// sends nothing. A request that was in transit when it was stopped may have been sent twice.
func TestAReplicaThatWakesAfterItsLeaseSendsNothing(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	const people, parts = 5, 6
	c := openChatroom(t, testpg.DB(t), "    access: open\n", testtelegram.Config{Drafts: true})
	paragraph := strings.Repeat("A sentence that fills the page. ", 120)
	c.Model.Answer(func(testmodel.Call) testmodel.Reply {
		var text strings.Builder
		for i := range parts {
			fmt.Fprintf(&text, "Part %d begins. %s\n\n", i, paragraph)
		}
		return testmodel.Reply{Pieces: []string{text.String()}}
	})
	asleep := c.AtOnce()
	asleep.Start()
	c.Await("a poll that waits", c.Telegram.Polling)
	for i := range people {
		c.Telegram.AddPrivate(personOf(i), fmt.Sprint("Person ", i))
		c.Telegram.Say(personOf(i), personOf(i), "tell me everything")
	}
	shown := func(part int) (least, all int) {
		least = parts
		for i := range people {
			n := c.Count(personOf(i), fmt.Sprintf("Part %d begins.", part))
			least, all = min(least, n), all+n
		}
		return least, all
	}
	c.Await("the first part of each answer", func() bool { least, _ := shown(0); return least > 0 })
	asleep.Signal(syscall.SIGSTOP)
	other := c.install().AtOnce()
	c.Gateway = other
	other.Start()
	c.Await("every answer by the other replica", func() bool { least, _ := shown(parts - 1); return least > 0 })
	oracle := OpenOracle(t, other, c.database)
	testrun.Eventually(t, "every answer is delivered", func() bool {
		return oracle.Count("SELECT count(*) FROM outbox WHERE state = 'delivered'") == people
	})
	asleep.Signal(syscall.SIGCONT)
	dropped := func() int { return strings.Count(asleep.Output(), "reason=stale") }
	total := func() (n int) {
		for part := range parts {
			_, all := shown(part)
			n += all
		}
		return n
	}
	before := total()
	testrun.Eventually(t, "the first replica wakes up and gives its messages up, or sends one", func() bool { return dropped() > 0 || total() > before })
	asleep.Signal(syscall.SIGTERM) // a process ends after its sends, so it sends nothing later
	asleep.WaitExit(20 * time.Second)
	if after := total(); after != before {
		t.Errorf("the replica that woke up sent %d further parts", after-before)
	}
	if duplicates := before - people*parts; duplicates > people {
		t.Errorf("%d parts came twice, want at most one for each of %d chats", duplicates, people)
	} else {
		t.Logf("%d of %d parts came twice: they were on the wire", duplicates, people*parts)
	}
	// It is unknown how many messages the first replica had claimed when it was stopped: at least
	// one, because parts of each were unsent.
	if !regexp.MustCompile(`laneway_outbox_sends_total{channel="telegram",kind="reply",result="resent"} [1-5]\b`).MatchString(c.metrics()) {
		t.Error("what may have been sent twice is not counted")
	}
	c.spoken = append(c.spoken, asleep.Output())
	c.Close()
}
