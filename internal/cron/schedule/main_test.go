package schedule

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at reads an instant for a test.
func at(tb testing.TB, text string) time.Time {
	tb.Helper()
	got, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatalf("test instant: %v", err)
	}
	return got
}

func mustCompile(tb testing.TB, s Spec) Schedule {
	tb.Helper()
	sched, err := Compile(s)
	if err != nil {
		tb.Fatalf("Compile(%+v): %v", s, err)
	}
	return sched
}

func cronSpec(expr, tz string) Spec { return Spec{Kind: KindCron, Expr: expr, TZ: tz} }

// fires lists the fires of a schedule in (from, to).
func fires(tb testing.TB, s Schedule, from, to time.Time) []Fire {
	tb.Helper()
	var out []Fire
	for f, ok := s.Next(from); ok && f.Slot.Before(to); f, ok = s.Next(f.Slot) {
		if !f.Slot.After(from) {
			tb.Fatalf("Next(%s) = %s, not later", from, f.Slot)
		}
		from = f.Slot
		out = append(out, f)
	}
	return out
}
