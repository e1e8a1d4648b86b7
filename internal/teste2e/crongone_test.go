package teste2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
	"laneway/internal/testtelegram"
)

// TestAJobWhoseChatIsGoneIsTriedOnceReportedAndGoesOnAfterAnEdit blocks the bot in the chat of a job, and kills the process while the first answer is on its
// way: it is tried again once, the owner hears of it once, later runs send nothing, and an edit of the delivery heals it.
func TestAJobWhoseChatIsGoneIsTriedOnceReportedAndGoesOnAfterAnEdit(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		c := killroom(t, database)
		c.Telegram.Block(anna)
		c.Telegram.Break("sendMessage", testtelegram.Fault{Hang: true})
		ctx := withTimeout(t, time.Minute)
		do := func(args ...string) string {
			t.Helper()
			out, errs, code := c.CLI(ctx, "", append([]string{"cron"}, args...)...)
			if code != 0 {
				t.Fatalf("cron %q: exit %d, %s", args, code, errs)
			}
			return out
		}
		do("add", "--name", "digest", "--every", "1h", "--message", "news", "--deliver", "telegram:7")
		do("run", "digest")
		c.Await("the sending", func() bool { return len(c.Telegram.Calls("sendMessage")) == 1 })
		c.Restart()
		o := OpenOracle(t, c.Gateway, database)
		testrun.Eventually(t, "the delivery of the job is paused", func() bool {
			return o.Count("SELECT count(*) FROM cron_jobs WHERE name = 'digest' AND delivery_paused_why = 'blocked' AND delivery_paused_chat = '7'") == 1
		})
		do("run", "digest")
		testrun.Eventually(t, "the second run is over", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name = 'digest' AND state = 'ok'") == 2
		})
		refused := 0
		for _, call := range c.Telegram.Calls("sendMessage") {
			if call.Code == 403 {
				refused++
			}
		}
		if all := len(c.Telegram.Calls("sendMessage")); refused != 1 || all != 2 {
			t.Errorf("Telegram refused %d of %d messages, want one, and one that the kill has cut", refused, all)
		}
		wantRows(t, o, "SELECT delivery, delivery_error FROM cron_run_logs WHERE job_name = 'digest' ORDER BY scheduled_for",
			"unknown|blocked", "not-delivered|delivery is paused: blocked") // what the kill has cut may have arrived
		if n := o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:main' AND content LIKE '%digest%not sent any more%'"); n != 1 {
			t.Errorf("the owner was told %d times", n)
		}
		if n := o.Count("SELECT count(*) FROM outbox WHERE chat_id = '7'"); n != 1 {
			t.Errorf("%d rows for the chat that is gone", n)
		}
		if out := do("list"); !strings.Contains(out, "enabled, not sent: blocked") {
			t.Errorf("cron list shows %s", out)
		}
		if out := do("get", "digest", "--json"); !strings.Contains(out, `"deliveryPaused"`) {
			t.Errorf("cron get shows %s", out)
		}
		do("edit", "digest", `{"delivery":{"to":"8"}}`)
		do("run", "digest")
		c.Await("the answer in the other chat", func() bool { return strings.Contains(strings.Join(c.Telegram.Texts(bob), "\n"), "news") })
		if out := do("list"); strings.Contains(out, "not sent") {
			t.Errorf("after the edit cron list shows %s", out)
		}
		c.rest()
		c.Close()
	})
}

func wantRows(t *testing.T, o *Oracle, query string, want ...string) {
	t.Helper()
	got := o.Rows(query)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", query, got, want)
	}
}
