package teste2e

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
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

// copiedRows must be the same in every copy, as text: the engines differ in the name of one table
// and in the representation of booleans.
var copiedRows = map[string]string{
	"messages":    "SELECT session_key, seq, coalesce(message_id, ''), coalesce(dedupe, ''), body, state, coalesce(outcome, ''), coalesce(run_id, ''), accepted_at FROM inbox",
	"runs":        "SELECT id, session_key, session_id, seq_from, seq_to, state, cause, started_at, coalesce(ended_at, 0) FROM runs",
	"transcripts": "SELECT session_key, session_id, seq, run_id, role, content, at FROM transcript",
	"sessions":    "SELECT key, principal, session_id, epoch, last_seq, taken_seq, done_seq, total_tokens FROM sessions",
	"jobs":        "SELECT id, owner, key, name, schedule, payload, policy, revision, coalesce(next_slot, 0), coalesce(next_run_at, 0), fired, run_count FROM cron_jobs",
	"history":     "SELECT id, job_id, scheduled_for, trigger, state, coalesce(slot_until, 0), slot_count, coalesce(run_id, ''), coalesce(finished_at, 0) FROM cron_run_logs",
	"offers":      "SELECT id, coalesce(run_id, ''), session_key, channel, payload, state, place FROM outbox",
}

// content returns the content of a database, sorted here, because the engines sort text
// differently.
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

// A gateway moves from SQLite to PostgreSQL and back. It is killed under load, its store is copied
// (the first attempt is also killed), it continues on the copy, and is copied back. Nothing is
// lost, a repeated call has no second effect, and every slot of every job is in the ledger once.
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

// killedCopy starts a copy and kills it while a table is being copied; the next attempt continues
// it.
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

// A backup is made while the gateway works, and can be served as a data directory. It is held until
// it is released.
func TestABackupOfARunningGatewayCanBeServed(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	g, restored := Install(t, "", cronConfig), Install(t, "", cronConfig)
	g.Start()
	c := connect(t, g)
	sendMany(t, g, 50)
	neighbours(t, c, 3)
	if _, err := c.Call("chat.send", map[string]any{"sessionKey": "unfinished", "message": "sleep 2s\nawake", "idempotencyKey": "key-late"}, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(restored.Dir, "data")
	file := filepath.Join(g.Dir, "data", "attachments", "outgoing", "a-file")
	if out, err := exec.Command("sh", "-c", "mkdir -p $(dirname "+file+") && echo content > "+file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, errs, code := g.CLI(withTimeout(t, time.Minute), "", "backup", "--json", dir)
	var report struct {
		Dir           string
		DatabaseBytes int64
		Files         int
	}
	if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil || report.Dir != dir || report.DatabaseBytes == 0 || report.Files != 1 {
		t.Fatalf("laneway backup: status %d: %s%s %v", code, out, errs, err)
	}
	if _, errs, code := g.CLI(withTimeout(t, time.Minute), "", "backup", dir); code != 1 || !strings.Contains(errs, "name a new directory") {
		t.Errorf("a second backup into the same directory: status %d: %s", code, errs)
	}
	token := g.Token()
	g.Kill()
	restored.Start()
	if restored.Token() != token {
		t.Error("the backup has another token")
	}
	if out, errs, _ := restored.CLI(withTimeout(t, time.Minute), "", "status"); !strings.Contains(out, "held since") {
		t.Errorf("laneway status of a backup: %s%s", out, errs)
	}
	out, errs, code = restored.CLI(withTimeout(t, time.Minute), "", "release", "--yes")
	if code != 0 || !strings.Contains(out, "unfinished messages run") || !strings.Contains(out, "the gateway is released") {
		t.Errorf("laneway release: status %d: %s%s", code, out, errs)
	}
	restored.answeredOnce(t, "unfinished")
	o := OpenOracle(t, restored, "")
	if n := o.Count("SELECT count(*) FROM inbox WHERE session_key LIKE '%many-%'"); n != 50 {
		t.Errorf("the backup has %d of 50 messages", n)
	}
	retire(t, restored, o, "")
	o.Check(cronLease)
}

// alter executes a statement on the database of a test, beside the gateway.
func alter(t *testing.T, database, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// ready is the answer of /readyz.
func (g *Gateway) ready(t *testing.T, want int, text string) bool {
	t.Helper()
	code, body := g.Get("/readyz")
	return code == want && strings.Contains(body, text)
}

// statusOf returns the status of a gateway on the command line.
func (g *Gateway) statusOf(t *testing.T) string {
	t.Helper()
	out, errs, code := g.CLI(t.Context(), "", "status")
	if code != 0 {
		t.Fatalf("laneway status: %d %s", code, errs)
	}
	return out
}

// Before, a step back of the schema under running gateways made every message fail, while /readyz
// and status reported no problem.
func TestMigrateDownIsRefusedWhileGatewaysRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "")
		g.Start()
		down := []string{"migrate", "down", "--config", g.config}
		if out, errs, code := g.CLI(t.Context(), "", down...); code != 1 || !strings.Contains(errs, "stop") {
			t.Errorf("migrate down under a running gateway: %d %s %s", code, out, errs)
		}
		if !g.ready(t, http.StatusOK, `"migrations":"ok"`) {
			t.Error("the refused step changed something")
		}
		if database == "" {
			return // the lock on the data directory refuses it in any case
		}
		if _, errs, code := g.CLI(t.Context(), "", append(down, "--force")...); code != 2 || !strings.Contains(errs, "--yes") {
			t.Errorf("--force without a terminal: %d %s", code, errs)
		}
		if _, errs, code := g.CLI(t.Context(), "", append(down, "--force", "--yes")...); code != 0 {
			t.Fatalf("--force --yes: %d %s", code, errs)
		}
		if !g.ready(t, http.StatusServiceUnavailable, `"migrations":"failed"`) {
			t.Error("/readyz does not report that a step of the schema is missing")
		}
		if out := g.statusOf(t); !strings.Contains(out, "not healthy") || !strings.Contains(out, "laneway migrate up") {
			t.Errorf("status without a step of the schema:\n%s", out)
		}
		if _, errs, code := g.CLI(t.Context(), "", "migrate", "up", "--config", g.config); code != 0 {
			t.Fatalf("migrate up: %s", errs)
		}
		testrun.Eventually(t, "readiness with the whole schema", func() bool { return g.ready(t, http.StatusOK, "") })
	})
}

// During a rolling upgrade the new program extends the schema; replicas with the old program
// continue with it.
func TestAReplicaStaysReadyWhenANewerProgramExtendsTheSchema(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	alter(t, database, `INSERT INTO laneway_migrations (version_id, is_applied) VALUES (99999, true)`)
	if !g.ready(t, http.StatusOK, `"migrations":"ok"`) {
		code, body := g.Get("/readyz")
		t.Errorf("/readyz with a newer schema: %d %s", code, body)
	}
	if out := g.statusOf(t); strings.Contains(out, "not healthy") {
		t.Errorf("status with a newer schema:\n%s", out)
	}
}

// A database whose disk is full, or that is read-only, answers every read; load balancers and
// operators must see that it refuses messages.
func TestReadinessNoticesThatMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ code, says string }{
		"a full disk": {"53100", "disk of the database is full"}, "a read-only database": {"25006", "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusedMessagesAreNoticed(t, row.code, row.says)
		})
	}
}

func refusedMessagesAreNoticed(t *testing.T, code, says string) {
	t.Helper()
	database := testpg.DB(t)
	g := Install(t, database, "")
	g.Start()
	alter(t, database, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '`+code+`'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusServiceUnavailable {
		t.Fatalf("a refused message: %d %s", a.Status, a.Body)
	}
	if !g.ready(t, http.StatusServiceUnavailable, `"database":"failed"`) {
		t.Error("/readyz does not report that messages are refused")
	}
	if out := g.statusOf(t); !strings.Contains(out, "not healthy") || !strings.Contains(out, says) {
		t.Errorf("status while messages are refused:\n%s", out)
	}
	alter(t, database, `DROP TRIGGER full_disk ON inbox`)
	if a := g.Complete("agent:main:main", "hello"); a.Status != http.StatusOK {
		t.Fatalf("a message with space: %d %s", a.Status, a.Body)
	}
	if !g.ready(t, http.StatusOK, "") {
		t.Error("/readyz does not recover with the first message that is stored")
	}
}
