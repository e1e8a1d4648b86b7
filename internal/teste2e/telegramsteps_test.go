package teste2e

import (
	"fmt"
	"strings"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testtelegram"
)

// The line names the running call, its time and the number of calls. It is one message, which is edited in place, and the answer replaces
// it.
func TestTheToolLoopOfAModelIsOneLineInTelegram(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch len(call.Results()) {
			case 0:
				return testmodel.Reply{Pieces: []string{"I look."}, Calls: []testmodel.ToolCall{{ID: "a", Name: "history_search", Args: `{"query":"lines"}`}}}
			case 1:
				return testmodel.Reply{Calls: []testmodel.ToolCall{taskCall("b", "slow", "count the lines", true)}}
			default:
				return testmodel.Reply{Pieces: []string{"42 lines."}}
			}
		})
		agents := fmt.Sprintf("{runner: openai, model: test, base_url: %q, retries: 0}, slow: {runner: echo, delay: 13s}", model.URL()+"/v1")
		c := openChatroomOf(t, database, agents, "    allow: [7]\n", testtelegram.Config{})
		c.Start()
		c.Telegram.Say(anna, anna, "how many lines?")
		// mine returns the messages of the bot.
		mine := func() (list []testtelegram.Message) {
			for _, m := range c.Telegram.Messages(anna) {
				if m.Text != "how many lines?" {
					list = append(list, m)
				}
			}
			return list
		}
		c.Await("the step, with its time and the number of calls", func() bool { return c.Count(anna, "I look.\n\ndelegate… 10 s, 2 tools") == 1 })
		line := mine()
		if len(line) != 1 || len(line[0].Edits) == 0 || !strings.HasPrefix(line[0].Edits[0], "I look.") {
			t.Errorf("the bot shows %+v, want one message that was edited", line)
		}
		c.Await("the answer", func() bool { return c.Count(anna, "I look.\n\n42 lines.") == 1 })
		c.rest()
		if last := mine(); len(last) != 1 || last[0].Text != "I look.\n\n42 lines." {
			t.Errorf("the bot shows %+v, want the answer alone", last)
		}
		c.Close()
	})
}
