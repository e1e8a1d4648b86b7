package teste2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"laneway/internal/cron/schedule/zonetest"
	"laneway/internal/testpg"
)

// Jobs fire each second on two replicas. One of them is always being restarted as in an upgrade, or stopped for longer than its lease and
// continued. The other continues, and the stopped one changes nothing that it no longer owns.
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
			c0, first := connect(t, all[0]), map[string]int64{}
			for i := range 10 {
				text := "done"
				if i%2 == 0 {
					text = "sleep 400ms"
				}
				j := addJob(t, c0, fmt.Sprintf("tick %d", i), every(time.Second), saying(text))
				first[j.ID] = j.State.NextRunAtMs
			}
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

// Two processes have two releases of the zone rules, as during an update. A job at a local time of today by the newer rules, which is an hour later by the older ones, fires once: its
// next slot is tomorrow, whichever process has fired it and planned the next one.
func TestTwoProcessesWithTwoZoneReleasesFireOnce(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	database := testpg.DB(t)
	var all []*Gateway
	for _, dir := range []string{
		zonetest.Write(t, "2026a", map[string]string{"America/Vancouver": "<-08>8"}), zonetest.Write(t, "2026f", map[string]string{"America/Vancouver": "<-07>7"}),
	} {
		g := Install(t, database, cronConfig).AtOnce()
		g.env = append(g.env, "ZONEINFO="+dir)
		g.Start()
		all = append(all, g)
	}
	c, jobs, due := connect(t, all[1]), map[string]bool{}, time.Now().Add(5*time.Second).Truncate(time.Second)
	for i := range 12 {
		local := due.Add(time.Duration(i%3)*time.Second - 7*time.Hour).UTC()
		j := addJob(t, c, fmt.Sprintf("daily %d", i), map[string]any{"kind": "cron", "expr": local.Format("5 4 15 * * *"), "tz": "America/Vancouver"}, saying("done"))
		jobs[j.ID] = true
	}
	pause(time.Until(due) + 5*time.Second)
	o := OpenOracle(t, all[0], database)
	nodes := map[string]int{}
	for _, row := range o.Rows("SELECT job_id, state, node, scheduled_for FROM cron_run_logs WHERE owner <> 'system'") {
		f := strings.Split(row, "|")
		if !jobs[f[0]] {
			t.Errorf("a job ran twice, or is not known: %s", row)
		}
		delete(jobs, f[0])
		nodes[f[2]]++
	}
	if len(jobs) > 0 {
		t.Errorf("%d jobs did not run", len(jobs))
	}
	t.Logf("fired by %v", nodes)
	if n := o.Count(fmt.Sprintf("SELECT count(*) FROM cron_jobs WHERE owner <> 'system' AND next_slot < %d", due.Add(23*time.Hour).UnixMilli())); n > 0 {
		t.Errorf("%d jobs fire again today", n)
	}
	if n := o.Count("SELECT count(*) FROM cron_jobs WHERE owner <> 'system' AND next_wall IS NULL"); n > 0 {
		t.Errorf("%d slots have no wall time", n)
	}
}
