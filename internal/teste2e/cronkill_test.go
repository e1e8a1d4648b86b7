package teste2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// agentThatMarks is an agent that records when it begins and ends a run, so that a test knows what was executed independently of the rows.
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

// killMoment is a moment in the life of a run: reach waits for it, the kill follows, and was reports whether the remaining rows show it.
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
	// SQLite has no queue for writers: another writer beside a busy gateway may fail to get the lock many times.
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

// release releases the lock when the process is dead. On PostgreSQL, its waiting statements are cancelled, so that they are not executed.
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

// The process is killed with SIGKILL at each moment in the life of a run, while other jobs fire each second.
func TestAKillAtAnyMomentOfARunLosesNoSlotAndDoublesNone(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		rounds := testrun.Size(9, 200)
		agent, config := newAgentThatMarks(t)
		k := &killScene{T: t, g: Install(t, database, config).AtOnce(), agent: agent, database: database}
		k.g.Start()
		k.o, k.db = OpenOracle(t, k.g, database), writable(t, k.g, database)
		first := map[string]int64{}
		c := connect(t, k.g)
		for i := range 4 {
			j := addJob(t, c, fmt.Sprintf("tick %d", i), every(time.Second), nil)
			first[j.ID] = j.State.NextRunAtMs
		}
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

// round makes a reminder, kills the process at the moment and starts it again. hit reports whether the remaining rows show the moment.
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

// judge checks the end of every reminder: one entry, ok, and executed as often as the kills require. A reminder that was killed three times
// is abandoned.
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
