package teste2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

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
