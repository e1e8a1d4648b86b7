package teste2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testtelegram"
)

// TestAnACPAgentAsksByButtonsInTelegram runs the example agent of the SDK behind a bot. Its permission question is a message with buttons: a press allows the change, another one
// skips it, a press of another person changes nothing, and a question that is not answered is refused when its time is over.
func TestAnACPAgentAsksByButtonsInTelegram(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		c := openChatroomOf(t, database, "{runner: acp, command: ["+program+"], question_timeout: 15s}", "    allow: [7, 8]\n", testtelegram.Config{})
		c.Start()
		question := func(say string) (asked shown) {
			t.Helper()
			before := c.Count(anna, "wants to do this for you: ")
			c.Telegram.Say(anna, anna, say)
			c.Await("the question", func() bool { return c.Count(anna, "wants to do this for you: ") > before })
			for _, m := range c.Telegram.Messages(anna) {
				if strings.Contains(m.Text, "wants to do this for you: change the file “/home/user/project/config.json”") {
					asked = shown{m}
				}
			}
			return asked
		}
		const applied, skipped = "The changes have been applied.", "I understand you prefer not to make that change."

		asked := question("change the configuration")
		c.Await("the step is shown", func() bool { return c.Count(anna, "Modifying critical configuration file… 10 s") == 1 })
		c.Telegram.Press(anna, bob, asked.ID, asked.button(t, "Allow: this change").Data)
		c.Await("the press of another person is refused", func() bool { return c.pressAnswers("You may not use this") == 1 })
		if n := c.Count(anna, applied); n != 0 {
			t.Error("the press of another person has allowed the change")
		}
		c.Telegram.Press(anna, anna, asked.ID, asked.button(t, "Allow: this change").Data)
		c.Await("the change is made", func() bool { return c.Count(anna, applied) == 1 })
		c.Await("the answer is confirmed", func() bool { return c.Count(anna, "The answer is: Allow: this change.") == 1 })

		asked = question("change it again")
		c.Telegram.Press(anna, anna, asked.ID, asked.button(t, "Deny: Skip this change").Data)
		c.Await("the change is skipped", func() bool { return c.Count(anna, skipped) == 1 })

		asked = question("and once more")
		c.Await("the question is refused when its time is over", func() bool { return c.Count(anna, skipped) == 2 })
		c.rest()
		c.Telegram.Press(anna, anna, asked.ID, asked.button(t, "Allow: this change").Data)
		c.Await("a late press is answered", func() bool { return c.Count(anna, "there is no open question")+c.pressAnswers("too old") == 1 })
		c.rest()
		if n := c.Count(anna, "…"); n != 0 {
			t.Errorf("a step is left: %q", c.Telegram.Texts(anna))
		}
		if n := c.Count(anna, applied); n != 1 {
			t.Errorf("%d changes are made, want the one that was allowed", n)
		}
		if n := OpenOracle(t, c.Gateway, database).Count("SELECT count(*) FROM tool_questions WHERE state = 'open'"); n != 0 {
			t.Errorf("%d questions are left open", n)
		}
		c.Close()
	})
}

// TestADrainLeavesNoStepOfATurnThatRunsAgain ends a gateway while an agent of the SDK waits for a permission, in a group.
func TestADrainLeavesNoStepOfATurnThatRunsAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		c := openChatroomOf(t, database, "{runner: acp, command: ["+program+"]}", "    groups: [-100500]\n    members: any\n    activation: always\ndrain_timeout: 2s\n", testtelegram.Config{})
		c.Start()
		c.Telegram.Say(forum, anna, "change the configuration")
		c.Await("the step is shown", func() bool { return c.Count(forum, "Modifying critical configuration file…") == 1 })
		c.Signal(syscall.SIGTERM)
		if _, code := c.WaitExit(20 * time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if n := c.Count(forum, "Modifying critical configuration file…"); n != 0 {
			t.Errorf("the group reads %q", c.Telegram.Texts(forum))
		}
	})
}
