package teste2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// TestTheSessionOfAnIsolatedRunIsLikeEveryOther runs a job by hand, reads its session, lets its process die, and then talks to it.
func TestTheSessionOfAnIsolatedRunIsLikeEveryOther(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		j := addJob(t, c, "digest", every(time.Hour), saying("the digest"))
		run := runByHand(t, c, j.ID)
		o := OpenOracle(t, g, database)
		ended := func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE id = '"+run+"' AND state = 'ok'") == 1
		}
		testrun.Eventually(t, "the run ends", ended)
		rows := func() int {
			return o.Count(`SELECT (SELECT count(*) FROM sessions WHERE key LIKE '%:cron:%') + (SELECT count(*) FROM inbox WHERE message_id = '` + run + `')
				+ (SELECT count(*) FROM runs WHERE id = '` + run + `')`)
		}
		if n := rows(); n != 3 {
			t.Errorf("the run has %d rows besides that of the ledger, want a session, a message and a turn", n)
		}
		session := strings.Join(o.Rows("SELECT session_key FROM cron_run_logs WHERE id = '"+run+"'"), "")
		texts := func(c *Client) []string { return notes(t, c, session, "") }
		before := texts(c)
		if len(before) != 2 || !strings.Contains(before[0], "the digest") || !strings.Contains(before[1], "the digest") {
			t.Fatalf("the transcript has %q, want the job's text and the answer", before)
		}
		if got := object(t, c, "sessions.describe", map[string]any{"key": session}); got["session"] == nil {
			t.Errorf("the session is described as %v", got)
		}
		g.Kill()
		g.Start()
		c = connect(t, g)
		if got := texts(c); !slices.Equal(got, before) {
			t.Errorf("after a kill the transcript has %q, want %q", got, before)
		}
		say(t, c, session, "next", "and now?")
		testrun.Eventually(t, "the next message is answered", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE message_id = 'next' AND outcome = 'answered' AND seq = 2") == 1
		})
		if got := texts(c); len(got) != 4 || !slices.Equal(got[:2], before) {
			t.Errorf("the conversation is %q, want it to go on behind %q", got, before)
		}
		if n := rows(); n != 3 {
			t.Errorf("the run has %d rows besides that of the ledger after the next message, want the same 3", n)
		}
		o.Check(cronLease)
	})
}
