package teste2e

import (
	"fmt"
	"strings"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// Two hundred messages of Anna wait at Telegram when the bot starts to poll, followed by one of Bob. Bob has his answer before the first
// turn of Anna ends. Of hers, as many as one person may send in a minute are accepted.
func TestAFloodOfOnePersonDelaysNoOther(t *testing.T) {
	const flood, aMinute = 200, 20
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\n    queue: {mode: followup, debounce_ms: 0}\n", testtelegram.Config{Drafts: true})
		answered := make(chan struct{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.HasPrefix(call.Last(), "flood") {
				<-answered
			}
			return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}}
		})
		c.AtOnce()
		for i := range flood {
			c.Telegram.Say(anna, anna, fmt.Sprintf("flood %03d", i))
		}
		c.Telegram.Say(bob, bob, "hello from Bob")
		c.Start()
		c.Await("Bob's answer", func() bool { return c.Count(bob, "You said: hello from Bob") == 1 })
		close(answered)
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM inbox WHERE session_key LIKE '%:7'"); n != aMinute {
			t.Errorf("%d messages of Anna are accepted, want %d", n, aMinute)
		}
		c.Close()
	})
}

// A hundred people have written while the bot was unavailable. Their messages arrive in one poll and wait for no common row: a few
// transactions store them. A message that waits for a row of the bot would need a separate transaction.
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
