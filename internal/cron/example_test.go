package cron_test

import (
	"fmt"
	"time"

	"laneway/internal/cron"
)

func ExampleCheck() {
	now := time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)
	s, err := cron.Check(cron.Spec{Kind: cron.KindCron, Expr: "30 2 * * *", TZ: "Europe/Berlin"}, now, cron.Rules{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fire, ok := s.Next(now)
		if !ok {
			break
		}
		fmt.Printf("%s %q\n", fire.Slot.In(s.Location()).Format(time.RFC3339), fire.DST)
		now = fire.Slot
	}
	_, err = cron.Check(cron.Spec{Kind: cron.KindCron, Expr: "99 9 * * *"}, now, cron.Rules{})
	fmt.Println(err)
	// Output:
	// 2027-03-27T02:30:00+01:00 ""
	// 2027-03-28T03:00:00+02:00 "gap_shifted"
	// 2027-03-29T02:30:00+02:00 ""
	// schedule.expr: minute 99 is out of range 0-59
}

func ExampleTimetable_Decide() {
	s, err := cron.Compile(cron.Spec{Kind: cron.KindCron, Expr: "0 * * * *", TZ: "UTC"})
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

func ExampleParseWhen() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	spec, message, err := cron.ParseWhen("tomorrow 9:00 call Anna", now, "Europe/Berlin")
	fmt.Println(spec.At.Format(time.RFC3339), message, err)
	// Output: 2026-11-21T08:00:00Z call Anna <nil>
}
