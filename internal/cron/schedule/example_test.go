package schedule_test

import (
	"fmt"
	"time"

	"laneway/internal/cron/schedule"
)

func ExampleCheck() {
	now := time.Date(2027, 3, 26, 12, 0, 0, 0, time.UTC)
	s, err := schedule.Check(schedule.Spec{Kind: schedule.KindCron, Expr: "30 2 * * *", TZ: "Europe/Berlin"}, now, schedule.Rules{})
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
	_, err = schedule.Check(schedule.Spec{Kind: schedule.KindCron, Expr: "99 9 * * *"}, now, schedule.Rules{})
	fmt.Println(err)
	// Output:
	// 2027-03-27T02:30:00+01:00 ""
	// 2027-03-28T03:00:00+02:00 "gap_shifted"
	// 2027-03-29T02:30:00+02:00 ""
	// schedule.expr: minute 99 is out of range 0-59
}

func ExampleParseWhen() {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	spec, message, err := schedule.ParseWhen("tomorrow 9:00 call Anna", now, "Europe/Berlin")
	fmt.Println(spec.At.Format(time.RFC3339), message, err)
	// Output: 2026-11-21T08:00:00Z call Anna <nil>
}
