package schedule

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"pgregory.net/rapid"
)

func TestEveryKeepsItsGrid(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Spec{Kind: KindEvery, EveryMs: 5000, AnchorMs: 1803895200123})
	from := time.UnixMilli(1803895200123)
	f, ok := s.Next(from.Add(-time.Hour))
	if !ok || !f.Slot.Equal(from) {
		t.Fatalf("the first fire is %s, want the anchor", f.Slot)
	}
	for k := range int64(17280) {
		if got := (f.Slot.UnixMilli() - 1803895200123); got != k*5000 {
			t.Fatalf("slot %d is %d ms after the anchor, want %d", k, got, k*5000)
		}
		f, _ = s.Next(f.Slot.Add(time.Duration(k%4999) * time.Millisecond))
	}
}

func TestEveryNeverOverflows(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, Spec{Kind: KindEvery, EveryMs: 315_360_000_000, AnchorMs: latestAt().UnixMilli()})
	after := time.Date(9995, 1, 1, 0, 0, 0, 0, time.UTC)
	for f, ok := s.Next(after); ok; f, ok = s.Next(after) {
		if !f.Slot.After(after) || f.Slot.Year() > 9999 {
			t.Fatalf("Next(%s) = %s", after, f.Slot)
		}
		after = f.Slot
	}
	for _, extreme := range []time.Time{time.Unix(math.MaxInt64/2, 0), time.Unix(math.MinInt64/2, 0), {}} {
		if f, ok := s.Next(extreme); ok && !f.Slot.After(extreme) {
			t.Errorf("Next(%s) = %s", extreme, f.Slot)
		}
	}
}

func TestNextEndsWithTheYear9999(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("0 0 1 1 *", "UTC"))
	if f, ok := s.Next(time.Date(9998, 6, 1, 0, 0, 0, 0, time.UTC)); !ok || f.Slot.Year() != 9999 {
		t.Errorf("Next in 9998 = %s, %v", f.Slot, ok)
	}
	if f, ok := s.Next(time.Date(9999, 6, 1, 0, 0, 0, 0, time.UTC)); ok {
		t.Errorf("Next in 9999 = %s, want none", f.Slot)
	}
	if f, ok := s.Next(time.Date(1969, 6, 1, 0, 0, 0, 5, time.UTC)); !ok || !f.Slot.Equal(time.Unix(0, 0)) {
		t.Errorf("Next in 1969 = %s, %v, want 1970", f.Slot, ok)
	}
	var zero Schedule
	if _, ok := zero.Next(noon); ok || zero.Count(noon, noon.AddDate(1, 0, 0)) != 0 {
		t.Error("the zero schedule fires")
	}
}

func TestRareExpressionsAreFound(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, cronSpec("0 0 29 2 */7", "UTC")) // 29 February on a Sunday
	if f, ok := s.Next(at(t, "2088-03-01T00:00:00Z")); !ok || !f.Slot.Equal(at(t, "2128-02-29T00:00:00Z")) {
		t.Errorf("Next = %s, %v, want 2128-02-29", f.Slot, ok)
	}
	_, err := Check(cronSpec("0 0 29 2 */7", "UTC"), at(t, "2040-01-01T00:00:00Z"), Rules{})
	refused(t, "rare", err, "schedule.expr", InvalidNever, "within eight years")
	s, err = Check(cronSpec("0 0 29 2 *", "UTC"), at(t, "2096-02-29T00:00:00Z"), Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := s.Next(at(t, "2096-02-29T00:00:00Z")); !f.Slot.Equal(at(t, "2104-02-29T00:00:00Z")) {
		t.Errorf("Next = %s, want 2104-02-29", f.Slot)
	}
}

// The second oracle is gronx itself, with UTC and seven fields.
func TestSearchAgreesWithGronxInUTC(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	r := rand.New(rand.NewPCG(7, 8))
	compared := 0
	for range 1500 {
		second := []string{"0", "*/17", "5,30-33", "59", "*"}[r.IntN(5)]
		expr := second + " " + randomExpression(r)
		parsed, err := parseExpr(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		f, err := compile(parsed)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		start := time.Unix(1_700_000_000+r.Int64N(200_000_000), 0).UTC()
		want, err := gronx.NextTickAfter(expr+" *", start, false)
		if err != nil {
			continue // gronx gives up on rare dates; the walking oracle covers those
		}
		compared++
		got, ok := f.next(wall(start.Unix()+1), wall(start.Unix()+reach))
		if !ok || int64(got) != want.Unix() {
			t.Errorf("%s after %s: %s, gronx has %s", expr, start, time.Unix(int64(got), 0).UTC(), want)
		}
	}
	if compared < 1200 {
		t.Errorf("only %d of 1500 expressions were compared", compared)
	}
}

func TestNextIsLaterAndCountAgrees(t *testing.T) {
	t.Parallel()
	zones := allZones()
	known := NewCompiler(0)
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		expr := randomExpression(rand.New(rand.NewPCG(seed, 1)))
		spec := Spec{
			Kind: KindCron, Expr: expr, TZ: rapid.SampledFrom(zones).Draw(t, "zone"),
			Gap:  rapid.SampledFrom([]GapRule{"", GapRunAfter, GapSkip}).Draw(t, "gap"),
			Fold: rapid.SampledFrom([]FoldRule{"", FoldFirst, FoldSecond, FoldBoth}).Draw(t, "fold"),
		}
		s, err := known.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Unix(rapid.Int64Range(-1e9, 5e9).Draw(t, "start"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
		after := start
		for n := int64(1); n <= 40; n++ {
			f, ok := s.Next(after)
			if !ok {
				break
			}
			if !f.Slot.After(after) {
				t.Fatalf("%s %s: Next(%s) = %s", spec.TZ, expr, after, f.Slot)
			}
			if c := s.Count(start, f.Slot); c != n {
				t.Fatalf("%s %s: Count(%s, %s) = %d, want %d", spec.TZ, expr, start, f.Slot, c, n)
			}
			after = f.Slot
		}
	})
}
