package teste2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/signature"
	"laneway/internal/testrun"
)

// cronLease is the lease in the scenarios of this file, after which another process takes over from
// a killed one.
const cronLease = 3 * time.Second

// cronConfig is a gateway whose agent executes the text of a job, with limits that the tests do not
// reach.
const cronConfig = `
cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}
agents:
  main: {runner: echo, script: true}
limits: {chat: 0, requests: 0, cron_writes: 0}
drain_timeout: 2s
`

// connect dials a gateway with its own token; the connection ends with the test or with the
// process.
func connect(tb testing.TB, g *Gateway) *Client {
	tb.Helper()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		tb.Fatalf("connecting: %v\n%s", err, g.Output())
	}
	tb.Cleanup(c.Close)
	return c
}

// jobView is a job as the protocol shows it.
type jobView struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
	Invalid string `json:"invalid"`
	State   struct {
		NextRunAtMs int64 `json:"nextRunAtMs"`
	} `json:"state"`
}

// addJob makes a job; members replace the default ones.
func addJob(tb testing.TB, c *Client, name string, schedule, members map[string]any) jobView {
	tb.Helper()
	var added struct {
		jobView

		Job *jobView `json:"job"` // when the client gave the key
	}
	if err := c.Into(&added, "cron.add", jobParams(name, schedule, members)); err != nil {
		tb.Fatalf("making the job %s: %v", name, err)
	}
	if added.Job != nil {
		return *added.Job
	}
	return added.jobView
}

func jobParams(name string, schedule, members map[string]any) map[string]any {
	p := map[string]any{
		"name": name, "schedule": schedule, "sessionTarget": "isolated", "wakeMode": "now", "extended": true,
		"payload": map[string]any{"kind": "agentTurn", "message": "work of " + name},
	}
	maps.Copy(p, members)
	return p
}

func every(d time.Duration) map[string]any {
	return map[string]any{"kind": "every", "everyMs": d.Milliseconds()}
}

func at(t time.Time) map[string]any {
	return map[string]any{"kind": "at", "at": t.UTC().Format(time.RFC3339Nano)}
}

func saying(text string) map[string]any {
	return map[string]any{"payload": map[string]any{"kind": "agentTurn", "message": text}}
}

// writable opens the database for changes that bypass the gateway.
func writable(tb testing.TB, g *Gateway, url string) *sql.DB {
	tb.Helper()
	driver, dsn := "pgx", url
	if url == "" {
		driver, dsn = "sqlite", "file:"+g.SQLite()+"?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// execute executes a statement and returns the number of changed rows.
func execute(tb testing.TB, db *sql.DB, query string) int64 {
	tb.Helper()
	r, err := db.ExecContext(tb.Context(), query)
	if err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// unfinished counts entries of the ledger that have not ended.
const unfinished = "SELECT count(*) FROM cron_run_logs WHERE state IN ('queued', 'running', 'retrying')"

// retire prevents further fires, directly in the database so that the plan of each job is kept, and
// waits until running ones have ended.
func retire(tb *testing.T, g *Gateway, o *Oracle, database string) {
	tb.Helper()
	execute(tb, writable(tb, g, database), "UPDATE cron_jobs SET enabled = (1 = 0) WHERE owner <> 'system'")
	testrun.Eventually(tb, "every run has ended", func() bool { return o.Count(unfinished) == 0 })
}

// ledgerEntry is a row of the ledger: slots from, from+interval ... until.
type ledgerEntry struct {
	job, trigger, state   string
	from, until, n        int64
	startedAt, finishedAt int64
}

func (o *Oracle) ledger() map[string][]ledgerEntry {
	o.tb.Helper()
	out := map[string][]ledgerEntry{}
	for _, line := range o.Rows(`SELECT job_id, trigger, state, scheduled_for, coalesce(slot_until, scheduled_for), slot_count, coalesce(started_at, 0),
		coalesce(finished_at, 0) FROM cron_run_logs WHERE trigger IN ('schedule', 'catchup') AND owner <> 'system' ORDER BY job_id, scheduled_for`) {
		f := strings.Split(line, "|")
		e := ledgerEntry{job: f[0], trigger: f[1], state: f[2]}
		for i, to := range []*int64{&e.from, &e.until, &e.n, &e.startedAt, &e.finishedAt} {
			var err error
			if *to, err = strconv.ParseInt(f[3+i], 10, 64); err != nil {
				o.tb.Fatalf("%s: %v", line, err)
			}
		}
		out[e.job] = append(out[e.job], e)
	}
	return out
}

// census is the ledger's content about recurring jobs.
type census struct {
	slots, rows, lost, doubled int
	states                     map[string]int
	// late has the delays of starts after their slots in milliseconds, of runs of the trigger
	// schedule.
	late []int64
}

// countSlots enumerates the slots of every recurring job of a test, from its first fire to the
// planned one, and compares them with the ledger: every slot must be in exactly one entry.
func countSlots(t testing.TB, o *Oracle, interval time.Duration, first map[string]int64) census {
	t.Helper()
	c := census{states: map[string]int{}}
	ledger, step := o.ledger(), interval.Milliseconds()
	plan := map[string]int64{}
	for _, line := range o.Rows("SELECT id, coalesce(next_slot, 0) FROM cron_jobs") {
		id, slot, _ := strings.Cut(line, "|")
		plan[id], _ = strconv.ParseInt(slot, 10, 64)
	}
	for id, want := range first {
		if plan[id] == 0 {
			t.Errorf("job %s has no plan", id)
			continue
		}
		for _, e := range ledger[id] {
			c.rows++
			c.states[e.state]++
			if (e.until-e.from)/step+1 != e.n || (e.until-e.from)%step != 0 {
				t.Errorf("an entry of job %s covers %d slots from %d to %d", id, e.n, e.from, e.until)
			}
			switch {
			case e.from > want:
				c.lost += int((e.from - want) / step)
			case e.from < want:
				c.doubled++
			}
			if e.trigger == "schedule" && e.startedAt > 0 {
				c.late = append(c.late, e.startedAt-e.from)
			}
			want = e.until + step
		}
		if plan[id] > want {
			c.lost += int((plan[id] - want) / step)
		}
		c.slots += int((plan[id] - first[id]) / step)
	}
	return c
}

// check fails the test when a slot is missing or duplicate.
func (c census) check(t testing.TB) {
	t.Helper()
	if c.lost+c.doubled > 0 || c.slots == 0 {
		t.Errorf("of %d slots %d are lost and %d doubled", c.slots, c.lost, c.doubled)
	}
	if early := percentile(c.late, 0); early < 0 {
		t.Errorf("a run began %d ms before its slot", -early)
	}
}

func (c census) String() string {
	return fmt.Sprintf("%d slots in %d entries: %v; lost %d, doubled %d; late p50 %d ms, p99 %d ms", c.slots, c.rows, c.states, c.lost, c.doubled,
		percentile(c.late, 50), percentile(c.late, 99))
}

func percentile(list []int64, p int) int64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func runByHand(t *testing.T, c *Client, job string) string {
	t.Helper()
	var run struct{ RunID string }
	if err := c.Into(&run, "cron.run", map[string]any{"id": job}); err != nil || run.RunID == "" {
		t.Fatalf("run %q: %v", run.RunID, err)
	}
	return run.RunID
}

func object(t *testing.T, c *Client, method string, params map[string]any) (out map[string]any) {
	t.Helper()
	if err := c.Into(&out, method, params); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The job is made on the command line, and its receiver is unavailable at first.
func TestAWebhookIsCalledOnceSignedAndOnlyWhereItMay(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const secret = "0123456789abcdef0123456789abcdef"
		var mu sync.Mutex
		var keys, bodies []string
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
			at, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("X-Laneway-Signature"), "t="), ",")
			seconds, bad := strconv.ParseInt(at, 10, 64)
			if err != nil || bad != nil || r.Header.Get("X-Laneway-Signature") != signature.Sign(secret, time.Unix(seconds, 0), body) {
				t.Errorf("the signature is %q (%v, %v)", r.Header.Get("X-Laneway-Signature"), err, bad)
			}
			if r.Header.Get("Authorization") != "Bearer tok-0123456789" {
				t.Errorf("the token is %q", r.Header.Get("Authorization"))
			}
			if len(keys) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer receiver.Close()
		g := Install(t, database, cronConfig+"webhook_allowed_hosts: [127.0.0.1]\ncron: {webhook_secret: "+secret+", webhook_token: tok-0123456789}\n")
		g.Start()
		o := OpenOracle(t, g, database)
		add := func(url string) (string, int) {
			_, stderr, code := g.CLI(t.Context(), "", "cron", "add", "--name", "hook", "--at", "in 1s", "--message", "hello", "--webhook", url)
			return stderr, code
		}
		for _, url := range []string{"http://localhost:9/x", "http://[::1]:9/x", "http://169.254.169.254/latest", "ftp://127.0.0.1/x", "http://a:b@127.0.0.1/x"} {
			if stderr, code := add(url); code != 1 || strings.Count(strings.TrimSpace(stderr), "\n") > 0 || !strings.Contains(stderr, "--webhook: ") {
				t.Errorf("%s: exit %d, %q", url, code, stderr)
			}
		}
		if n := o.Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system'"); n != 0 {
			t.Errorf("%d refused jobs are stored", n)
		}
		if stderr, code := add(receiver.URL); code != 0 {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		testrun.Eventually(t, "delivered", func() bool {
			return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok' AND delivery = 'delivered' AND provider_message_id = 'http-200'") == 1
		})
		mu.Lock()
		defer mu.Unlock()
		if len(keys) != 2 || keys[0] != keys[1] || !strings.HasPrefix(keys[0], "schedule:") || bodies[0] != bodies[1] || !strings.Contains(bodies[0], `"summary":"hello"`) {
			t.Errorf("the receiver got %q %q", keys, bodies)
		}
	})
}
