package teste2e

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// BenchmarkDueAtOnce lets b.N jobs fire together, through the real gateway with an agent that answers at once. It reports the delays of
// their turns, in the first wave after the start of the gateway and in later ones, and how many end in a second. All times are those of the
// ledger.
func BenchmarkDueAtOnce(b *testing.B) {
	for _, c := range []struct{ jobs, lane int }{{200, 30}, {2000, 128}} {
		b.Run(fmt.Sprintf("jobs=%d/lane=%d", c.jobs, c.lane), func(b *testing.B) {
			benchStores(b, func(b *testing.B, database string) { dueAtOnce(b, database, c.jobs, c.lane) })
		})
	}
}

func dueAtOnce(b *testing.B, database string, jobs, lane int) {
	b.Helper()
	const period = 10 * time.Second
	g := Install(b, database, fmt.Sprintf("agents: {main: {runner: echo}}\nlimits: {requests: 0, cron_writes: 0}\nlanes: {cron: %d}\n"+
		"cron: {max_jobs_per_owner: 0, max_runs_per_day: 0}\n", lane))
	g.Start()
	c := connect(b, g)
	for i := range jobs {
		schedule := every(period)
		schedule["anchorMs"] = time.Now().Truncate(period).UnixMilli()
		addJob(b, c, "job "+strconv.Itoa(i), schedule, nil)
	}
	c.Close()
	g.Signal(syscall.SIGTERM)
	g.WaitExit(time.Minute)
	slot := time.Now().Add(2 * period).Truncate(period)
	execute(b, writable(b, g, database), fmt.Sprintf(`UPDATE cron_jobs SET next_slot = %d, next_run_at = %[1]d WHERE owner <> 'system'`, slot.UnixMilli()))
	g.Start()
	o := OpenOracle(b, g, database)
	b.ResetTimer()
	var first, later []time.Duration
	var rate float64
	for wave := range b.N {
		at := slot.Add(time.Duration(wave) * period).UnixMilli()
		testrun.Eventually(b, "every run ends", func() bool {
			return o.Count(fmt.Sprintf(`SELECT count(*) FROM cron_run_logs WHERE scheduled_for = %d AND state = 'ok'`, at)) == jobs
		})
		for _, row := range o.Rows(fmt.Sprintf(`SELECT started_at - scheduled_for FROM cron_run_logs WHERE scheduled_for = %d`, at)) {
			ms, err := strconv.Atoi(row)
			if err != nil {
				b.Fatal(err)
			}
			if late := time.Duration(ms) * time.Millisecond; wave == 0 {
				first = append(first, late)
			} else {
				later = append(later, late)
			}
		}
		took := o.Count(fmt.Sprintf(`SELECT max(finished_at) - %d FROM cron_run_logs WHERE scheduled_for = %[1]d`, at))
		rate = max(rate, float64(jobs)*1000/float64(max(took, 1)))
	}
	b.StopTimer()
	report(b, "first", first)
	report(b, "later", later)
	b.ReportMetric(rate, "best-fires/s")
}
