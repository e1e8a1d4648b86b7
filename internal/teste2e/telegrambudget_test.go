package teste2e

import (
	"fmt"
	"testing"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// The text of the reply differs from the notice that the budget is used up, which the channel would not repeat within a minute.
func TestMessagesOverTheBudgetGetOneReplyInTelegram(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		c := openChatroom(t, database, "    allow: [7, 8]\nbudgets: {principal: {tokens: 100}}\n", testtelegram.Config{Drafts: true})
		c.Model.Answer(func(call testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Pieces: []string{"You said: " + call.Last()}, InputTokens: 110, OutputTokens: 10}
		})
		c.Start()
		o := OpenOracle(t, c.Gateway, database)
		for i := range 4 {
			c.Telegram.Say(anna, anna, fmt.Sprintf("message %d", i))
			testrun.Eventually(t, "the message has ended", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state = 'done'") == i+1 })
		}
		c.rest()
		if n, all := c.Count(anna, "This was not answered. Your budget for today is used up"), len(c.Telegram.Texts(anna)); n != 1 || all != 3 {
			t.Errorf("of %d messages %d are the reply; anna reads %q", all, n, c.Telegram.Texts(anna))
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'failed' AND reason = 'budget' AND notice_id IS NOT NULL"); n != 3 {
			t.Errorf("%d messages have the reason, want 3", n)
		}
		c.Close()
	})
}
