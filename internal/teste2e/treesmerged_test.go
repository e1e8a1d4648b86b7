package teste2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// TestAnnouncementsBehindABusySessionShareATurn starts three tasks in the background and ends them, one after the other, while their session works on something else.
// One turn reads the three announcements when that has ended.
func TestAnnouncementsBehindABusySessionShareATurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const tasks = 3
		model := testmodel.Start(t)
		reports, busy := make(chan struct{}), make(chan struct{})
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			asked := call.Last()
			switch {
			case strings.Contains(asked, "has ended. Its answer:"):
				return testmodel.Reply{Pieces: []string{fmt.Sprintf("I have read %d reports.", strings.Count(asked, "The report number "))}}
			case strings.HasPrefix(asked, "write report "):
				<-reports
				return testmodel.Reply{Pieces: []string{"The report number " + asked[len(asked)-1:] + "."}}
			case asked == "work":
				<-busy
				return testmodel.Reply{Pieces: []string{"Worked."}}
			case len(call.Results()) > 0:
				return testmodel.Reply{Pieces: []string{"Started."}}
			default:
				var calls []testmodel.ToolCall
				for i := range tasks {
					calls = append(calls, taskCall(fmt.Sprint("task-", i), "", fmt.Sprint("write report ", i), false))
				}
				return testmodel.Reply{Calls: calls}
			}
		})
		w, c, o := startWatched(t, database, toolsConfig(model))
		const session = "agent:main:words"
		say(t, c, session, "wish", "three reports in the background")
		w.await(t, "wish")
		say(t, c, session, "busy", "work")
		if err := model.WaitFor(withTimeout(t, 30*time.Second), 2+1+tasks, 1+tasks); err != nil {
			t.Fatal(err)
		}
		const announced = "FROM inbox WHERE session_key = '" + session + "' AND channel = 'task'"
		for range tasks {
			reports <- struct{}{}
		}
		testrun.Eventually(t, "all ends are announced", func() bool { return o.Count("SELECT count(*) "+announced) == tasks })
		if n := o.Count("SELECT count(*) " + announced + " AND state = 'done'"); n != 0 {
			t.Errorf("%d announcements did not wait for the turn that runs", n)
		}
		close(busy)
		testrun.Eventually(t, "the announcements are answered", func() bool {
			return o.Count("SELECT count(*) "+announced+" AND state = 'done'") == tasks
		})
		text := historyOf(t, c, session)
		if !strings.Contains(text, "assistant: Worked.") || strings.Count(text, "has ended. Its answer:") != tasks || strings.Count(text, "assistant: I have read 3 reports.") != 1 {
			t.Errorf("history:\n%s", text)
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE session_key = '" + session + "'"); n != 3 {
			t.Errorf("%d turns in the session, want the wish, the work, and one for the announcements: %v", n, o.Rows("SELECT message_id, outcome "+announced))
		}
		o.Check(15 * time.Second)
	})
}
