package teste2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

const (
	talkWindow  = 8000
	talkReserve = 500
	countSums   = "SELECT count(*) FROM transcript WHERE to_seq > 0"
)

// The conversation with one agent has 120 turns, 2,000 in a long run. No request is larger than the window, no turn waits for a summary,
// nothing is deleted, and the content of the first turn is found.
func TestAConversationOfThousandsOfTurnsFitsAWindowOfEightThousandTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	turns := testrun.Size(120, 2000)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if ofSummary(call) {
				return testmodel.Reply{Delay: 300 * time.Millisecond, Pieces: []string{"They spoke of codes, the first of which was zanzibar0. " + strings.Repeat("And more. ", 30)}}
			}
			return testmodel.Reply{Pieces: []string{"Noted. " + strings.Repeat("yes ", 30)}}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", context_window: %d, max_tokens: %d, tools: "off"}
limits: {chat: 0, requests: 0}
`, model.URL(), talkWindow, talkReserve))
		g.Start()
		o, w, c := OpenOracle(t, g, database), watch(t, g), mustDial(t, g, nil)
		began, slowest := time.Now(), time.Duration(0)
		for i := range turns {
			text := fmt.Sprintf("message %d ", i) + strings.Repeat("of a long conversation ", 6)
			if i%100 == 0 {
				text += fmt.Sprintf("code zanzibar%d", i/100)
			}
			id, sent := fmt.Sprintf("t%d", i), time.Now()
			say(t, c, "agent:main:long", id, text)
			if end := w.await(t, id); end.state != "final" {
				t.Fatalf("%s ended %s", id, end)
			}
			slowest = max(slowest, time.Since(sent))
		}
		took := time.Since(began)
		testrun.Eventually(t, "nothing is left to do", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })

		sums := o.Count(countSums)
		if rows := o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:long'"); rows != 2*turns+sums || sums == 0 { // their number depends on the speed of the turns, which continue meanwhile
			t.Errorf("%d rows in the transcript with %d summaries, want a message and an answer for each of %d turns besides", rows, sums, turns)
		}
		largest, input := 0, 0
		calls := model.Calls()
		for _, call := range calls {
			n := agent.EstimateTokens(call.System)
			for _, m := range call.Messages {
				n += agent.EstimateTokens(m.Content) + 6
			}
			input += n
			if largest = max(largest, n+talkReserve); n+talkReserve > talkWindow {
				t.Errorf("a request of %d tokens with its answer, the window has %d", n+talkReserve, talkWindow)
			}
		}
		if asked := len(calls) - turns; asked != sums {
			t.Errorf("the model has written %d summaries, %d are kept", asked, sums)
		}
		for _, query := range []string{"zanzibar0", fmt.Sprintf("zanzibar%d", (turns-1)/100)} {
			out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "sessions", "search", query, "--session", "long")
			if code != 0 || strings.Count(out, query) != 1 || !strings.Contains(out, "agent:main:long  user") {
				t.Errorf("the search for %s ended with %d, %s\n%s", query, code, errs, out)
			}
		}
		t.Logf("%d turns in %s, the slowest %s; %d compactions, %d requests with %d tokens of input by estimate, the largest with its answer %d",
			turns, took.Round(time.Millisecond), slowest.Round(time.Millisecond), sums, len(calls), input, largest)
	})
}

func ofSummary(call testmodel.Call) bool { return strings.HasPrefix(call.System, "You keep the notes") }
