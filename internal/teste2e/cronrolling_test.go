package teste2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

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
