package schedule

import (
	_ "embed"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"laneway/internal/testrun"
)

// The first oracle walks through every minute of absolute time around a change of a zone, reads the
// wall clock for each, and applies the rules. It shares no code with the package: it has its own
// matcher, no zone bounds, and no search.

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

// expected lists the fires among the inner minutes [lo, hi). matching reports which of the minutes
// show a matching wall time.
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

// judge compares the package with the walk around one change, for every rule. It returns the number
// of comparisons.
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

// After the tables of the zone files, from 2038 at the latest, the time package uses a rule per
// zone and years of 365 days.
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

// naive is a literal interpretation of a five-field expression. Days that depend on the month (L,
// W, #) are computed from the date each time.
type naive struct{ fields []string }

func newNaive(expr string) naive { return naive{strings.Fields(expr)} }

func (n naive) matches(w time.Time) bool {
	plain := func(i, value, low, top int) bool { return naiveField(n.fields[i], value, low, top) }
	if !plain(0, w.Minute(), 0, 59) || !plain(1, w.Hour(), 0, 23) || !plain(3, int(w.Month()), 1, 12) {
		return false
	}
	day, week := n.day(w), n.weekday(w)
	if strings.HasPrefix(n.fields[2], "*") || strings.HasPrefix(n.fields[4], "*") {
		return day && week
	}
	return day || week
}

func naiveField(field string, value, low, top int) bool {
	if field == "*" {
		return true
	}
	for item := range strings.SplitSeq(field, ",") {
		base, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step, _ = strconv.Atoi(stepText)
		}
		first, last := low, top
		if base != "*" {
			a, b, isRange := strings.Cut(base, "-")
			first, _ = strconv.Atoi(a)
			if last = first; isRange {
				last, _ = strconv.Atoi(b)
			} else if stepped {
				last = top
			}
		}
		for v := first; v <= last; v += step {
			if v == value {
				return true
			}
		}
	}
	return false
}

func (n naive) day(w time.Time) bool {
	last := time.Date(w.Year(), w.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	for item := range strings.SplitSeq(n.fields[2], ",") {
		switch {
		case item == "L":
			if w.Day() == last {
				return true
			}
		case strings.HasSuffix(item, "W"):
			want, _ := strconv.Atoi(strings.TrimSuffix(item, "W"))
			if want <= last && w.Day() == nearestWorkday(w, want, last) {
				return true
			}
		case naiveField(item, w.Day(), 1, 31):
			return true
		}
	}
	return false
}

func nearestWorkday(w time.Time, want, last int) int {
	switch time.Date(w.Year(), w.Month(), want, 0, 0, 0, 0, time.UTC).Weekday() {
	case time.Saturday:
		if want == 1 {
			return 3
		}
		return want - 1
	case time.Sunday:
		if want == last {
			return want - 2
		}
		return want + 1
	default:
		return want
	}
}

func (n naive) weekday(w time.Time) bool {
	last := time.Date(w.Year(), w.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	day := int(w.Weekday())
	for item := range strings.SplitSeq(n.fields[4], ",") {
		wanted, nth, isNth := strings.Cut(item, "#")
		switch {
		case isNth:
			k, _ := strconv.Atoi(nth)
			if d, _ := strconv.Atoi(wanted); d%7 == day && (w.Day()+6)/7 == k {
				return true
			}
		case strings.HasSuffix(item, "L"):
			if d, _ := strconv.Atoi(strings.TrimSuffix(item, "L")); d%7 == day && w.Day()+7 > last {
				return true
			}
		case openEnd(item):
			// 3/2 runs from Wednesday to the end of the week, which is Saturday.
			if naiveField(strings.Replace(item, "7/", "0/", 1), day, 0, 6) {
				return true
			}
		case naiveField(item, day, 0, 7), day == 0 && naiveField(item, 7, 0, 7):
			return true
		}
	}
	return false
}

// openEnd recognises a step without a range: */2, 3/2.
func openEnd(item string) bool {
	base, _, stepped := strings.Cut(item, "/")
	return stepped && !strings.Contains(base, "-")
}

// checkAccepted checks the properties of all accepted input.
func checkAccepted(t *testing.T, s Schedule, now time.Time) {
	t.Helper()
	again, err := Compile(s.Spec())
	if err != nil || again.Spec() != s.Spec() {
		t.Fatalf("the stored form %+v compiles to %+v, %v", s.Spec(), again.Spec(), err)
	}
	if s.Spec().Signature() != again.Spec().Signature() {
		t.Fatalf("two signatures: %q and %q", s.Spec().Signature(), again.Spec().Signature())
	}
	from := now
	for range 5 {
		f, ok := s.Next(from)
		if !ok {
			return
		}
		if !f.Slot.After(from) || s.Count(from, f.Slot) != 1 {
			t.Fatalf("%+v: Next(%s) = %s, Count = %d", s.Spec(), from, f.Slot, s.Count(from, f.Slot))
		}
		from = f.Slot
	}
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	if !utf8.ValidString(err.Error()) || len(err.Error()) > 512 || strings.ContainsAny(err.Error(), "\x00\n\r\x1b") {
		t.Fatalf("message %q is not fit for a person", err)
	}
}

func FuzzExpression(f *testing.F) {
	for _, seed := range append(oracleExpressions(), "@daily", "0 0 * * 5#6", "*/0 * * * *", "0 0 30 2 *", "1-2-3 * * * *", "0 9 * JAN-MAR FRI#1,5L", "٣ * * * *") {
		f.Add(seed, "Europe/Berlin")
	}
	f.Add("0 0 * * *", "America/Santiago")
	f.Add("0 0 * * *", "+05:30")
	f.Add("0 0 * * *", "Local")
	f.Fuzz(func(t *testing.T, expr, tz string) {
		s, err := Check(cronSpec(expr, tz), noon, Rules{})
		if err != nil {
			checkRefused(t, err)
			return
		}
		checkAccepted(t, s, noon)
	})
}

func FuzzAt(f *testing.F) {
	f.Add("2027-03-02T08:00:00Z", "")
	f.Add("2027-03-28T02:30", "Europe/Berlin")
	f.Add("2011-12-30", "Pacific/Apia")
	f.Add("1803895200000", "+05:30")
	f.Add("9999-12-31T23:59:59.999999999", "-14:00")
	f.Fuzz(func(t *testing.T, text, tz string) {
		got, err := ParseAt(text, tz)
		if err != nil {
			checkRefused(t, err)
			return
		}
		if got.After(latestAt()) || got.Nanosecond()%1e6 != 0 || got.Location() != time.UTC {
			t.Fatalf("ParseAt(%q, %q) = %s", text, tz, got)
		}
		if again, err := ParseAt(ISO(got), ""); got.Year() >= 0 && (err != nil || !again.Equal(got)) {
			t.Fatalf("ParseAt(%q) = %s, %v, want %s", ISO(got), again, err, got)
		}
	})
}

func FuzzWhen(f *testing.F) {
	for _, seed := range []string{
		"in 2h30m x", "15:00 call Anna", "tomorrow 9:00", "every 30m x", "every monday 8:30 x", "2027-03-02 15:00 x",
		`"0 9 * * 1-5" briefing`, "0 0 9 * * 1-5 x", "@daily x", "in 20 minutes", "3pm", "every weekday at 7am x", "\"", "in ", "0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, rest, err := ParseWhen(text, noon, "Europe/Berlin")
		if err != nil {
			checkRefused(t, err)
			return
		}
		if !strings.HasSuffix(strings.TrimSpace(text), rest) {
			t.Fatalf("ParseWhen(%q) leaves %q", text, rest)
		}
		s, err := Check(spec, noon, Rules{})
		if err != nil {
			checkRefused(t, err)
			return
		}
		checkAccepted(t, s, noon)
	})
}
