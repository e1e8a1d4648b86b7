package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// taskCall requests a sub-turn; agent "" = the same agent.
func taskCall(id, agent, task string, wait bool) testmodel.ToolCall {
	name, args := "delegate", map[string]any{"agent": agent, "task": task}
	if agent == "" {
		name, args = "spawn", map[string]any{"task": task, "wait": wait}
	}
	text, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return testmodel.ToolCall{ID: id, Name: name, Args: string(text)}
}

// The gateway is killed while a turn calls a colleague. If a commit follows the step, its rows are removed. The model requests another task
// when it is called again, which happens only where nothing was recorded.
func TestAKillAtAnyStepOfATreeDoublesNothing(t *testing.T) {
	NeedsProcesses(t)
	const (
		noResult = "DELETE FROM turn_rounds WHERE kind = 'result'"
		noRun    = "DELETE FROM runs WHERE session_key LIKE '%:task:%'"
		noChild  = "DELETE FROM inbox WHERE parent IS NOT NULL"
		noTexts  = "DELETE FROM transcript WHERE session_key LIKE '%:task:%'"
		noHome   = "DELETE FROM sessions WHERE key LIKE '%:task:%'"
	)
	steps := []struct {
		name string
		// hang is where the model does not answer before the kill: the first request of the parent, that of the child, or the second one of
		// the parent.
		hang string
		undo []string
		task string
		asks int // number of requests for the first round of the parent
		work int // number of requests for the task
	}{
		{"BeforeTheRoundIsRecorded", "ask", nil, "other work", 2, 1},
		{"AfterTheRoundIsRecorded", "child", []string{noResult, noRun, noChild, noTexts, noHome}, "count the lines", 1, 2},
		{"WhileTheChildRuns", "child", nil, "count the lines", 1, 2},
		{"AfterTheChildHasEnded", "second", []string{noResult}, "count the lines", 1, 1},
		{"AfterTheResultIsRecorded", "second", nil, "count the lines", 1, 1},
	}
	onBothStores(t, func(t *testing.T, database string) {
		for _, step := range steps {
			t.Run(step.name, func(t *testing.T) {
				database := database
				if database != "" {
					database = testpg.DB(t)
				}
				k := treeKill{hang: step.hang, undo: step.undo, task: step.task, asks: step.asks, work: step.work}
				k.run(t, database)
			})
		}
	})
}

type treeKill struct {
	hang, task string
	undo       []string
	asks, work int
}

func (k treeKill) run(t *testing.T, database string) {
	t.Helper()
	model := testmodel.Start(t)
	killed := make(chan struct{})
	asked := map[string]int{}
	hangs := make(chan struct{}, 16)
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		place := "ask"
		switch {
		case len(call.Results()) > 0:
			place = "second"
		case strings.HasSuffix(call.Last(), "lines") || strings.HasSuffix(call.Last(), "work"):
			place = "child"
		}
		asked[place]++
		select {
		case <-killed:
		default:
			if place == k.hang {
				hangs <- struct{}{}
				return testmodel.Reply{HangFirst: true}
			}
		}
		switch {
		case place == "second":
			return testmodel.Reply{Pieces: []string{"Done: " + call.Results()[0].Text}}
		case place == "child":
			return testmodel.Reply{Pieces: []string{"42."}}
		case asked["ask"] > 1:
			return testmodel.Reply{Pieces: []string{"Something else."}, Calls: []testmodel.ToolCall{taskCall("z", "sister", "other work", true)}}
		default:
			return testmodel.Reply{Pieces: []string{"I ask."}, Calls: []testmodel.ToolCall{taskCall("a", "sister", "count the lines", true)}}
		}
	})
	g := Install(t, database, toolsConfig(model)+shortLease).AtOnce()
	g.Start()
	c, o := mustDial(t, g, nil), OpenOracle(t, g, database)
	const session = "agent:main:words"
	say(t, c, session, "wish", "ask the sister")
	select {
	case <-hangs:
	case <-time.After(30 * time.Second):
		t.Fatal("the model was not asked")
	}
	g.Kill()
	close(killed)
	db := writable(t, g, database)
	for _, statement := range k.undo {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	g.Start()
	testrun.Eventually(t, "the turn has ended", func() bool {
		return o.Count("SELECT count(*) FROM runs WHERE id = 'wish' AND state = 'ok'") == 1
	})
	if n := o.Count("SELECT count(*) FROM inbox WHERE parent = 'wish' AND outcome = 'answered'"); n != 1 {
		t.Errorf("%d answered sub-turns, want one: %v", n, o.Rows("SELECT message_id, state, outcome, parent FROM inbox"))
	}
	if n := o.Count("SELECT count(*) FROM inbox WHERE parent IS NOT NULL"); n != 1 {
		t.Errorf("%d sub-turns, want one", n)
	}
	if asked["ask"] != k.asks || asked["child"] != k.work {
		t.Errorf("the model was asked %d times for the first round and %d times for the task, want %d and %d", asked["ask"], asked["child"], k.asks, k.work)
	}
	if n := o.Count(fmt.Sprintf("SELECT count(*) FROM transcript WHERE content = '%s' AND role = 'user' AND session_key LIKE 'agent:sister:task:%%'", k.task)); n != 1 {
		t.Errorf("the sister was not asked for %q: %v", k.task, o.Rows("SELECT session_key, role, content FROM transcript"))
	}
	text := historyOf(t, mustDial(t, g, nil), session)
	if strings.Count(text, "Tool delegate") != 1 || !strings.Contains(text, "\n\nDone: 42.") {
		t.Errorf("history:\n%s", text)
	}
	if n := o.Count("SELECT count(*) FROM turn_rounds"); n != 0 {
		t.Errorf("%d rows of journals are left", n)
	}
	o.Check(15 * time.Second)
}

// toolsConfig is a gateway whose agents may call tools, in a zone that is not UTC.
func toolsConfig(model *testmodel.Server) string {
	return providersConfig(model) + "cron: {timezone: Europe/Berlin}\n"
}

// shortLease lets the next process take over some seconds after a kill.
const shortLease = "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\n"
