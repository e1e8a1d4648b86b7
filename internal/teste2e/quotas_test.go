package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// One caller who is not the operator has so many turns at once, however many sessions it uses; what is over it waits, and takes no slot from others.
func TestTurnsAtOnceOfOneCallerAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const secret, calls, bound = "hook-secret-Zk7Qw3Rt9Yb2Nc5Vm8Xa4", 8, 2
		const turn = 400 * time.Millisecond
		g := Install(t, database, fmt.Sprintf("agents: {main: {runner: echo, delay: %s}}\nlimits: {chat: 0, requests: 0, hooks: 0, user_turns: %d}\n"+
			"hooks:\n  callers: {secret: %s, allow_session_key: true}\n", turn, bound, secret)).AtOnce()
		g.Start()
		c := connect(t, g)
		active := func() int {
			var st struct{ Lanes []struct{ Active int } }
			if err := c.Into(&st, "lanes.status", nil); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, l := range st.Lanes {
				n += l.Active
			}
			return n
		}
		began := time.Now()
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				body := fmt.Sprintf(`{"message":"call %d","sessionKey":"agent:main:callers-%d"}`, i, i)
				if a := g.Hook("callers", secret, body); a.Err != nil || a.Status != 202 {
					t.Errorf("call %d: %d %s %v", i, a.Status, a.Body, a.Err)
				}
			})
		}
		all.Wait()
		most := 0
		answered := func(session string) bool {
			raw, err := c.Call("chat.history", map[string]any{"sessionKey": session}, 30*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(raw), `"role":"assistant"`)
		}
		left := func() (n int) {
			for i := range calls {
				if !answered(fmt.Sprintf("agent:main:callers-%d", i)) {
					n++
				}
			}
			return n
		}
		for left() > calls/2 {
			most = max(most, active())
		}
		// The operator does not wait behind these turns.
		if _, err := c.Call("chat.send", map[string]any{"sessionKey": "operator", "message": "hello", "idempotencyKey": "operator-1"}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "the operator is answered", func() bool { return answered("operator") })
		behind := left()
		testrun.Eventually(t, "every call is answered", func() bool { return left() == 0 })
		took := time.Since(began)
		if most != bound {
			t.Errorf("at most %d turns at once, want %d", most, bound)
		}
		if want := calls / bound * turn; took < want {
			t.Errorf("%d turns took %s, want %s at least", calls, took, want)
		}
		t.Logf("%d calls, %d at once: %s; %d were waiting when the operator had an answer", calls, most, took.Round(time.Millisecond), behind)
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

// The runs of a person's jobs in a day are bounded: what is over it is skipped with a row that says why, and the person is told once.
func TestRunsOfAPersonInADayAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "cron: {user_min_interval: 1s, max_runs_per_day: 2}\n", testtelegram.Config{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Pieces: []string{"Did: " + call.Last()}}
		})
		c.Start()
		c.LetIn(anna)
		c.Telegram.Say(anna, anna, `/cron add "* * * * * *" look at the mail`)
		const note = "your runs of the last 24 hours are used up"
		c.Await("the note", func() bool { return c.Count(anna, note) > 0 })
		oracle := OpenOracle(t, c.Gateway, database)
		skipped := func() int {
			return oracle.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'skipped' AND reason = 'budget' AND owner LIKE 'telegram%'")
		}
		c.Await("three skipped slots", func() bool { return skipped() >= 3 })
		if n := c.Count(anna, note); n != 1 {
			t.Errorf("the person was told %d times, want once", n)
		}
		if n := oracle.Count("SELECT count(*) FROM cron_run_logs WHERE state <> 'skipped' AND owner LIKE 'telegram%'"); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
		var page struct {
			Entries []struct{ Status, Outcome, Reason string }
		}
		raw, err := connect(t, c.Gateway).Call("cron.runs", map[string]any{"statuses": []string{"skipped"}, "extended": true}, 30*time.Second)
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil || len(page.Entries) < 3 || page.Entries[0].Outcome != "skipped" || page.Entries[0].Reason != "budget" {
			t.Errorf("cron.runs says %+v, %v", page.Entries, err)
		}
		c.Telegram.Say(anna, anna, "/cron rm 1")
		c.Close()
	})
}
