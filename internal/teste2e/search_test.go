package teste2e

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/testmodel"
)

// TestWhatWasSaidIsFoundAgain goes through a search by the command line, by an agent and after a kill, and through a deletion.
func TestWhatWasSaidIsFoundAgain(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			results := call.Results()
			switch {
			case len(results) > 0:
				return testmodel.Reply{Pieces: []string{"You said: " + results[len(results)-1].Text}}
			case strings.Contains(call.Last(), "what was"):
				return testmodel.Reply{Calls: []testmodel.ToolCall{{ID: "s", Name: "history_search", Args: `{"query":"zanzibar"}`}}}
			default:
				return testmodel.Reply{Pieces: []string{"Noted."}}
			}
		})
		g := Install(t, database, toolsConfig(model))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		say(t, c, "agent:main:facts", "fact", "The code for Zanzibar is 4711.")
		w.await(t, "fact")
		say(t, c, "agent:main:later", "ask", "what was the code?")
		w.await(t, "ask")
		if text := historyOf(t, c, "agent:main:later"); !strings.Contains(text, "You said: ") || !strings.Contains(text, "agent:main:facts, user: The code for Zanzibar is 4711.") {
			t.Errorf("the agent did not find it:\n%s", text)
		}
		search := func(args ...string) string {
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", append([]string{"sessions", "search"}, args...)...)
			if code != 0 {
				t.Fatalf("the search ended with %d: %s", code, errs)
			}
			return out
		}
		g.Kill()
		g.Start()
		if out := search("ZANZIBAR", "code", "--session", "facts"); strings.Count(out, "4711") != 1 || !strings.Contains(out, "agent:main:facts  user") {
			t.Errorf("after a kill the search found %q", out)
		}
		if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "sessions", "delete", "facts", "--yes"); code != 0 {
			t.Fatalf("deleting: %s", errs)
		}
		if out := search("zanzibar", "--session", "facts"); !strings.Contains(out, "no message has these words") {
			t.Errorf("after the deletion the search found %q", out)
		}
		if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "sessions", "search", "?!"); code == 0 || !strings.Contains(errs, "the query has no word") {
			t.Errorf("a query without words ended with %d: %s", code, errs)
		}
	})
}
