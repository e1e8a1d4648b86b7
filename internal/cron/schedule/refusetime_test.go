package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Typical mistakes are refused quickly: each of these takes less than a millisecond in the best of several tries, which is independent of the load of the
// machine.
func TestRefusingAnExpressionTakesLessThanAMillisecond(t *testing.T) {
	t.Parallel()
	worst, slowest := time.Duration(0), ""
	for _, expr := range []string{
		"", "* * * *", "* * * * * * *", "*/0 * * * *", "60 24 * * *", "99 99 * * *", "0 0 30 2 *", "0 0 31 2 *", "@every 1s", "@never",
		strings.Repeat("*", 257), strings.Repeat("1,", 125) + "1 * * * *", "٣ * * * *", "0 0 * * 5#6", "0 0 * * 9#1", "0 0 32 * *", "0 0 * 13 *", "* * * * MOO",
		"0 0 L-40 * *", "0 0 0W * *", "5-1/0 * * * *", strings.Repeat("0-59/1,", 30) + "61 * * * *",
	} {
		best := time.Hour
		for range 7 {
			began := time.Now()
			_, err := Check(Spec{Kind: KindCron, Expr: expr}, time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC), Rules{})
			best = min(best, time.Since(began))
			if !errors.Is(err, ErrInvalid) && !strings.HasPrefix(expr, "5-1") {
				t.Fatalf("%q: %v", expr, err)
			}
		}
		if best > worst {
			worst, slowest = best, expr
		}
	}
	if worst > time.Millisecond {
		t.Errorf("refusing %.40q takes %s", slowest, worst)
	}
	t.Logf("the slowest is %.40q with %s", slowest, worst)
}
