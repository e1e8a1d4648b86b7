package teste2e

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// copiedRows must be the same in every copy, as text: the engines differ in the name of one table and in the representation of booleans.
var copiedRows = map[string]string{
	"messages":    "SELECT session_key, seq, coalesce(message_id, ''), coalesce(dedupe, ''), body, state, coalesce(outcome, ''), coalesce(run_id, ''), accepted_at FROM inbox",
	"runs":        "SELECT id, session_key, session_id, seq_from, seq_to, state, cause, started_at, coalesce(ended_at, 0) FROM runs",
	"transcripts": "SELECT session_key, session_id, seq, run_id, role, content, at FROM transcript",
	"sessions":    "SELECT key, principal, session_id, epoch, last_seq, taken_seq, done_seq, total_tokens FROM sessions",
	"jobs":        "SELECT id, owner, key, name, schedule, payload, policy, revision, coalesce(next_slot, 0), coalesce(next_run_at, 0), fired, run_count FROM cron_jobs",
	"history":     "SELECT id, job_id, scheduled_for, trigger, state, coalesce(slot_until, 0), slot_count, coalesce(run_id, ''), coalesce(finished_at, 0) FROM cron_run_logs",
	"offers":      "SELECT id, coalesce(run_id, ''), session_key, channel, payload, state, place FROM outbox",
}

// content returns the content of a database, sorted here, because the engines sort text differently.
func content(t *testing.T, g *Gateway, url string) map[string][]string {
	t.Helper()
	o := OpenOracle(t, g, url)
	defer o.Close()
	all := map[string][]string{}
	for name, query := range copiedRows {
		all[name] = o.Rows(query)
		slices.Sort(all[name])
	}
	return all
}

func sameContent(t *testing.T, what string, a, b map[string][]string) {
	t.Helper()
	for name := range copiedRows {
		if !slices.Equal(a[name], b[name]) {
			t.Errorf("%s: %d %s there and %d here, or with other values", what, len(a[name]), name, len(b[name]))
		}
	}
}

// A gateway moves from SQLite to PostgreSQL and back. It is killed under load, its store is copied (the first attempt is also killed), it
// continues on the copy, and is copied back. Nothing is lost, a repeated call has no second effect, and every slot of every job is in the
// ledger once.
func TestAStoreIsCopiedThereAndBackAndJobsFireOnce(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	messages, jobs := testrun.Size(300, 100_000), testrun.Size(60, 10_000)
	url := testpg.Empty(t)
	small, large, last := Install(t, "", cronConfig), Install(t, url, cronConfig), Install(t, "", cronConfig)
	small.Start()
	c := connect(t, small)
	sendMany(t, small, messages)
	addMany(t, small, jobs)
	first := neighbours(t, c, 5)
	o := OpenOracle(t, small, "")
	testrun.Eventually(t, "the jobs have a history", func() bool {
		return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") >= 10
	})
	repeated := map[string]any{"sessionKey": "unfinished", "message": "sleep 5s\nawake", "idempotencyKey": "key-of-the-unfinished"}
	if _, err := c.Call("chat.send", repeated, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	o.Close()
	small.Kill()

	killedCopy(t, small, "runs", "--from", "sqlite:"+small.SQLite(), "--to", url)
	before := content(t, small, "")
	out := storeCopied(t, small, "--from", "sqlite:"+small.SQLite(), "--to", url)
	sameContent(t, "from SQLite to PostgreSQL", before, content(t, small, url))
	t.Logf("to PostgreSQL:\n%s", out)

	large.Start()
	c = connect(t, large)
	if _, err := c.Call("chat.send", repeated, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	large.answeredOnce(t, "unfinished")
	refusedCopy(t, large, url, "sqlite:"+small.SQLite())
	large.Signal(syscall.SIGTERM)
	if _, code := large.WaitExit(30 * time.Second); code != 0 {
		t.Fatalf("it ended with %d", code)
	}

	before = content(t, large, url)
	storeCopied(t, last, "--from", url, "--to", "sqlite:"+last.SQLite())
	sameContent(t, "from PostgreSQL to SQLite", before, content(t, last, ""))
	last.Start()
	ran := OpenOracle(t, last, "")
	testrun.Eventually(t, "jobs fire", func() bool {
		return ran.Count("SELECT count(*) FROM cron_run_logs") > len(before["history"])+10
	})
	retire(t, last, ran, "")
	found := countSlots(t, ran, time.Second, first)
	found.check(t)
	ran.Check(cronLease)
	t.Logf("%d messages, %d jobs: %s", messages, jobs, found)
}

// sendMany sends messages in sessions of five.
func sendMany(t *testing.T, g *Gateway, n int) {
	t.Helper()
	callMany(t, g, n, func(c *Client, i int) error {
		_, err := c.Call("chat.send", map[string]any{
			"sessionKey": fmt.Sprintf("many-%d", i/5), "message": fmt.Sprintf("message %d ß 😀", i), "idempotencyKey": fmt.Sprintf("key-%d", i),
		}, time.Minute)
		return err
	})
	o := OpenOracle(t, g, "")
	defer o.Close()
	testrun.Eventually(t, "every message has its outcome", func() bool {
		return o.Count("SELECT count(*) FROM inbox WHERE ended_at IS NOT NULL AND session_key LIKE '%many-%'") == n
	})
}

// addMany makes jobs that do not fire during the test.
func addMany(t *testing.T, g *Gateway, n int) {
	t.Helper()
	callMany(t, g, n, func(c *Client, i int) error {
		return c.Into(&struct{}{}, "cron.add", jobParams(fmt.Sprintf("many %d", i), every(24*time.Hour), nil))
	})
}

// callMany calls fn for 0 to n-1 from eight connections.
func callMany(t *testing.T, g *Gateway, n int, fn func(c *Client, i int) error) {
	t.Helper()
	var (
		next  atomic.Int64
		group sync.WaitGroup
	)
	for range 8 {
		c := connect(t, g)
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := fn(c, i); err != nil {
					t.Errorf("call %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// storeCopied runs the command to its end.
func storeCopied(t *testing.T, g *Gateway, args ...string) string {
	t.Helper()
	began := time.Now()
	out, errs, code := g.CLI(withTimeout(t, 10*time.Minute), "", append([]string{"store", "copy"}, args...)...)
	if code != 0 {
		t.Fatalf("laneway store copy: status %d: %s", code, errs)
	}
	if !strings.Contains(out, "is equal to") {
		t.Errorf("laneway store copy does not report the comparison: %s", out)
	}
	return fmt.Sprintf("%s%s\nin %s", errs, out, time.Since(began).Round(time.Millisecond))
}

// killedCopy starts a copy and kills it while a table is being copied; the next attempt continues it.
func killedCopy(t *testing.T, g *Gateway, table string, args ...string) {
	t.Helper()
	cmd := exec.Command(g.binary, append([]string{"store", "copy"}, args...)...)
	cmd.Env = g.env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "copy "+table+":") && !killed {
			killed = true
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || !killed {
		t.Fatalf("the copy was not killed: %v", err)
	}
}

// refusedCopy: a store that a gateway uses is neither copied nor written to.
func refusedCopy(t *testing.T, g *Gateway, url, source string) {
	t.Helper()
	other := "sqlite:" + filepath.Join(t.TempDir(), "other.db")
	for _, sides := range [][]string{{"--from", url, "--to", other}, {"--from", source, "--to", url}} {
		_, errs, code := g.CLI(withTimeout(t, time.Minute), "", append([]string{"store", "copy"}, sides...)...)
		if code != 1 || !strings.Contains(errs, "gateways use this database") {
			t.Errorf("laneway store copy %v: status %d: %s", sides, code, errs)
		}
	}
}
