package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// agentThatMarks is an agent that records when it begins and ends a run, so that a test knows what
// was executed independently of the rows.
type agentThatMarks struct{ file string }

// marksVariable makes the test binary that agent; it names the file of its marks.
const marksVariable = "LANEWAY_TEST_MARKS"

func newAgentThatMarks(t *testing.T) (a agentThatMarks, config string) {
	t.Helper()
	a.file = filepath.Join(t.TempDir(), "marks")
	program := fmt.Sprintf("{runner: command, command: [%q], env: {%s: %q}}", ownBinary(t), marksVariable, a.file)
	return a, strings.Replace(cronConfig, "{runner: echo, script: true}", program, 1)
}

// markRun is the program of the agent. A run takes 300 ms.
func markRun() error {
	marks, err := os.OpenFile(os.Getenv(marksVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	run := os.Getenv("LANEWAY_RUN_ID")
	_, began := marks.WriteString("begin " + run + "\n")
	time.Sleep(300 * time.Millisecond)
	_, ended := marks.WriteString("end " + run + "\n")
	fmt.Println("done")
	return errors.Join(began, ended, marks.Close())
}

// count returns how often a mark of a run was made.
func (a agentThatMarks) count(mark, run string) int {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return 0
	}
	return strings.Count(string(text), mark+" "+run+"\n")
}

// killMoment is a moment in the life of a run: reach waits for it, the kill follows, and was
// reports whether the remaining rows show it.
type killMoment struct {
	name  string
	reach func(k *killScene, run string)
	after func(k *killScene)
	// state of the ledger, and begun: how often the agent had started.
	state string
	begun int
	// atLeast is how often the agent starts in total.
	atLeast int
}

// killScene is one installation whose process is killed at chosen moments.
type killScene struct {
	*testing.T
	g        *Gateway
	o        *Oracle
	agent    agentThatMarks
	database string
	db       *sql.DB
	held     *sql.Conn
}

func killMoments() []killMoment {
	return []killMoment{
		{name: "while it runs", state: "running", begun: 1, atLeast: 2, reach: func(k *killScene, run string) {
			k.until("the agent has begun", func() bool { return k.agent.count("begin", run) == 1 })
		}},
		{name: "between the end and the record", state: "running", begun: 1, atLeast: 2, after: (*killScene).release, reach: func(k *killScene, run string) {
			k.until("the agent has begun", func() bool { return k.agent.count("begin", run) == 1 })
			k.hold(run)
			k.until("the agent is done", func() bool { return k.agent.count("end", run) == 1 })
			pause(100 * time.Millisecond)
		}},
	}
}

// until polls at short intervals, because the moments are short.
func (k *killScene) until(what string, ok func() bool) {
	k.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			k.Fatalf("never: %s\n%s", what, k.g.Output())
		}
		pause(2 * time.Millisecond)
	}
}

// hold prevents the gateway from recording the end of a run.
func (k *killScene) hold(run string) {
	k.Helper()
	ctx := context.Background()
	var err error
	if k.held, err = k.db.Conn(ctx); err != nil {
		k.Fatal(err)
	}
	begin, lock := "BEGIN IMMEDIATE", ""
	if k.database != "" {
		begin, lock = "BEGIN", "SELECT 1 FROM cron_run_logs WHERE id = '"+run+"' FOR UPDATE"
	}
	// SQLite has no queue for writers: another writer beside a busy gateway may fail to get the
	// lock many times.
	k.until("the file is ours", func() bool {
		if _, err = k.held.ExecContext(ctx, begin); err != nil && !strings.Contains(err.Error(), "database is locked") {
			k.Fatalf("%s: %v", begin, err)
		}
		return err == nil
	})
	if _, err := k.held.ExecContext(ctx, lock); err != nil {
		k.Fatalf("%s: %v", lock, err)
	}
}

// release releases the lock when the process is dead. On PostgreSQL, its waiting statements are
// cancelled, so that they are not executed.
func (k *killScene) release() {
	k.Helper()
	if k.database != "" {
		k.o.Rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		k.until("the backends have ended", func() bool {
			return k.o.Count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0
		})
	}
	if _, err := k.held.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		k.Fatal(err)
	}
	_ = k.held.Close()
}

// The process is killed with SIGKILL at each moment in the life of a run, while other jobs fire
// each second.
func TestAKillAtAnyMomentOfARunLosesNoSlotAndDoublesNone(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		rounds := testrun.Size(9, 200)
		agent, config := newAgentThatMarks(t)
		k := &killScene{T: t, g: Install(t, database, config).AtOnce(), agent: agent, database: database}
		k.g.Start()
		k.o, k.db = OpenOracle(t, k.g, database), writable(t, k.g, database)
		c := connect(t, k.g)
		first := ticking(t, c, 4, 4, "done")
		c.Close()
		moments, hits := killMoments(), map[string]int{}
		atLeast := map[string]int{}
		for i := range rounds {
			m := moments[i%len(moments)]
			run, hit := k.round(fmt.Sprintf("reminder %d", i), m)
			atLeast[run] = 1
			if hit {
				hits[m.name]++
				atLeast[run] = m.atLeast
			}
		}
		testrun.Eventually(t, "every reminder has an end", func() bool { return k.o.Count(unfinished+" AND job_name LIKE 'reminder%'") == 0 })
		retire(t, k.g, k.o, database)
		k.judge(atLeast)
		found := countSlots(t, k.o, time.Second, first)
		found.check(t)
		k.o.Check(cronLease)
		for _, m := range moments {
			if hits[m.name] == 0 {
				t.Errorf("no kill came %s", m.name)
			}
		}
		t.Logf("%d kills: %v; other jobs: %s", rounds, hits, found)
	})
}

// round makes a reminder, kills the process at the moment and starts it again. hit reports whether
// the remaining rows show the moment.
func (k *killScene) round(name string, m killMoment) (run string, hit bool) {
	k.Helper()
	c, err := Dial(k.g.URL(), k.g.Token(), nil)
	if err != nil {
		k.Fatal(err)
	}
	due := time.Now().Add(600 * time.Millisecond).Truncate(time.Millisecond)
	j := addJob(k, c, name, at(due), nil)
	run = fmt.Sprintf("schedule:%s:%d", j.ID, due.UnixMilli())
	m.reach(k, run)
	k.g.Kill()
	c.Close()
	if m.after != nil {
		m.after(k)
	}
	state := strings.Join(k.o.Rows("SELECT state FROM cron_run_logs WHERE id = '"+run+"'"), " ")
	hit = state == m.state && k.agent.count("begin", run) == m.begun
	if !hit {
		k.Logf("%s: killed %s, but the ledger says %q and the agent began %d times", name, m.name, state, k.agent.count("begin", run))
	}
	k.g.Start()
	return run, hit
}

// judge checks the end of every reminder: one entry, ok, and executed as often as the kills
// require. A reminder that was killed three times is abandoned.
func (k *killScene) judge(atLeast map[string]int) {
	k.Helper()
	for run, least := range atLeast {
		ends := k.o.Rows("SELECT c.state, coalesce(r.crashes, 0) FROM cron_run_logs c LEFT JOIN runs r ON r.id = c.run_id WHERE c.id = '" + run + "'")
		begun := k.agent.count("begin", run)
		switch {
		case len(ends) != 1:
			k.Errorf("%s has the entries %v", run, ends)
		case strings.HasPrefix(ends[0], "interrupted|") && ends[0] >= "interrupted|3": // one more when it arrived just before it was abandoned
			k.Logf("%s met three kills", run)
		case !strings.HasPrefix(ends[0], "ok|"), begun < least, k.agent.count("end", run) < 1:
			k.Errorf("%s ended %s, begun %d times, want ok and at least %d", run, ends[0], begun, least)
		}
	}
	if n := k.o.Count("SELECT count(*) FROM cron_run_logs WHERE job_name LIKE 'reminder%'"); n != len(atLeast) {
		k.Errorf("%d entries for %d reminders", n, len(atLeast))
	}
}

// ticking makes jobs that fire each second, and returns their first slots; each nth of them works
// for a while.
func ticking(t *testing.T, c *Client, jobs, nth int, work string) map[string]int64 {
	t.Helper()
	first := map[string]int64{}
	for i := range jobs {
		text := "done"
		if i%nth == 0 {
			text = work
		}
		j := addJob(t, c, fmt.Sprintf("tick %d", i), every(time.Second), saying(text))
		first[j.ID] = j.State.NextRunAtMs
	}
	return first
}

// Jobs fire each second on two and on three replicas, and one of the replicas is killed repeatedly.
func TestReplicasShareTheSlotsAndLoseNoneWhenOneIsKilled(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	for _, replicas := range []int{2, 3} {
		t.Run(strconv.Itoa(replicas), func(t *testing.T) {
			t.Parallel()
			jobs, kills := testrun.Size(30, 100), testrun.Size(4, 50)
			database := testpg.DB(t)
			var all []*Gateway
			for range replicas {
				g := Install(t, database, cronConfig).AtOnce()
				g.Start()
				all = append(all, g)
			}
			first := ticking(t, connect(t, all[0]), jobs, 3, "sleep 300ms")
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			dice := rand.New(rand.NewPCG(seed, 1))
			for i := range kills {
				pause(time.Duration(2000+dice.IntN(1000)) * time.Millisecond)
				victim := all[i%replicas]
				victim.Kill()
				pause(time.Duration(dice.IntN(1500)) * time.Millisecond)
				victim.Start()
			}
			pause(cronLease + 2*time.Second)
			o := OpenOracle(t, all[0], database)
			retire(t, all[0], o, database)
			found := countSlots(t, o, time.Second, first)
			found.check(t)
			o.Check(cronLease)
			// A run that was interrupted by three kills is abandoned.
			bad := o.Rows(`SELECT c.job_id, c.scheduled_for, c.state, c.error FROM cron_run_logs c LEFT JOIN runs r ON r.id = c.run_id
				WHERE c.state NOT IN ('ok', 'skipped', 'missed') AND c.owner <> 'system' AND NOT (c.state = 'interrupted' AND coalesce(r.crashes, 0) >= 3)`)
			if len(bad) > 0 {
				t.Errorf("%d runs ended otherwise, such as %s", len(bad), bad[0])
			}
			nodes := o.Count("SELECT count(DISTINCT node) FROM cron_run_logs WHERE state = 'ok'")
			if nodes < replicas {
				t.Errorf("only %d processes ran anything", nodes)
			}
			t.Logf("%d replicas, %d jobs each second, %d kills, %d processes: %s", replicas, jobs, kills, nodes, found)
		})
	}
}

// pause gives real processes time to work.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// Jobs fire each second on two replicas. One of them is always being restarted as in an upgrade, or
// stopped for longer than its lease and continued. The other continues, and the stopped one changes
// nothing that it no longer owns.
func TestEverySlotFiresOnceWhileReplicasRestartOrSleep(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	restart := func(t *testing.T, g *Gateway) {
		t.Helper()
		g.Signal(syscall.SIGTERM)
		if _, code := g.WaitExit(20 * time.Second); code != 0 {
			t.Errorf("it ended with code %d\n%s", code, g.Output())
		}
		g.Start()
	}
	sleep := func(t *testing.T, g *Gateway) {
		t.Helper()
		g.Signal(syscall.SIGSTOP)
		pause(cronLease + 2*time.Second)
		g.Signal(syscall.SIGCONT)
	}
	for name, c := range map[string]struct {
		do    func(t *testing.T, g *Gateway)
		times int
	}{"restart": {restart, 4}, "sleep": {sleep, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testpg.DB(t)
			all := []*Gateway{Install(t, database, cronConfig).AtOnce(), Install(t, database, cronConfig).AtOnce()}
			for _, g := range all {
				g.Start()
			}
			first := ticking(t, connect(t, all[0]), 10, 2, "sleep 400ms")
			for i := range c.times {
				pause(time.Second)
				c.do(t, all[i%2])
			}
			pause(2 * time.Second)
			o := OpenOracle(t, all[0], database)
			retire(t, all[0], o, database)
			found := countSlots(t, o, time.Second, first)
			found.check(t)
			o.Check(cronLease)
			if bad := o.Rows("SELECT id, state, error FROM cron_run_logs WHERE state NOT IN ('ok', 'skipped', 'missed') AND owner <> 'system'"); len(bad) > 0 {
				t.Errorf("%d runs ended otherwise: %s", len(bad), bad[0])
			}
			if twice := o.Rows("SELECT run_id FROM transcript WHERE role = 'assistant' AND run_id LIKE 'schedule:%' GROUP BY run_id HAVING count(*) > 1"); len(twice) > 0 {
				t.Errorf("answered twice: %s", strings.Join(twice, " "))
			}
			t.Log(found)
		})
	}
}

// providersConfig is a gateway whose agents use the model server, each with the API of its
// provider.
func providersConfig(model *testmodel.Server) string {
	return fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%[1]s/v1"}
  sister: {runner: anthropic, model: test, base_url: "%[1]s"}
limits: {chat: 0, requests: 0, cron_writes: 0}
`, model.URL())
}

// The model refuses every call with 503, and the job decides how often that is repeated. A message
// of a person, which nothing else repeats, is still retried by the runner.
func TestAnAttemptOfAJobCallsTheModelOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(testmodel.Call) testmodel.Reply {
			return testmodel.Reply{Status: http.StatusServiceUnavailable, Message: "try later"}
		})
		g := Install(t, database, providersConfig(model))
		g.Start()
		c, o := connect(t, g), OpenOracle(t, g, database)
		calls := func(word string) int {
			return model.Count(func(call testmodel.Call) bool { return strings.Contains(string(call.Body), word) })
		}
		for _, agent := range []string{"main", "sister"} {
			for retries, word := range []string{"once-" + agent, "twice-" + agent} {
				j := addJob(t, c, word, every(time.Hour), map[string]any{
					"agentId": agent, "payload": map[string]any{"kind": "agentTurn", "message": word},
					"retry": map[string]any{"maxRetries": retries, "baseMs": 100, "maxMs": 100},
				})
				run := runByHand(t, c, j.ID)
				testrun.Eventually(t, word+" has failed", func() bool {
					return o.Count("SELECT count(*) FROM cron_run_logs WHERE id = '"+run+"' AND state = 'error'") == 1
				})
				if n := calls(word); n != retries+1 {
					t.Errorf("%s with %d retries called the model %d times, want %d", word, retries, n, retries+1)
				}
			}
		}
		if _, err := c.Call("chat.send", map[string]any{"sessionKey": "main", "message": "typed", "idempotencyKey": "typed-1"}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "the message of a person is tried again", func() bool { return calls("typed") > 1 })
	})
}
