package teste2e

import (
	"strings"
	"testing"

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
