package teste2e

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// Two bots run in one process. Their updates have the same numbers, and the same person writes to both: each has its own people,
// conversations and faults.
func TestTwoBotsShareAGatewayAndNothingElse(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		work := testtelegram.New(testtelegram.Config{Token: "555555555:WORK-Token-canary-9876543210zyxwvutsrqp", Username: "work_bot", Drafts: true})
		work.AddPrivate(anna, "Anna")
		work.AddPrivate(bob, "Bob")
		api := httptest.NewServer(work)
		t.Cleanup(api.CloseClientConnections)
		t.Cleanup(api.Close)
		c := openChatroom(t, database, fmt.Sprintf("    token_env: TELEGRAM_TOKEN\n    accounts:\n"+
			"      work: {token_env: WORK_BOT, api_url: %s, poll_timeout: 5s, access: allowlist, allow: [8]}\n", api.URL), testtelegram.Config{Drafts: true})
		c.env = append(c.env, "WORK_BOT="+work.Token())
		c.Model.Answer(storyteller)
		c.Start()
		ctx := withTimeout(t, 2*time.Minute)
		c.Await("the first bot polls", c.Telegram.Polling)
		await := func(what string, ok func() bool) {
			t.Helper()
			if err := work.Await(ctx, ok); err != nil {
				t.Fatalf("%s: %v; anna reads %q, bob %q", what, err, work.Texts(anna), work.Texts(bob))
			}
		}
		last := func(chat int64) string {
			texts := work.Texts(chat)
			return strings.Join(texts[max(0, len(texts)-1):], "")
		}

		c.LetIn(anna) // only by the bot of the family, not by the other one
		work.Say(anna, anna, "let me in")
		await("anna is refused at work", func() bool { return strings.Contains(last(anna), "people on its list only") })

		work.Say(bob, bob, "the plan for Monday")
		await("bob is answered at work", func() bool { return strings.Contains(last(bob), "the plan for Monday") })
		c.Telegram.Say(anna, anna, "the plan for the birthday")
		c.Says(anna, "the plan for the birthday")
		for _, call := range c.Model.Calls() {
			if body := string(call.Body); strings.Contains(body, "Monday") && strings.Contains(body, "birthday") {
				t.Errorf("the conversations of two bots are mixed: %s", body)
			}
		}

		// The faults of one do not affect the other.
		c.Telegram.BreakAlways(testtelegram.Fault{HTML: 502})
		began := time.Now()
		work.Say(bob, bob, "are you still there?")
		await("the other bot answers", func() bool { return strings.Contains(last(bob), "are you still there?") })
		t.Logf("with one bot's Telegram away the other answered after %s", time.Since(began).Round(time.Millisecond))
		testrun.Eventually(t, "status tells them apart", func() bool {
			out, _, _ := c.CLI(ctx, "", "status")
			return regexp.MustCompile(`telegram +default +degraded`).MatchString(out) && regexp.MustCompile(`telegram +work +connected`).MatchString(out)
		})
		c.Telegram.Mend()
		c.Telegram.Say(anna, anna, "and you?")
		c.Says(anna, "and you?")
		for _, v := range work.Violations() {
			t.Errorf("the other fake server complains: %s", v)
		}
		c.Close()
	})
}
