package schedule

import (
	"testing"
	"time"

	"github.com/adhocore/gronx"
)

func BenchmarkNext(b *testing.B) {
	for _, expr := range []string{"0 9 * * 1-5", "*/15 * * * *", "* * * * * *", "30 3 L * *", "0 9 * * 1#1", "0 0 29 2 *"} {
		s := mustCompile(b, cronSpec(expr, "America/New_York"))
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Next(noon); !ok {
					b.Fatal("no fire")
				}
			}
		})
	}
}

// BenchmarkNextBeyondTheTables covers the slow case of zones: a year that is computed from a rule and not from a table.
func BenchmarkNextBeyondTheTables(b *testing.B) {
	s := mustCompile(b, cronSpec("0 9 * * 1-5", "America/New_York"))
	after := time.Date(2045, 3, 10, 0, 0, 0, 0, time.UTC)
	for b.Loop() {
		if _, ok := s.Next(after); !ok {
			b.Fatal("no fire")
		}
	}
}

// BenchmarkNextByGronx measures the same query with gronx, which shows why it is used only while compiling.
func BenchmarkNextByGronx(b *testing.B) {
	for _, expr := range []string{"0 0 9 * * 1-5 *", "0 */15 * * * * *", "0 30 3 L * * *", "0 0 0 29 2 * *"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := gronx.NextTickAfter(expr, noon, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	c := NewCompiler(0)
	for _, expr := range []string{"0 9 * * 1-5", "30 3 L * *", "0 0 1W,2W,3W,4W,5W,6W,7W,8W,9W,10W,11W,12W,13W,14W,15W,16W,17W,18W,19W,L * 1#1,2#2,3#3,4#4,5#5"} {
		spec := cronSpec(expr, "America/New_York")
		b.Run("new "+expr, func(b *testing.B) {
			for b.Loop() {
				mustCompile(b, spec)
			}
		})
		b.Run("known "+expr, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Compile(spec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse measures the cost of hostile input; the goal is a millisecond.
func BenchmarkRefuse(b *testing.B) {
	for _, expr := range []string{"0 0 * * 5#6", "0 0 * * 9#1", "*/0 * * * *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "@every 1s", "0 0 0 1 1 * 2030", "٣ * * * *"} {
		b.Run(expr, func(b *testing.B) {
			for b.Loop() {
				if _, err := Check(cronSpec(expr, "America/New_York"), noon, Rules{}); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
