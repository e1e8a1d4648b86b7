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

// taskCall asks for a sub-turn; agent "" = of the same agent.
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

// TestAnAgentAsksAColleague asks each of two agents, which speak different protocols, to ask the other one.
func TestAnAgentAsksAColleague(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			results := call.Results()
			switch {
			case len(results) > 0:
				return testmodel.Reply{Pieces: []string{"The colleague says: " + results[len(results)-1].Text}}
			case strings.HasPrefix(call.Last(), "count "):
				return testmodel.Reply{Pieces: []string{"42 lines."}}
			default:
				return testmodel.Reply{Pieces: []string{"I ask."}, Calls: []testmodel.ToolCall{taskCall("a", call.Last(), "count the lines", true)}}
			}
		})
		w, c, o := startWatched(t, database, toolsConfig(model))
		for agent, colleague := range map[string]string{"main": "sister", "sister": "main"} {
			session := "agent:" + agent + ":words"
			say(t, c, session, "ask-"+agent, colleague)
			w.await(t, "ask-"+agent)
			if text := historyOf(t, c, session); !strings.Contains(text, "I ask.\n\nThe colleague says: 42 lines.") || !strings.Contains(text, "system: Tool delegate") {
				t.Errorf("history of %s:\n%s", agent, text)
			}
			if n := o.Count(fmt.Sprintf("SELECT count(*) FROM inbox WHERE parent = 'ask-%s' AND root = parent AND lane = 'team' AND outcome = 'answered' AND session_key LIKE 'agent:%s:task:%%'", agent, colleague)); n != 1 {
				t.Errorf("%d answered sub-turns of %s, want 1: %v", n, agent, o.Rows("SELECT session_key, lane, outcome, parent FROM inbox"))
			}
		}
		o.Check(15 * time.Second)
	})
}

// TestABackgroundTaskAnnouncesItsEnd lets an agent start a task and go on; the answer of the task comes into the conversation, and a turn reads it.
func TestABackgroundTaskAnnouncesItsEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch {
			case strings.Contains(call.Last(), "has ended. Its answer:") && strings.Contains(call.Last(), "The report is short."):
				return testmodel.Reply{Pieces: []string{"News: the report is there."}}
			case len(call.Results()) > 0:
				return testmodel.Reply{Pieces: []string{"Started."}}
			case call.Last() == "write a report":
				return testmodel.Reply{Delay: time.Second, Pieces: []string{"The report is short."}}
			default:
				return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("a", "", "write a report", false)}}
			}
		})
		w, c, o := startWatched(t, database, toolsConfig(model))
		const session = "agent:main:words"
		say(t, c, session, "wish", "report in the background")
		w.await(t, "wish")
		testrun.Eventually(t, "the announcement is answered", func() bool {
			return strings.Contains(historyOf(t, c, session), "assistant: News: the report is there.")
		})
		text := historyOf(t, c, session)
		if strings.Count(text, "has ended. Its answer:") != 1 || !strings.Contains(text, "assistant: Started.") {
			t.Errorf("history:\n%s", text)
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE parent IS NOT NULL AND announce = 1"); n != 0 {
			t.Errorf("%d ends are not announced", n)
		}
		o.Check(15 * time.Second)
	})
}

// TestAKillAtAnyStepOfATreeDoublesNothing kills the gateway while a turn asks a colleague. Where a commit lies behind the step, its rows are taken back. The
// model asks for another task when it is asked anew; only where nothing was recorded it is.
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
		// hang is where the model does not answer before the kill: the first question of the parent, that of the child, or the second one of the parent.
		hang string
		undo []string
		task string
		asks int // how often the model is asked for the first round of the parent
		work int // how often it is asked to work on the task
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
