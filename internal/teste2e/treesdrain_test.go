package teste2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// TestADrainLeavesATurnWhoseTaskMayNotStart ends the gateway while two turns wait for tasks and the lane has one slot: the turn whose task runs ends as usual, the
// other one is left to the next process, long before the drain timeout.
func TestADrainLeavesATurnWhoseTaskMayNotStart(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		held := make(chan struct{})
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			results := call.Results()
			switch asked := call.Last(); {
			case len(results) > 0:
				return testmodel.Reply{Pieces: []string{"The colleague says: " + results[0].Text}}
			case asked == "work first":
				<-held
				return testmodel.Reply{Pieces: []string{"first."}}
			case strings.HasPrefix(asked, "work "):
				return testmodel.Reply{Pieces: []string{"second."}}
			default:
				return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("a", "sister", "work "+asked, true)}}
			}
		})
		g := Install(t, database, toolsConfig(model)+"drain_timeout: 90s\nlanes: {team: 1}\n"+shortLease)
		g.Start()
		c, o := mustDial(t, g, nil), OpenOracle(t, g, database)
		say(t, c, "agent:main:one", "one", "first")
		if err := model.WaitFor(withTimeout(t, 30*time.Second), 2, 1); err != nil {
			t.Fatal(err)
		}
		say(t, c, "agent:main:two", "two", "second")
		testrun.Eventually(t, "both turns wait", func() bool { return o.Count("SELECT count(*) FROM runs WHERE state = 'yielded'") == 2 })
		g.Signal(syscall.SIGTERM)
		testrun.Eventually(t, "the turn whose task may not start is left", func() bool {
			return o.Count("SELECT count(*) FROM runs WHERE id = 'two' AND state = 'interrupted'") == 1
		})
		close(held)
		if took, code := g.WaitExit(30 * time.Second); code != 0 {
			t.Errorf("the end took %s, exit code %d", took, code)
		}
		g.Start()
		testrun.Eventually(t, "the next process runs it", func() bool {
			return o.Count("SELECT count(*) FROM runs WHERE id = 'two' AND state = 'ok'") == 1
		})
		c = mustDial(t, g, nil)
		for session, want := range map[string]string{"agent:main:one": "The colleague says: first.", "agent:main:two": "The colleague says: second."} {
			if text := historyOf(t, c, session); strings.Count(text, want) != 1 {
				t.Errorf("history of %s:\n%s", session, text)
			}
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND outcome = 'answered'"); n != 2 {
			t.Errorf("%d answered tasks, want 2: %v", n, o.Rows("SELECT message_id, state, outcome, parent FROM inbox"))
		}
		o.Check(15 * time.Second)
	})
}
