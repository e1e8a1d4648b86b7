package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
)

// TestTheStartOfAClaimedRunIsOneStatement: nothing is read again that its claim has read or written.
func TestTheStartOfAClaimedRunIsOneStatement(t *testing.T) {
	t.Parallel()
	c, count := countedNode(t)
	for _, l := range c.launchedJobs(2) {
		before := count.Load()
		started, err := c.s.Start(t.Context(), startOf(l))
		if err != nil {
			t.Fatal(err)
		}
		if n := count.Load() - before; n != 1 {
			t.Errorf("the start took %d statements, want 1", n)
		}
		c.wantStarted(l, started)
	}
	checkInvariants(t, c.url)
}

// wantStarted compares the result of a start with what the database has.
func (c *nodesOfTest) wantStarted(l cron.Launched, got store.Started) {
	c.t.Helper()
	run, err := c.s.Run(c.t.Context(), l.Run.ID, "")
	if err != nil {
		c.t.Fatal(err)
	}
	if diff := cmp.Diff(run, postgres.BegunRun(got)); diff != "" {
		c.t.Errorf("the run as it began (- in the ledger, + remembered):\n%s", diff)
	}
	job, err := c.s.Job(c.t.Context(), l.Run.JobID, "")
	if err != nil {
		c.t.Fatal(err)
	}
	if diff := cmp.Diff(&job, got.Job); diff != "" {
		c.t.Errorf("the job (- stored, + returned):\n%s", diff)
	}
	if got.Attempt != 1 || !got.StartedAt.Equal(run.StartedAt) || got.SessionID != l.SessionID || got.Principal != l.Message.Principal {
		c.t.Errorf("got %+v for %+v", got, l)
	}
}

// TestAStartSeesWhatHasChangedSinceItsClaim: an edit of the job, another run of it, a claim that another process has made, a job that is gone.
func TestAStartSeesWhatHasChangedSinceItsClaim(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(5)
	exec(t, c.url, fmt.Sprintf(`UPDATE cron_jobs SET description = 'edited' WHERE id = '%s'`, list[1].Run.JobID))
	exec(t, c.url, fmt.Sprintf(`INSERT INTO cron_run_logs (id, job_id, scheduled_for, trigger, state, started_at) VALUES ('other', '%s', 5, 'manual', 'running', 7)`,
		list[2].Run.JobID))
	exec(t, c.url, fmt.Sprintf(`UPDATE cron_run_logs SET job_name = 'claimed again' WHERE id = '%s'`, list[3].Run.ID))
	exec(t, c.url, fmt.Sprintf(`DELETE FROM cron_jobs WHERE id = '%s'`, list[4].Run.JobID))
	starts := make([]store.StartParams, len(list))
	for i, l := range list {
		starts[i] = startOf(l)
	}
	done, started, err := c.s.CompactStartsTogether(t.Context(), starts)
	c.wantDone(done, err, true, true, true, true, true)
	for i, l := range list[:4] {
		c.wantStarted(l, started[i])
	}
	if j := started[2].Job; j.State.Queued != 2 || j.State.RunningAt.UnixMilli() != 7 {
		t.Errorf("got %+v, want two runs, the older one since 7 ms", j.State)
	}
	if started[4].Job != nil || started[4].Begun != nil {
		t.Errorf("got the job %+v, which is gone", started[4].Job)
	}
	c.wantRows(`SELECT job_name || ' ' || state || ' ' || attempt FROM cron_run_logs WHERE id <> 'other' ORDER BY job_name`,
		"claimed again running 1", "job 1 running 1", "job 2 running 1", "job 3 running 1", "job 5 running 1")
}

// TestAClaimedRunStartsUnderItsFenceOnly: a node whose lease is over, another node, a run that is over, rows that another transaction has locked.
func TestAClaimedRunStartsUnderItsFenceOnly(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(5)
	starts := make([]store.StartParams, len(list))
	for i, l := range list {
		starts[i] = startOf(l)
	}
	starts[1].Node, starts[1].Cron.Node = "n2", "n2"
	c.lockWith(`SELECT 1 FROM cron_run_logs WHERE id = $1 FOR UPDATE`, list[2].Run.ID)
	if err := c.s.SetNote(t.Context(), list[3].Message.Session, "ann", "a", "b"); err != nil { // writes the rows of the session
		t.Fatal(err)
	}
	done, _, err := c.s.CompactStartsTogether(t.Context(), starts[:4])
	c.wantDone(done, err, true, false, false, false)
	exec(t, c.url, `UPDATE nodes SET lease_until = 0`)
	done, _, err = c.s.CompactStartsTogether(t.Context(), starts[4:])
	c.wantDone(done, err, false)
	c.wantRows(`SELECT job_name || ' ' || state FROM cron_run_logs ORDER BY job_name`, "job 1 running", "job 2 queued", "job 3 queued", "job 4 queued", "job 5 queued")
}

// TestAClaimFiresTheOtherJobsWhenASlotIsInTheLedger: a slot is fired once, whatever its row was made for.
func TestAClaimFiresTheOtherJobsWhenASlotIsInTheLedger(t *testing.T) {
	t.Parallel()
	for name, insert := range map[string]string{
		"caught up":   `SELECT 'catchup:' || id, id, next_slot, 'catchup' FROM cron_jobs WHERE name = 'job 2'`,
		"of the slot": `SELECT 'other', id, next_slot, 'schedule' FROM cron_jobs WHERE name = 'job 2'`,
		"of the name": `SELECT 'schedule:' || id || ':' || next_slot, id, 5, 'manual' FROM cron_jobs WHERE name = 'job 2'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCompactNodes(t)
			addJobs(t, c.url, 3)
			exec(t, c.url, fmt.Sprintf(`INSERT INTO cron_run_logs (id, job_id, scheduled_for, trigger, state) SELECT v.id, v.job, v.slot, v.trigger, 'ok' FROM (%s) AS v(id, job, slot, trigger)`, insert))
			list := claimAll(t, c.s)
			names := make([]string, 0, len(list))
			for _, l := range list {
				names = append(names, l.Run.JobName)
			}
			if len(names) != 2 || strings.Contains(strings.Join(names, " "), "job 2") {
				t.Fatalf("the claim launched %q, want jobs 1 and 3", names)
			}
			c.wantRows(`SELECT count(*) FROM cron_run_logs`, "3")
			c.wantRows(`SELECT name FROM cron_jobs WHERE fired = 1 ORDER BY name`, "job 1", "job 2", "job 3")
		})
	}
}

// TestAStoreForgetsClaimsBeyondItsBound: their starts read the rows.
func TestAStoreForgetsClaimsBeyondItsBound(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	list := c.launchedJobs(3)
	c.s.ForgetClaims()
	started, err := c.s.Start(t.Context(), startOf(list[0]))
	if err != nil {
		t.Fatal(err)
	}
	c.wantStarted(list[0], started)
}

// TestAStartDoesNotChangeWhatAnotherOneRemembers: the results of two runs of one job are independent.
func TestAStartDoesNotChangeWhatAnotherOneRemembers(t *testing.T) {
	t.Parallel()
	c := newCompactNodes(t)
	l := c.launchedJobs(1)[0]
	start := startOf(l)
	start.Transcript = []chat.TranscriptEntry{{RunID: l.Run.ID, Role: chat.RoleUser, Text: "a question"}}
	started, err := c.s.Start(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	started.Job.State.RunCount, started.Job.Name = 9, "changed by the caller"
	end := endOf(l)
	end.Begun = started.Begun
	if _, err := c.s.Finish(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	c.wantRows(`SELECT name || ' ' || run_count FROM cron_jobs`, "job 1 1")
}
