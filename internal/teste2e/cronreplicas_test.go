package teste2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// TestReplicasShareTheSlotsAndLoseNoneWhenOneIsKilled runs jobs that fire each second on two and on three replicas, and kills one of them again and again.
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
			c := connect(t, all[0])
			first := map[string]int64{}
			for i := range jobs {
				text := "done"
				if i%3 == 0 {
					text = "sleep 300ms"
				}
				j := addJob(t, c, fmt.Sprintf("tick %d", i), every(time.Second), saying(text))
				first[j.ID] = j.State.NextRunAtMs
			}
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
			// One that met three kills is given up.
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

// pause lets real processes work for a time that the scenario names.
func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// TestAJobMadeOnOneReplicaFiresOnAnotherWhenTheFirstIsKilled makes a reminder on a process that is killed before its moment.
func TestAJobMadeOnOneReplicaFiresOnAnotherWhenTheFirstIsKilled(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	rounds := testrun.Size(3, 50)
	database := testpg.DB(t)
	a, b := Install(t, database, cronConfig).AtOnce(), Install(t, database, cronConfig).AtOnce()
	b.Start()
	o := OpenOracle(t, b, database)
	var worst time.Duration
	for i := range rounds {
		a.Start()
		c := connect(t, a)
		// Early ones are only rows when their process dies, late ones were claimed by it, or by the other one.
		due := time.Now().Add(time.Duration(600+400*(i%4)) * time.Millisecond)
		j := addJob(t, c, fmt.Sprintf("reminder %d", i), at(due), nil)
		pause(time.Until(due.Add(-500 * time.Millisecond)))
		a.Kill()
		query := "SELECT coalesce(started_at, 0) FROM cron_run_logs WHERE state = 'ok' AND job_id = '" + j.ID + "'"
		testrun.Eventually(t, "the reminder has run", func() bool { return len(o.Rows(query)) == 1 })
		late := time.Duration(int64(o.Count(query))-due.UnixMilli()) * time.Millisecond
		if late < -time.Millisecond || late > cronLease+2*time.Second {
			t.Errorf("round %d: the reminder began %s after its moment, want at most the lease and 2s", i, late)
		}
		worst = max(worst, late)
	}
	if n := o.Count("SELECT count(*) FROM cron_run_logs WHERE owner <> 'system'"); n != rounds {
		t.Errorf("%d entries for %d reminders", n, rounds)
	}
	o.Check(cronLease)
	t.Logf("%d reminders, the latest %s after its moment", rounds, worst)
}

// TestASecondReplicaThatComesAndGoesChangesNothing starts and stops another process while the first one has a run that runs, one that waits for its next
// attempt, and jobs to come.
func TestASecondReplicaThatComesAndGoesChangesNothing(t *testing.T) {
	t.Parallel()
	starts := testrun.Size(8, 50)
	database := testpg.DB(t)
	a, b := Install(t, database, cronConfig).AtOnce(), Install(t, database, cronConfig).AtOnce()
	a.Start()
	c := connect(t, a)
	o := OpenOracle(t, a, database)
	soon := time.Now().Add(200 * time.Millisecond)
	running := addJob(t, c, "long", at(soon), saying("sleep 10m"))
	retrying := addJob(t, c, "failing", at(soon), map[string]any{
		"payload": map[string]any{"kind": "agentTurn", "message": "fail overloaded"}, "retry": map[string]any{"maxRetries": 3, "baseMs": 600_000, "maxMs": 600_000},
	})
	tomorrow := addJob(t, c, "tomorrow", at(time.Now().Add(24*time.Hour)), nil)
	daily := addJob(t, c, "daily", map[string]any{"kind": "cron", "expr": "0 9 * * *", "tz": "UTC"}, nil)
	tick := addJob(t, c, "tick", every(time.Second), nil)
	testrun.Eventually(t, "one run runs and one waits", func() bool {
		return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'running' AND job_id = '"+running.ID+"'") == 1 &&
			o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'retrying' AND job_id = '"+retrying.ID+"'") == 1
	})
	theirs := "('" + strings.Join([]string{running.ID, retrying.ID, tomorrow.ID, daily.ID}, "','") + "')"
	picture := func() string {
		return strings.Join(append(append(
			o.Rows("SELECT * FROM cron_jobs WHERE id IN "+theirs+" ORDER BY id"),
			o.Rows("SELECT * FROM cron_run_logs WHERE job_id IN "+theirs+" ORDER BY id")...),
			o.Rows("SELECT i.*, s.owner, s.epoch, s.last_seq, s.done_seq, s.waiting FROM inbox i JOIN sessions s ON s.key = i.session_key JOIN cron_run_logs c ON c.run_id = i.message_id AND c.job_id IN "+theirs+" ORDER BY 1, 2")...), "\n")
	}
	before := picture()
	for range starts {
		b.Start()
		pause(300 * time.Millisecond) // its loop has looked, and looks again
		b.Signal(syscall.SIGTERM)
		if _, code := b.WaitExit(10 * time.Second); code != 0 {
			t.Errorf("the second replica ended with code %d\n%s", code, b.Output())
		}
	}
	if after := picture(); after != before {
		t.Errorf("rows have changed:\n%s\nwere\n%s", after, before)
	}
	if !strings.Contains(before, "running") || !strings.Contains(before, "retrying") {
		t.Errorf("the picture shows nothing: %s", before)
	}
	execute(t, writable(t, a, database), "UPDATE cron_jobs SET enabled = false WHERE id = '"+tick.ID+"'")
	testrun.Eventually(t, "the last tick is over", func() bool { return o.Count(unfinished+" AND job_id = '"+tick.ID+"'") == 0 })
	found := countSlots(t, o, time.Second, map[string]int64{tick.ID: tick.State.NextRunAtMs})
	found.check(t)
	if found.states["ok"] != found.rows {
		t.Errorf("the ticks ended %v", found.states)
	}
	o.Check(cronLease)
	t.Logf("%d starts: %s", starts, found)
}
