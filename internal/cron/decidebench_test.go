package cron

import (
	"testing"
	"time"
)

func BenchmarkDecide(b *testing.B) {
	hourly := Timetable{Schedule: mustCompile(b, cronSpec("0 * * * *", "America/New_York")), JobID: "j", JitterMs: 1000}
	planned := noon.Truncate(time.Hour)
	b.Run("in time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d := hourly.Decide(Claim{Planned: planned, Now: planned}); !d.More {
				b.Fatal("no next")
			}
		}
	})
	second := Timetable{Schedule: mustCompile(b, cronSpec("* * * * * *", "America/New_York")), JobID: "j"}
	b.Run("three days late, each second", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if d := second.Decide(Claim{Planned: planned.AddDate(0, 0, -3), Now: planned}); !d.More {
				b.Fatal("no next")
			}
		}
	})
}
