package cron_test

import (
	"fmt"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func ExampleTimetable_Decide() {
	s, err := schedule.Compile(schedule.Spec{Kind: schedule.KindCron, Expr: "0 * * * *", TZ: "UTC"})
	if err != nil {
		fmt.Println(err)
		return
	}
	planned := time.Date(2027, 3, 26, 9, 0, 0, 0, time.UTC)
	d := cron.Timetable{Schedule: s, JobID: "digest"}.Decide(cron.Claim{
		Planned: planned,
		Now:     planned.Add(3*time.Hour + 10*time.Minute),
	})
	for _, r := range d.Runs {
		fmt.Println("run", r.Slot.Format("15:04"), r.Trigger, r.Late)
	}
	for _, m := range d.Missed {
		fmt.Println("missed", m.Count, m.Reason)
	}
	fmt.Println("next", d.Next.Slot.Format("15:04"))
	// Output:
	// run 12:00 catchup 10m0s
	// missed 3 window
	// next 13:00
}
