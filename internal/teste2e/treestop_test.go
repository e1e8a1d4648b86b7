package teste2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
)

// treeModel answers messages of the form "tree N": it asks for N tasks of each level below, which wait. Leaves hang.
func treeModel(t *testing.T) *testmodel.Server {
	t.Helper()
	model := testmodel.Start(t)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		switch {
		case len(call.Results()) > 0:
			return testmodel.Reply{Pieces: []string{"done"}}
		case strings.HasPrefix(call.Last(), "tree"):
			return testmodel.Reply{Calls: []testmodel.ToolCall{
				taskCall("a", "sister", "branch one", true), taskCall("b", "", "branch two", true), taskCall("c", "", "leaf in the background", false),
			}}
		case strings.HasPrefix(call.Last(), "branch"):
			return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("d", "", "leaf", true), taskCall("e", "main", "leaf", true)}}
		default:
			return testmodel.Reply{HangFirst: true}
		}
	})
	return model
}

// taskStates counts the tasks of a tree by state and outcome, as tasks.list has them.
func taskStates(t *testing.T, c *Client, session string) map[string]int {
	t.Helper()
	var list struct {
		Tasks []struct{ ID, State, Outcome string }
	}
	if err := c.Into(&list, "tasks.list", map[string]any{"sessionKey": session}); err != nil {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, task := range list.Tasks {
		states[strings.Trim(task.State+" "+task.Outcome, " ")]++
	}
	return states
}

// TestAStopReachesATreeOnBothReplicas stops trees through the replica that runs them and through the other one, by each way there is. All turns of the tree have
// ended within 3.5 seconds.
func TestAStopReachesATreeOnBothReplicas(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	model := treeModel(t)
	config := toolsConfig(model)
	a, b := Install(t, database, config), Install(t, database, config)
	a.Start()
	b.Start()
	ca, cb := mustDial(t, a, nil), mustDial(t, b, nil)
	ways := []struct {
		name string
		stop func(c *Client, session, id string) error
	}{
		{"/stop", func(c *Client, session, id string) error { say(t, c, session, id+"-stop", "/stop"); return nil }},
		{"/stopall", func(c *Client, session, id string) error { say(t, c, session, id+"-stop", "/stopall"); return nil }},
		{"chat.abort", func(c *Client, session, id string) error {
			_, err := c.Call("chat.abort", map[string]any{"sessionKey": session, "runId": id}, 10*time.Second)
			return err
		}},
	}
	o := OpenOracle(t, a, database)
	for i, way := range ways {
		for name, c := range map[string]*Client{"the same replica": ca, "the other replica": cb} {
			session, id := fmt.Sprintf("agent:main:s%d-%s", i, name[4:8]), fmt.Sprintf("r%d-%s", i, name[4:8])
			say(t, ca, session, id, "tree")
			eventually(t, "the leaves run", 30*time.Second, func() bool {
				states := taskStates(t, cb, session)
				return states["yielded"] == 2 && states["running"] == 5
			})
			asked := time.Now()
			if err := way.stop(c, session, id); err != nil {
				t.Fatalf("%s through %s: %v", way.name, name, err)
			}
			open := fmt.Sprintf("SELECT count(*) FROM runs WHERE ended_at IS NULL AND (id = '%s' OR id IN (SELECT message_id FROM inbox WHERE root = '%s'))", id, id)
			eventually(t, "the tree has ended", 30*time.Second, func() bool { return o.Count(open) == 0 })
			took := time.Since(asked)
			t.Logf("%s through %s: gone after %s", way.name, name, took.Round(time.Millisecond))
			if took > 3500*time.Millisecond {
				t.Errorf("%s through %s: the tree had ended after %s", way.name, name, took)
			}
			if n := o.Count(fmt.Sprintf("SELECT count(*) FROM inbox WHERE (root = '%s' OR message_id = '%s') AND outcome <> 'stopped'", id, id)); n != 0 {
				t.Errorf("%s through %s: %d messages of the tree ended otherwise", way.name, name, n)
			}
			if states := taskStates(t, ca, session); states["done stopped"] != 7 {
				t.Errorf("%s through %s: tasks %v", way.name, name, states)
			}
		}
	}
	o.Check(15 * time.Second)
}
