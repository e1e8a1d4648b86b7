package teste2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// What a job wrote into a chat is what its person answers: the agent gets it once, and what wrote
// it.
func TestAnswersOfJobsAreKnownInTheirChats(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n    groups: [-100500]\n    members: any\n    activation: always\n", testtelegram.Config{})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(call.Last(), "work of") {
				return testmodel.Reply{Pieces: []string{"Shall I order 40 filters?\nThey are cheap."}}
			}
			return testmodel.Reply{Pieces: []string{"done for " + call.Last()}}
		})
		c.Start()
		for _, place := range []struct {
			chat             int64
			to, job, session string
		}{{anna, "7", "digest", ""}, {forum, "-100500", "stock", ""}, {forum, "-100500", "own", "session:reports"}} {
			before := c.Count(place.chat, "40 filters")
			args := []string{"cron", "add", "--name", place.job, "--every", "24h", "--message", "work of " + place.job, "--deliver", "telegram:" + place.to}
			if place.session != "" {
				args = append(args, "--session", place.session)
			}
			for _, args := range [][]string{args, {"cron", "run", place.job}} {
				if out, errs, code := c.CLI(t.Context(), "", args...); code != 0 {
					t.Fatalf("laneway %q: %q, %q, %d", args, out, errs, code)
				}
			}
			c.Await("the answer of "+place.job, func() bool { return c.Count(place.chat, "40 filters") == before+1 })
			c.rest()
			c.Telegram.Say(place.chat, anna, "yes, do it: "+place.job)
			c.Await("the answer to the person", func() bool { return c.Count(place.chat, "yes, do it: "+place.job) == 1 })
			calls := c.Model.Calls()
			var all strings.Builder
			for _, m := range calls[len(calls)-1].Messages {
				all.WriteString(m.Role + ": " + m.Content + "\n")
			}
			note := ", job " + place.job + " wrote here:\n> Shall I order 40 filters?\n> They are cheap.\n"
			if n := strings.Count(all.String(), note); n != 1 {
				t.Errorf("the model got the answer of job %s %d times: %s", place.job, n, all.String())
			}
		}
		c.Close()
	})
}

// During quiet hours jobs write nothing, except what is urgent or was asked for; then each job
// writes its last answer.
func TestQuietHoursHoldWhatJobsWrite(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7]\n", testtelegram.Config{})
		var runs atomic.Int32
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			if strings.Contains(call.Last(), "work of digest") {
				return testmodel.Reply{Pieces: []string{fmt.Sprintf("digest %d.", runs.Add(1))}}
			}
			if strings.Contains(call.Last(), "hello") {
				return testmodel.Reply{Pieces: []string{"good morning"}}
			}
			return testmodel.Reply{Pieces: []string{"done: " + call.Last()}}
		})
		c.Start()
		now := time.Now().UTC()
		c.Telegram.Say(anna, anna, "/timezone UTC")
		c.Telegram.Say(anna, anna, "/quiet "+now.Add(-time.Hour).Format("15:04")+"-"+now.Add(5*time.Hour).Format("15:04"))
		c.Await("the quiet hours", func() bool { return c.Count(anna, "From now on jobs do not write here") == 1 })
		run := func(args ...string) string {
			t.Helper()
			out, errs, code := c.CLI(t.Context(), "", args...)
			if code != 0 {
				t.Fatalf("laneway %q: %q, %q, %d", args, out, errs, code)
			}
			return out
		}
		add := func(name string, more ...string) {
			run(append([]string{"cron", "add", "--name", name, "--every", "1s", "--message", "work of " + name, "--deliver", "telegram:7", "--max-runs", "3"}, more...)...)
		}
		add("digest")
		add("alarm", "--urgent")
		c.Await("the urgent answers", func() bool { return c.Count(anna, "done: work of alarm") == 3 })
		c.Await("the runs that are held", func() bool {
			return strings.Count(run("cron", "runs", "digest"), "ok") == 3 && strings.Contains(run("cron", "why", "digest"), "waits for the end of quiet hours at")
		})
		run("cron", "run", "alarm")
		c.Telegram.Say(anna, anna, "/remind in 1s the oven")
		c.Telegram.Say(anna, anna, "hello")
		c.Await("what does not wait", func() bool {
			return c.Count(anna, "done: work of alarm") == 4 && c.Count(anna, "Reminder: the oven") == 1 && c.Count(anna, "good morning") == 1
		})
		if n := c.Count(anna, "digest"); n != 0 {
			t.Errorf("%d answers of the job during quiet hours: %q", n, c.seen(anna))
		}
		c.Telegram.Say(anna, anna, "/quiet off")
		c.Await("what waited", func() bool { return c.Count(anna, "digest") > 0 })
		c.rest()
		if n := c.Count(anna, "digest"); n != 1 || c.Count(anna, "digest 3.") != 1 {
			t.Errorf("after quiet hours: %q", c.seen(anna))
		}
		c.Close()
	})
}
