package teste2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// modelConfig is a gateway in front of a model server.
func modelConfig(model *testmodel.Server) string {
	return fmt.Sprintf("agents: {main: {runner: openai, model: test, base_url: %q, retries: 0}}\nlimits: {chat: 0, requests: 0}\n", model.URL()+"/v1")
}

// hangs answers the text `hang` with a beginning and nothing more, and everything else with an echo.
func hangs(call testmodel.Call) testmodel.Reply {
	if strings.HasSuffix(call.Last(), "hang") {
		return testmodel.Reply{Pieces: []string{"begun "}, Hang: true}
	}
	return testmodel.Reply{Pieces: []string{"done"}}
}

// TestTheNextPromptSaysThatATurnWasStopped stops a turn, before its model said anything and after: the prompt of the next one has the stopped text with a note
// that it is not to be carried out, and so has the history.
func TestTheNextPromptSaysThatATurnWasStopped(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		for _, text := range []string{"delete everything, silent", "delete everything and hang"} {
			model := testmodel.Start(t)
			model.Answer(func(call testmodel.Call) testmodel.Reply {
				if strings.HasSuffix(call.Last(), "silent") {
					return testmodel.Reply{HangFirst: true}
				}
				return hangs(call)
			})
			if database != "" {
				database = testpg.DB(t)
			}
			g := Install(t, database, modelConfig(model))
			g.Start()
			w, c := watch(t, g), mustDial(t, g, nil)
			say(t, c, "agent:main:main", "first", text)
			testrun.Eventually(t, "the model was asked", func() bool { return len(model.Calls()) == 1 })
			if strings.HasSuffix(text, "hang") {
				testrun.Eventually(t, "its first words", func() bool {
					for _, e := range w.of("first") {
						if e.text == "begun " {
							return true
						}
					}
					return false
				})
			}
			say(t, c, "agent:main:main", "stop", "/stop")
			if end := w.await(t, "first"); end.reason != "stop" {
				t.Errorf("the first turn ended %s", end)
			}
			say(t, c, "agent:main:main", "second", "hello")
			w.await(t, "second")
			calls := model.Calls()
			var prompt strings.Builder
			for _, m := range calls[len(calls)-1].Messages {
				prompt.WriteString(m.Role + ": " + m.Content + "\n")
			}
			note := "not to be carried out: " + fmt.Sprintf("%q", text)
			if got := prompt.String(); !strings.Contains(got, note) || !strings.HasSuffix(got, "hello\n") || strings.Count(got, text) != 2 {
				t.Errorf("the prompt after the stop is\n%s", got)
			}
			var history struct {
				Messages []struct {
					Role, StopReason, RunID string
					Content                 []struct{ Text string }
				}
			}
			if err := c.Into(&history, "chat.history", map[string]any{"sessionKey": "agent:main:main"}); err != nil {
				t.Fatal(err)
			}
			noted := 0
			for _, m := range history.Messages {
				if m.Role == "system" && m.RunID == "first" && m.StopReason == "stopped" && strings.Contains(m.Content[0].Text, note) {
					noted++
				}
			}
			if noted != 1 {
				t.Errorf("%d rows of the history say that the turn was stopped: %+v", noted, history.Messages)
			}
		}
	})
}

// TestNumbersOfARunGoOnAfterARestartInPlace restarts the scheduler under a turn that has said something: the second attempt goes on with the numbers of the
// first, so that a client which drops old numbers gets the text that replaces the first one's.
func TestNumbersOfARunGoOnAfterARestartInPlace(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if call.Number == 1 {
				return testmodel.Reply{Pieces: []string{"one ", "two ", "three "}, Hang: true}
			}
			return testmodel.Reply{Pieces: []string{"new ", "text"}}
		})
		g := Install(t, database, modelConfig(model))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		say(t, c, "agent:main:main", "run", "hello")
		testrun.Eventually(t, "the first words", func() bool {
			for _, e := range w.of("run") {
				if e.text == "one two three " {
					return true
				}
			}
			return false
		})
		g.Signal(syscall.SIGUSR1)
		if end := w.await(t, "run"); end.state != "final" || end.text != "new text" {
			t.Errorf("the run ended %s %q", end, end.text)
		}
		checkRunEvents(t, "run", w.of("run"))
		replaced := false
		for _, e := range w.of("run") {
			replaced = replaced || e.replace
		}
		if !replaced {
			t.Errorf("no delta replaces the text of the first attempt: %v", w.of("run"))
		}
	})
}
