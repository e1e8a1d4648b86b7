package schedule

import (
	_ "embed"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The first oracle walks through every minute of absolute time around a change of a zone, reads the wall clock for each, and applies the rules. It shares no
// code with the package: it has its own matcher, no zone bounds, and no search.

//go:embed testdata/zones.txt
var zoneNames string

func allZones() []string { return strings.Fields(zoneNames) }

// minutes is the result of a walk: instant i shows wall[i].
type minutes struct {
	start time.Time
	wall  []time.Time
	times []int // how many times this wall time is shown within the walk
	nth   []int // the number of this occurrence, from 0
}

func walk(loc *time.Location, from, to time.Time) minutes {
	m := minutes{start: from}
	seen := map[time.Time]int{}
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		y, mo, d := at.In(loc).Date()
		h, mi, s := at.In(loc).Clock()
		w := time.Date(y, mo, d, h, mi, s, 0, time.UTC)
		m.wall = append(m.wall, w)
		m.nth = append(m.nth, seen[w])
		seen[w]++
	}
	for _, w := range m.wall {
		m.times = append(m.times, seen[w])
	}
	return m
}

// expected lists the fires among the inner minutes [lo, hi). matching reports which of the minutes show a matching wall time.
func (m minutes) expected(n naive, matching []bool, gap GapRule, fold FoldRule, lo, hi int) []time.Time {
	var out []time.Time
	for i := lo; i < hi; i++ {
		fire := matching[i]
		if fire && m.times[i] == 2 {
			fire = fold == FoldBoth || (fold == FoldFirst) == (m.nth[i] == 0)
		}
		if !fire && gap == GapRunAfter {
			for w := m.wall[i-1].Add(time.Minute); w.Before(m.wall[i]) && !fire; w = w.Add(time.Minute) {
				fire = n.matches(w)
			}
		}
		if fire {
			out = append(out, m.start.Add(time.Duration(i)*time.Minute))
		}
	}
	return out
}

// changes finds the instants at which a zone's offset changes by checking every quarter of an hour.
func changes(loc *time.Location, from, to time.Time) []time.Time {
	var out []time.Time
	_, last := from.In(loc).Zone()
	for at := from; at.Before(to); at = at.Add(3 * time.Hour) {
		if _, now := at.In(loc).Zone(); now != last {
			out = append(out, at)
			last = now
		}
	}
	return out
}

func oracleExpressions() []string {
	return []string{
		"* * * * *", "*/15 * * * *", "30 * * * *", "0 */2 * * *", "30 2 * * *", "0 0 * * *", "30 1 * * *",
		"0,30 0-3 * * *", "15 23 * * *", "7-50/11 1,2,3 * * *", "0 2 L * *", "45 1 15W * *", "0 1 * * 0#1",
		"30 2 * * 0L", "0 3 8 * 0", "10 2 */2 * 7", "59 23 * * 6", "0 12 * * *",
	}
}

func randomExpression(r *rand.Rand) string {
	field := func(low, top int) string {
		a, b := low+r.IntN(top-low+1), low+r.IntN(top-low+1)
		step := strconv.Itoa(1 + r.IntN(top-low))
		span := strconv.Itoa(min(a, b)) + "-" + strconv.Itoa(max(a, b))
		return []string{
			"*", strconv.Itoa(a), span, strconv.Itoa(a) + "," + strconv.Itoa(b),
			"*/" + step, span + "/" + step, strconv.Itoa(a) + "/" + step,
		}[r.IntN(7)]
	}
	hour := field(0, 23)
	if r.IntN(2) == 0 {
		hour = field(0, 3)
	}
	day, week := "*", "*"
	switch r.IntN(6) {
	case 0:
		day = field(1, 31)
	case 1:
		week = field(0, 7)
	case 2:
		day, week = field(1, 31), field(0, 6)
	case 3:
		day = []string{"L", "1W", "15W", "31W", "L,2W"}[r.IntN(5)]
	case 4:
		week = []string{"0#1", "7#5", "5L", "1#2,3#4", "0L"}[r.IntN(5)]
	}
	month := "*"
	if r.IntN(4) == 0 {
		month = field(1, 12)
	}
	return strings.Join([]string{field(0, 59), hour, day, month, week}, " ")
}

// judge compares the package with the walk around one change, for every rule. It returns the number of comparisons.
func judge(t *testing.T, known *Compiler, loc *time.Location, change time.Time, reach time.Duration, exprs []string) int {
	t.Helper()
	zone := loc.String()
	margin := 200
	span := int(reach / time.Minute)
	m := walk(loc, change.Add(-reach-time.Duration(margin)*time.Minute), change.Add(reach+time.Duration(margin)*time.Minute))
	lo, hi := margin, margin+2*span
	from, to := m.start.Add(time.Duration(lo)*time.Minute), m.start.Add(time.Duration(hi)*time.Minute)
	n := 0
	for _, expr := range exprs {
		judge := newNaive(expr)
		matching := make([]bool, len(m.wall))
		for i, w := range m.wall {
			matching[i] = judge.matches(w)
		}
		for _, gap := range []GapRule{GapRunAfter, GapSkip} {
			for _, fold := range []FoldRule{FoldFirst, FoldSecond, FoldBoth} {
				s, err := known.Compile(Spec{Kind: KindCron, Expr: expr, TZ: zone, Gap: gap, Fold: fold})
				if err != nil {
					t.Fatal(err)
				}
				want := m.expected(judge, matching, gap, fold, lo, hi)
				var got []time.Time
				for _, f := range fires(t, s, from.Add(-1), to) {
					got = append(got, f.Slot)
				}
				n++
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Errorf("%s %q %s %s around %s:\ngot  %v\nwant %v", zone, expr, gap, fold, change, got, want)
				}
				if c := s.Count(from.Add(-time.Second), to.Add(-time.Second)); c != int64(len(want)) {
					t.Errorf("%s %q %s %s around %s: Count = %d, want %d", zone, expr, gap, fold, change, c, len(want))
				}
			}
		}
	}
	return n
}

// The comparison of a long run takes a minute or two.
func TestEveryZoneAgreesWithTheWalkingOracle(t *testing.T) { //nolint:tparallel // the group must end before its counts are read
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	full := testrun.Long()
	from, to := at(t, "2026-01-01T00:00:00Z"), at(t, "2027-01-01T00:00:00Z")
	reach := 2 * time.Hour
	if full {
		from, to = at(t, "2024-01-01T00:00:00Z"), at(t, "2031-01-01T00:00:00Z")
		reach = 4 * time.Hour
	}
	counts := make(chan int, len(allZones()))
	// The group ends when its zones have; then their counts are read.
	t.Run("zones", func(t *testing.T) {
		changing := 0
		for _, zone := range allZones() {
			loc, err := LoadZone(zone)
			if err != nil {
				t.Fatal(err)
			}
			found := changes(loc, from, to)
			if len(found) == 0 {
				continue
			}
			if changing++; !full && changing%3 != 0 {
				continue
			}
			t.Run(zone, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(uint64(len(zone)), uint64(zone[0])))
				exprs := oracleExpressions()
				if !full {
					exprs = []string{exprs[r.IntN(4)], exprs[4+r.IntN(4)], exprs[8+r.IntN(5)], exprs[13+r.IntN(5)]}
				}
				n, known := 0, NewCompiler(0)
				for _, change := range found {
					n += judge(t, known, loc, change, reach, append(exprs, randomExpression(r), randomExpression(r)))
				}
				counts <- n
			})
		}
	})
	close(counts)
	zones, comparisons := 0, 0
	for n := range counts {
		zones++
		comparisons += n
	}
	t.Logf("%d comparisons in %d zones", comparisons, zones)
	if zones < 60 {
		t.Errorf("only %d zones were compared, want at least 60", zones)
	}
}

func TestPeculiarZonesAgreeWithTheWalkingOracle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for _, c := range []struct {
		zone, change string
		reach        time.Duration
	}{
		{"Pacific/Apia", "2011-12-30T10:00:00Z", 30 * time.Hour},
		{"Pacific/Apia", "2011-04-02T14:00:00Z", 5 * time.Hour},
		{"Pacific/Kwajalein", "1993-08-21T12:00:00Z", 30 * time.Hour},
		{"America/Sao_Paulo", "2018-11-04T03:00:00Z", 5 * time.Hour},
		{"America/Sao_Paulo", "2018-02-18T02:00:00Z", 5 * time.Hour},
		{"Australia/Lord_Howe", "2026-10-03T15:30:00Z", 5 * time.Hour},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z", 5 * time.Hour},
		{"America/Santiago", "2026-09-06T04:00:00Z", 5 * time.Hour},
		{"America/Havana", "2026-03-08T05:00:00Z", 5 * time.Hour},
		{"Atlantic/Azores", "2026-03-29T01:00:00Z", 5 * time.Hour},
		{"Antarctica/Troll", "2026-03-29T01:00:00Z", 5 * time.Hour},
		{"Antarctica/Troll", "2026-10-25T01:00:00Z", 5 * time.Hour},
		{"Africa/Casablanca", "2026-02-15T02:00:00Z", 5 * time.Hour},
		{"Europe/Dublin", "2026-03-29T01:00:00Z", 5 * time.Hour},
		{"Asia/Kathmandu", "1985-12-31T18:30:00Z", 5 * time.Hour},
		{"Asia/Pyongyang", "2018-05-04T15:00:00Z", 5 * time.Hour},
		{"Antarctica/Casey", "2020-10-03T16:00:00Z", 5 * time.Hour},
	} {
		t.Run(c.zone+" "+c.change, func(t *testing.T) {
			t.Parallel()
			loc, err := LoadZone(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			if len(changes(loc, at(t, c.change).Add(-4*time.Hour), at(t, c.change).Add(4*time.Hour))) == 0 {
				t.Fatalf("%s has no change near %s", c.zone, c.change)
			}
			r := rand.New(rand.NewPCG(1, 2))
			exprs := append(oracleExpressions()[1:], randomExpression(r), randomExpression(r))
			judge(t, NewCompiler(0), loc, at(t, c.change), c.reach, exprs)
		})
	}
}

// After the tables of the zone files, from 2038 at the latest, the time package uses a rule per zone and years of 365 days.
func TestFarYearsAgreeWithTheWalkingOracle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long")
	}
	for _, zone := range []string{
		"Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Havana", "America/Santiago", "Pacific/Easter",
		"Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Africa/Casablanca", "Asia/Tokyo", "Atlantic/Azores",
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc, err := LoadZone(zone)
			if err != nil {
				t.Fatal(err)
			}
			found := changes(loc, at(t, "2040-01-01T00:00:00Z"), at(t, "2041-01-01T00:00:00Z"))
			found = append(found, at(t, "2040-12-31T00:00:00Z"), at(t, "2041-01-01T00:00:00Z"), at(t, "2038-01-19T03:14:07Z").Truncate(time.Minute))
			r := rand.New(rand.NewPCG(3, 4))
			exprs := append(oracleExpressions(), randomExpression(r))
			for _, change := range found {
				judge(t, NewCompiler(0), loc, change, 4*time.Hour, exprs)
			}
		})
	}
}

func TestEveryPieceOfEveryZoneContainsItsInstant(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, zone := range allZones() {
		loc, err := LoadZone(zone)
		if err != nil {
			t.Fatal(err)
		}
		c := &wallClock{loc: loc}
		instants := []int64{0, lastSecond, -3e9, 2147483647, 2240524800, 1861833600, 1861833600 + 86399}
		for range 50 {
			instants = append(instants, r.Int64N(lastSecond), r.Int64N(6e9))
		}
		for _, at := range instants {
			p := c.pieceAt(at)
			if p.start > at || p.end <= at {
				t.Errorf("%s: the piece of %d is [%d, %d)", zone, at, p.start, p.end)
			}
			if p.end < never && c.offsetAt(p.end-1) != p.offset {
				t.Errorf("%s: the offset is %d at %d and %d before the end of that piece", zone, p.offset, at, c.offsetAt(p.end-1))
			}
			if p.start > -never && c.offsetAt(p.start) != p.offset {
				t.Errorf("%s: the offset is %d at %d and %d at the start of that piece", zone, p.offset, at, c.offsetAt(p.start))
			}
		}
	}
}
