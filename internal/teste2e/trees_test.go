package teste2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
	"laneway/internal/wire"
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

// The gateway is killed while a turn calls a colleague. If a commit follows the step, its rows are
// removed. The model requests another task when it is called again, which happens only where
// nothing was recorded.
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
		// hang is where the model does not answer before the kill: the first request of the parent,
		// that of the child, or the second one of the parent.
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
	hangs := make(chan struct{}, 16)
	placeOf := func(call testmodel.Call) string {
		switch {
		case len(call.Results()) > 0:
			return "second"
		case strings.HasSuffix(call.Last(), "lines") || strings.HasSuffix(call.Last(), "work"):
			return "child"
		}
		return "ask"
	}
	asked := func(place string) int {
		return model.Count(func(call testmodel.Call) bool { return placeOf(call) == place })
	}
	model.Answer(func(call testmodel.Call) testmodel.Reply {
		place := placeOf(call)
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
		case asked("ask") > 1:
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
	if asked("ask") != k.asks || asked("child") != k.work {
		t.Errorf("the model was asked %d times for the first round and %d times for the task, want %d and %d", asked("ask"), asked("child"), k.asks, k.work)
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

// questionsOf returns the questions that a connection sees.
func questionsOf(t *testing.T, c *Client) []wire.Question {
	t.Helper()
	var out wire.QuestionsListResult
	if err := c.Into(&out, "questions.list", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	return out.Questions
}

// The question of the SDK's example agent is listed and answered over the protocol: by its person,
// not by others, once, and not after its timeout.
func TestAQuestionIsAnsweredOverTheProtocol(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		g := Install(t, database, "agents: {main: {runner: acp, command: ["+program+"], question_timeout: 8s}}\n")
		g.Start()
		const session = "agent:main:asked"
		w := watch(t, g)
		var changes atomic.Int64
		c := mustDial(t, g, func(e Event) {
			if e.Name == "questions.changed" {
				changes.Add(1)
			}
		})
		bob := dialWhenKnown(t, g, g.named(t, "bob"), nil)
		asked := func(run string) (q wire.Question) {
			t.Helper()
			say(t, c, session, run, "change the configuration")
			testrun.Eventually(t, "the question is listed", func() bool {
				list := questionsOf(t, c)
				if len(list) == 1 {
					q = list[0]
				}
				return len(list) == 1
			})
			return q
		}
		answer := func(c *Client, q wire.Question, option int) (string, error) {
			var out wire.QuestionsAnswerResult
			err := c.Into(&out, "questions.answer", map[string]any{"id": q.ID, "option": option})
			return out.Text, err
		}
		refused := func(what string, err error) {
			t.Helper()
			if refusal, ok := errors.AsType[*WireError](err); !ok || refusal.Details["code"] != "NOT_FOUND" || !strings.Contains(refusal.Message, "no open question like this; it was answered, it is too old") {
				t.Errorf("%s: %v", what, err)
			}
		}

		q := asked("answered")
		if !q.Mine || q.SessionKey != session || q.RunID != "answered" || len(q.Options) != 2 || q.Options[0] != (wire.QuestionOption{Label: "Allow: this change", Allow: true}) ||
			!strings.HasPrefix(q.Act, "change the file “/home/user/project/config.json” in the directory “") || !strings.HasPrefix(q.Text, q.Act) || q.ExpiresAtMs-q.AskedAtMs > 8000 {
			t.Errorf("the question is %+v", q)
		}
		if list := questionsOf(t, bob); len(list) != 0 {
			t.Errorf("another principal sees %+v", list)
		}
		_, err := answer(bob, q, 1)
		refused("an answer of another principal", err)
		two := mustDial(t, g, nil)
		results := make(chan error, 2)
		for option, c := range map[int]*Client{1: c, 2: two} {
			go func() { _, err := answer(c, q, option); results <- err }()
		}
		errs := []error{<-results, <-results}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("of two answers at once: %v", errs)
		}
		refused("the later of two answers", errors.Join(errs...))
		if end := w.await(t, "answered"); end.state != "final" {
			t.Errorf("after the answer: %v", end)
		}
		if list := questionsOf(t, c); len(list) != 0 {
			t.Errorf("after the answer: %+v", list)
		}

		q = asked("expired")
		w.await(t, "expired")
		_, err = answer(c, q, 1)
		refused("an answer after its time", err)
		testrun.Eventually(t, "four changes are published: asked and answered, asked and closed", func() bool { return changes.Load() >= 4 })

		say(t, c, session, "pressed", "change it again")
		testrun.Eventually(t, "laneway questions answers the question", func() bool {
			list := questionsOf(t, c)
			if len(list) == 0 {
				return false
			}
			out, _, code := g.CLI(t.Context(), "", "questions", "answer", list[0].ID, "1")
			return code == 0 && out == "The answer is: Allow: this change.\n"
		})
		if end := w.await(t, "pressed"); !strings.HasSuffix(end.text, "The changes have been applied.") {
			t.Errorf("after the answer of the command line: %v", end)
		}
	})
}

// A permission is given and refused in a terminal, in laneway chat and in laneway send; the answer
// of another client meanwhile ends the question on the screen.
func TestPermissionsAreAnsweredInATerminal(t *testing.T) {
	NeedsProcesses(t)
	program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
	g := Install(t, "", "agents: {main: {runner: acp, command: ["+program+"], question_timeout: 120s}}\n")
	g.Start()
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience)
	defer cancel()
	const allowed, refused = "The changes have been applied.", "I'll skip the configuration update."
	c := mustDial(t, g, nil)
	for name, row := range map[string]struct {
		typed, other, end string
	}{
		"a number":       {typed: "1", end: allowed},
		"a word":         {typed: "no", end: refused},
		"another client": {other: "1", end: allowed},
	} {
		for _, args := range [][]string{{"chat", "--history", "0", "--session"}, {"send", "--session"}} {
			what := args[0] + ", " + name
			args = append(args, strings.ReplaceAll(what, ", ", "-"))
			if args[0] == "send" {
				args = append(args, "change the configuration")
			}
			cmd := exec.CommandContext(ctx, Binary(t), args...)
			cmd.Env = append(slices.Clone(g.env), "LANEWAY_URL="+g.URL(), "TERM=xterm", "NO_COLOR=1", "HOME="+t.TempDir())
			screen, err := testrun.OpenTerminal(cmd)
			if err != nil {
				t.Fatal(err)
			}
			wait := func(text string) {
				t.Helper()
				if err := screen.Await(ctx, regexp.MustCompile(regexp.QuoteMeta(text))); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			press := func(text string) {
				t.Helper()
				if err := screen.Type(text); err != nil {
					t.Fatal(err)
				}
			}
			if args[0] == "chat" {
				wait("> ")
				press("change the configuration\r")
			}
			wait("The agent main wants to do this for you: change the file")
			wait("1  Allow: this change\n")
			wait("2  Deny: Skip this change\n")
			if row.typed != "" {
				press(row.typed + "\r")
			} else {
				list := questionsOf(t, c)
				if len(list) != 1 {
					t.Fatalf("%s: the questions are %+v", what, list)
				}
				if err := c.Into(&wire.QuestionsAnswerResult{}, "questions.answer", map[string]any{"id": list[0].ID, "option": 1}); err != nil {
					t.Fatal(err)
				}
				wait("answered elsewhere")
			}
			wait(row.end)
			if exit, failed := errors.AsType[*exec.ExitError](screen.Leave()); failed {
				t.Errorf("%s: %v: %s", what, exit, screen.Shown())
			}
		}
	}
}
