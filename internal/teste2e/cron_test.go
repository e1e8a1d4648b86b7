package teste2e

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/signature"
	"laneway/internal/testrun"
	"laneway/internal/wire"
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

// whySlot is a slot with its verdict, and how the sentence begins.
type whySlot struct {
	job, id string
	at      time.Time
	text    string
}

// TestEveryVerdictAboutASlotIsOneSentenceInCallCommandAndChat makes a situation for each verdict
// that the source declares.
func TestEveryVerdictAboutASlotIsOneSentenceInCallCommandAndChat(t *testing.T) {
	source, err := os.ReadFile("../cron/explain.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tWhy\w+ +Why = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 20 {
		t.Fatalf("the source declares %d verdicts", len(declared))
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		w := &whyWorld{t: t, g: g, c: connect(t, g), events: watch(t, g)}
		slots := w.situations(database)
		for _, v := range declared {
			why := cron.Why(v[1])
			slot, ok := slots[why]
			if !ok {
				t.Errorf("the verdict %q has no situation here", why)
				continue
			}
			if why == cron.WhyHeld {
				w.run("hold", "--reason", "moving")
			}
			w.compare(why, slot)
			if why == cron.WhyHeld {
				w.run("release", "--yes")
			}
		}
	})
}

type whyWorld struct {
	t      *testing.T
	g      *Gateway
	c      *Client
	events *runEvents
	asked  int
}

// daily is 09:00 UTC of the day so many days ago, the slot of every job here.
func daily(ago int) time.Time {
	return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -ago).Add(9 * time.Hour)
}

// situations makes the jobs, changes them by calls, and writes what takes days or a crash into the
// tables.
func (w *whyWorld) situations(database string) map[cron.Why]whySlot {
	t, db := w.t, writable(w.t, w.g, database)
	ids := map[string]string{}
	cronAt := func(expr, tz string) map[string]any {
		return map[string]any{"kind": "cron", "expr": expr, "tz": tz}
	}
	for _, name := range []string{"digest", "paused", "disabled", "broken", "moved", "last year"} {
		ids[name] = addJob(t, w.c, name, cronAt("0 9 * * *", "UTC"), nil).ID
	}
	ids["ending"] = addJob(t, w.c, "ending", cronAt("0 9 * * *", "UTC"), map[string]any{"endsAtMs": time.Now().Add(36 * time.Hour).UnixMilli()}).ID
	ids["gap"] = addJob(t, w.c, "gap", cronAt("30 2 * * *", "Europe/Berlin"), map[string]any{"dst": map[string]any{"gap": "skip"}}).ID
	made := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	execute(t, db, fmt.Sprintf(`UPDATE cron_jobs SET created_at = %d, activated_at = %[1]d WHERE owner <> 'system'`, made.UnixMilli()))
	execute(t, db, `UPDATE cron_jobs SET schedule = '{"kind":"weekly"}' WHERE id = '`+ids["broken"]+`'`)
	row := func(job string, ago int, state cron.RunState, members string) {
		at, finished := daily(ago).UnixMilli(), "NULL"
		if state.Final() {
			finished = strconv.FormatInt(at+6206, 10)
		}
		execute(t, db, fmt.Sprintf(`INSERT INTO cron_run_logs (id, job_id, job_name, owner, agent, lane, scheduled_for, trigger, state, fire_at, started_at, finished_at, duration_ms, attempt,
				reason, error, node, claimed_at, next_attempt_at)
			SELECT 'schedule:' || id || ':%d', id, name, owner, agent, lane, %[1]d, 'schedule', '%[2]s', %[1]d, %[1]d + 6, %[3]s, 6200, 1, %[4]s FROM cron_jobs WHERE id = '%[5]s'`,
			at, state, finished, cmp.Or(members, fmt.Sprintf(`NULL, '', 'gw-1', %d, NULL`, at)), ids[job]))
	}
	row("digest", 2, cron.RunOK, "")
	row("digest", 3, cron.RunError, fmt.Sprintf(`NULL, 'the model refused the key', 'gw-1', %d, NULL`, daily(3).UnixMilli()))
	row("digest", 4, cron.RunRunning, "")
	row("digest", 5, cron.RunRetrying, fmt.Sprintf(`NULL, 'overloaded', 'gw-1', %d, %d`, daily(5).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()))
	row("digest", 6, cron.RunQueued, "")
	row("digest", 7, cron.RunSkipped, fmt.Sprintf(`'overlap', '', 'gw-1', %d, NULL`, daily(7).UnixMilli()))
	row("digest", 8, cron.RunMissed, fmt.Sprintf(`'window', '', 'gw-1', %d, NULL`, daily(8).Add(81*time.Minute).UnixMilli()))
	row("digest", 9, cron.RunCancelled, fmt.Sprintf(`'stopped', 'wrong text', 'gw-1', %d, NULL`, daily(9).UnixMilli()))
	row("digest", 10, cron.RunInterrupted, fmt.Sprintf(`NULL, 'the gateway ended three times', 'gw-1', %d, NULL`, daily(10).UnixMilli()))
	row("last year", 3, cron.RunOK, "")
	execute(t, db, fmt.Sprintf(`INSERT INTO cron_outages (from_at, until_at) VALUES (%d, %d), (%d, NULL)`,
		daily(8).Add(-2*time.Minute).UnixMilli(), daily(8).Add(81*time.Minute).UnixMilli(), daily(1).Add(-2*time.Minute).UnixMilli()))
	object(t, w.c, "cron.pause", map[string]any{"id": ids["paused"], "note": "holidays"})
	object(t, w.c, "cron.update", map[string]any{"id": ids["disabled"], "patch": map[string]any{"enabled": false}})
	object(t, w.c, "cron.update", map[string]any{"id": ids["moved"], "patch": map[string]any{"schedule": cronAt("0 8 * * *", "UTC")}})
	object(t, w.c, "cron.remove", map[string]any{"id": ids["last year"]})
	slots := map[cron.Why]whySlot{
		cron.WhyRan:         {job: "digest", at: daily(2), text: "It ran at "},
		cron.WhyFailed:      {job: "digest", at: daily(3), text: "It ran at "},
		cron.WhyRunning:     {job: "digest", at: daily(4), text: "It has been running since "},
		cron.WhyRetrying:    {job: "digest", at: daily(5), text: "Attempt 1 failed (overloaded); the next one is at "},
		cron.WhyWaiting:     {job: "digest", at: daily(6), text: "It was claimed at "},
		cron.WhySkipped:     {job: "digest", at: daily(7), text: "Another run of the job was active"},
		cron.WhyMissed:      {job: "digest", at: daily(8), text: "No replica fired jobs from "},
		cron.WhyCancelled:   {job: "digest", at: daily(9), text: "It was stopped: wrong text."},
		cron.WhyInterrupted: {job: "digest", at: daily(10), text: "It ran at "},
		cron.WhyUnknown:     {job: "digest", at: daily(11), text: "The ledger has no row for this slot, and nothing explains it."},
		cron.WhyHeld:        {job: "digest", at: daily(12), text: "The gateway is held"},
		cron.WhyNoReplica:   {job: "digest", at: daily(1), text: "No replica has fired jobs since "},
		cron.WhyUnplanned:   {job: "digest", at: daily(1).Add(time.Hour), text: "It is no slot of the schedule. The nearest slots are "},
		cron.WhyMadeLater:   {job: "digest", at: made.AddDate(0, 0, -1), text: "The job was made at Wed 1 Jan 00:00."},
		cron.WhyForgotten:   {job: "digest", at: daily(60), text: "The ledger keeps its rows since "},
		cron.WhyNotDue:      {job: "digest", at: daily(-3), text: "It is due in "},
		cron.WhyPaused:      {job: "paused", at: daily(-3), text: "The job has been paused since "},
		cron.WhyDisabled:    {job: "disabled", at: daily(-3), text: "The job is disabled"},
		cron.WhyEnded:       {job: "ending", at: daily(-3), text: "The job ends at "},
		cron.WhyInvalid:     {job: "broken", at: daily(2), text: "The stored job cannot be understood: "},
		cron.WhyChanged:     {job: "moved", at: daily(2), text: "It is no slot of the present schedule, which was changed at "},
		cron.WhyClock:       {job: "gap", at: time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC), text: "The clock went forward at Sun 29 Mar 03:00"},
		cron.WhyRemoved:     {job: "last year", at: daily(2), text: "The job was removed, and the ledger has no slot at that time."},
	}
	for why, slot := range slots {
		slot.id = ids[slot.job]
		slots[why] = slot
	}
	return slots
}

// compare asks about a slot in three ways. It asks the first way again at the end: a sentence with
// a duration changes with the clock.
func (w *whyWorld) compare(why cron.Why, slot whySlot) {
	w.t.Helper()
	at := slot.at.Format("2006-01-02T15:04:05Z")
	for {
		before := w.called(slot.id, at)
		first, command, _ := strings.Cut(w.run("cron", "why", slot.job, at), "\n")
		command, _, _ = strings.Cut(command, "Changed since: ")
		w.asked++
		key := fmt.Sprint("why-", w.asked)
		say(w.t, w.c, "agent:main:main", key, "/cron why "+slot.job+" "+at)
		chat := w.events.await(w.t, key).text
		if w.called(slot.id, at) != before {
			continue
		}
		verdict, sentence, _ := strings.Cut(before, "\n")
		if verdict != string(why) || !strings.HasPrefix(sentence, slot.text) {
			w.t.Errorf("the verdict is %s: %s\nwant %s: %s", verdict, sentence, why, slot.text)
		}
		if command = strings.TrimSuffix(command, "\n"); command != sentence || chat != sentence || !strings.HasSuffix(first, "  "+string(why)) {
			w.t.Errorf("%s\nby cron.explain: %s\nby laneway cron why (%s): %s\nby /cron why: %s", why, sentence, first, command, chat)
		}
		return
	}
}

// called is the verdict of cron.explain and its sentence.
func (w *whyWorld) called(id, at string) string {
	w.t.Helper()
	var reply wire.CronExplainResult
	if err := w.c.Into(&reply, "cron.explain", map[string]any{"id": id, "at": at}); err != nil || len(reply.Slots) != 1 {
		w.t.Fatalf("cron.explain %s %s: %+v, %v", id, at, reply, err)
	}
	s := reply.Slots[0]
	text := s.Why + "\n" + s.Text
	if s.Cure != "" {
		text += "\nWhat to do: " + s.Cure
	}
	return text
}

func (w *whyWorld) run(args ...string) string {
	w.t.Helper()
	out, errs, code := w.g.CLI(w.t.Context(), "", args...)
	if code != 0 {
		w.t.Fatalf("laneway %q: %d\n%s%s", args, code, out, errs)
	}
	return out
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
