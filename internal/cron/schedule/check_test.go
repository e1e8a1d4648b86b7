package schedule

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func refused(t *testing.T, name string, err error, field string, reason InvalidReason, sentence string) {
	t.Helper()
	var got *InvalidError
	if !errors.As(err, &got) || !errors.Is(err, ErrInvalid) {
		t.Errorf("%s: err = %v, want an InvalidError", name, err)
		return
	}
	if got.Field != field || got.Reason != reason || !strings.Contains(got.Error(), sentence) {
		t.Errorf("%s: %s (field %s, reason %s), want %q in it (field %s, reason %s)",
			name, got, got.Field, got.Reason, sentence, field, reason)
	}
}

func TestCheckRefusesExpressionsWithASentence(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]struct {
		reason   InvalidReason
		sentence string
	}{
		"":                      {InvalidMissing, "schedule.expr: an expression of 5 fields is needed"},
		"  \t ":                 {InvalidMissing, "is needed"},
		"99 99 * * *":           {InvalidRange, "schedule.expr: minute 99 is out of range 0-59"},
		"60 24 * * *":           {InvalidRange, "minute 60 is out of range 0-59"},
		"0 24 * * *":            {InvalidRange, "hour 24 is out of range 0-23; midnight is hour 0"},
		"0 0 0 * *":             {InvalidRange, "day of month 0 is out of range 1-31"},
		"0 0 32 * *":            {InvalidRange, "day of month 32 is out of range 1-31"},
		"0 0 * 13 *":            {InvalidRange, "month 13 is out of range 1-12"},
		"0 0 * * 8":             {InvalidRange, "day of week 8 is out of range 0-7"},
		"60 * * * * *":          {InvalidRange, "second 60 is out of range 0-59"},
		"0 9 * * * root /bin/x": {InvalidSyntax, "leave out the command of a crontab: write 0 9 * * *"},
		"*/5 * * * * /usr/bin/php x.php >/dev/null 2>&1": {InvalidSyntax, "leave out the command of a crontab: write */5 * * * *"},
		"0 9 * * MON curl -s https://x.example":          {InvalidSyntax, "leave out the command of a crontab: write 0 9 * * MON"},
		"@daily /bin/x":                                  {InvalidSyntax, "write @daily"},
		"daily":                                          {InvalidSyntax, "write @daily"},
		"Mon..Fri 09:00":                                 {InvalidSyntax, "is a calendar event of systemd; write the five fields"},
		"*-*-* 09:00":                                    {InvalidSyntax, "is a calendar event of systemd; write the five fields"},
		"OnCalendar=daily":                               {InvalidSyntax, "is a calendar event of systemd; write the five fields"},
		"R/PT5M":                                         {InvalidSyntax, "is an interval of ISO 8601"},
		"RRULE:FREQ=WEEKLY;BYDAY=MO":                     {InvalidSyntax, "is a rule of a calendar"},
		"* * * *":                                        {InvalidSyntax, "4 fields are given; 5 are needed, or 6 with seconds first"},
		"0 0 0 1 1 * 2030":                               {InvalidSyntax, "7 fields are given"},
		"*/0 * * * *":                                    {InvalidRange, "minute step 0 is out of range 1-59"},
		"*/60 * * * *":                                   {InvalidRange, "minute step 60 is out of range 1-59"},
		"0 0 30 2 *":                                     {InvalidNever, "0 0 30 2 * never fires within eight years"},
		"0 0 31 2 *":                                     {InvalidNever, "never fires"},
		"0 0 31 4,6,9,11 *":                              {InvalidNever, "never fires"},
		"@every 1s":                                      {InvalidSyntax, "kind every"},
		"@never":                                         {InvalidSyntax, "@yearly, @monthly, @weekly, @daily and @hourly"},
		"@Reboot":                                        {InvalidSyntax, "@reboot is not a time"},
		"*/90 * * * *":                                   {InvalidRange, "minute step 90 is out of range 1-59; an interval is written every 90m"},
		"0 */36 * * *":                                   {InvalidRange, "an interval is written every 36h"},
		"0 9 ? * MON-FRI *":                              {InvalidSyntax, "a year is not understood: leave it out, and write 0 9 * * MON-FRI"},
		"cron(0 9 ? * MON-FRI *)":                        {InvalidSyntax, "write 0 9 * * MON-FRI"},
		"0 0 9 ? * MON 2027":                             {InvalidSyntax, "a year is not understood: leave it out, and write 0 0 9 * * MON"},
		"0 9 1 * ? 2027":                                 {InvalidSyntax, "a year is not understood: leave it out, and write 0 9 1 * *"},
		"0 9 1/1 * ? *":                                  {InvalidSyntax, "leave it out, and write 0 9 1/1 * *"},
		"H/15 * * * *":                                   {InvalidSyntax, `minute: "H/15" is not understood; write 0 to 59: the jitter`},
		"0 9 * * ? *":                                    {InvalidSyntax, "leave it out, and write 0 9 * * *"},
		"0 9 * * MON *":                                  {InvalidSyntax, "leave it out, and write 0 9 * * MON"},
		"0 9 * * 1-5 2026-2030":                          {InvalidSyntax, "leave it out, and write 0 9 * * 1-5"},
		"every 5m":                                       {InvalidSyntax, "every 5m is not an expression; use a schedule of kind every with everyMs: every 5m"},
		"every day at 9:00":                              {InvalidSyntax, "every day at 9:00 is not an expression; write 0 9 * * *"},
		"every Monday 8:30":                              {InvalidSyntax, "write 30 8 * * 1"},
		"every other day":                                {InvalidSyntax, "write the five fields, such as 0 9 * * MON-FRI"},
		"cron(0 9 ? * 2-6 *)":                            {InvalidSyntax, "write 0 9 * * MON-FRI"},
		"0 0 9 ? * 2#1,7L 2027":                          {InvalidSyntax, "write 0 0 9 * * MON#1,SATL"},
		"0 9 ? * 1/2 2027":                               {InvalidSyntax, "write 0 9 * * SUN/2"},
		"0 9 * * * Europe/Berlin":                        {InvalidSyntax, "leave out Europe/Berlin"},
		"'0 9 * * *'":                                    {InvalidSyntax, "leave out the quotes around 0 9 * * *"},
		"0 9 * * MON, WED":                               {InvalidSyntax, "write 0 9 * * MON,WED"},
		"0 9 * * MON - FRI":                              {InvalidSyntax, "write 0 9 * * MON-FRI"},
		"0 9 * * 1–5":                                    {InvalidSyntax, "byte 10 is not a plain ASCII character: a long dash; write -"},
		"0 9 LW-2 * *":                                   {InvalidSyntax, `"LW-2" is not understood; write L-2`},
		"0 9 15-L * *":                                   {InvalidSyntax, `"15-L" is not understood; write L-2`},
		"0 9 * * mon-":                                   {InvalidSyntax, `"mon-" is not understood`},
		"0 22-2/2 * * *":                                 {InvalidRange, "hour range 22-2 runs backwards; write 22,0,2"},
		"09:00":                                          {InvalidSyntax, "1 field is given"},
		"0 9 L-x * *":                                    {InvalidSyntax, `"L-x" is not understood; write L-2`},
		"0 9 L-31 * *":                                   {InvalidRange, "out of range 0-30"},
		"0 9 L-3W * *":                                   {InvalidSyntax, `"L-3W" is not understood; write L-2`},
		"0 9 * * 5W":                                     {InvalidSyntax, "every weekday is MON-FRI"},
		"0 9 * * 5-1":                                    {InvalidRange, "day of week range 5-1 runs backwards; write 5-6,0-1"},
		"0 22-6 * * *":                                   {InvalidRange, "hour range 22-6 runs backwards; write 22-23,0-6"},
		"0 9 ?,3 * *":                                    {InvalidSyntax, "? must be alone"},
		"0 ? * * *":                                      {InvalidSyntax, "? is for the day fields, write *"},
		"@daily 5":                                       {InvalidSyntax, "write @daily"},
		"٣ * * * *":                                      {InvalidSyntax, "not a plain ASCII character"},
		"0\n9 * * *":                                     {InvalidSyntax, "byte 2 is not a plain ASCII character"},
		"0 0 * * 5#6":                                    {InvalidRange, "the number after # is 6, out of range 1-5"},
		"0 0 * * 5#0":                                    {InvalidRange, "the number after # is 0"},
		"0 0 * * 9#1":                                    {InvalidRange, "day of week 9 is out of range 0-7"},
		"0 0 * * #1":                                     {InvalidSyntax, "not understood"},
		"0 0 * * L":                                      {InvalidSyntax, "L needs a day"},
		"0 0 W * *":                                      {InvalidSyntax, "W needs a day"},
		"0 0 32W * *":                                    {InvalidRange, "day of month 32 is out of range 1-31"},
		"0 0 * JANU *":                                   {InvalidSyntax, `month: "JANU" is not understood; write 1 to 12, or JAN to DEC`},
		"H 9 * * *":                                      {InvalidSyntax, "write 0 to 59: the jitter of a job spreads its fires"},
		"0~30 9 * * *":                                   {InvalidSyntax, "write 0 to 59: the jitter of a job spreads its fires"},
		"CRON_TZ=Europe/Berlin 0 9 * * *":                {InvalidSyntax, "leave out CRON_TZ=Europe/Berlin: the time zone is a setting of its own, tz: Europe/Berlin"},
		"TZ=UTC 0 9 * * *":                               {InvalidSyntax, "tz: UTC"},
		"rate(5 minutes)":                                {InvalidSyntax, "every 5m"},
		"0 9 * * 1-5 # weekdays":                         {InvalidSyntax, "leave out the comment: write 0 9 * * 1-5"},
		"0 0 * 1JAN *":                                   {InvalidSyntax, "is not understood"},
		"0 MON * * *":                                    {InvalidSyntax, "is not understood"},
		"*,abc * * * *":                                  {InvalidSyntax, "is not understood"},
		"*,5 * * * *":                                    {InvalidSyntax, "* must be alone"},
		"1-2-3 * * * *":                                  {InvalidSyntax, "is not understood"},
		"5-1 * * * *":                                    {InvalidRange, "minute range 5-1 runs backwards"},
		"1, * * * *":                                     {InvalidSyntax, "minute has an empty item"},
		"1,,2 * * * *":                                   {InvalidSyntax, "empty item"},
		"5/ * * * *":                                     {InvalidSyntax, "is not understood"},
		"1/2/3 * * * *":                                  {InvalidSyntax, "is not understood"},
		"+1 * * * *":                                     {InvalidSyntax, "is not understood"},
		"-1 * * * *":                                     {InvalidSyntax, "is not understood"},
		"1.5 * * * *":                                    {InvalidSyntax, "is not understood"},
		"? * * * *":                                      {InvalidSyntax, "is not understood"},
		"18446744073709551617 * * * *":                   {InvalidRange, "out of range 0-59"},
		strings.Repeat("1,", 124) + "1 * * * *":          {InvalidRange, "257 bytes are too long, at most 256 are allowed"},
	} {
		_, err := Check(cronSpec(expr, "UTC"), noon, Rules{})
		refused(t, expr, err, "schedule.expr", want.reason, want.sentence)
	}
}

func TestCheckAcceptsTheWholeGrammar(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 9 * * 1-5":           "2026-11-23T09:00:00Z",
		"  0   9 *\t* mon-fri ": "2026-11-23T09:00:00Z",
		"0 9 * * FRI-SUN":       "2026-11-21T09:00:00Z",
		"0 9 * * 7":             "2026-11-22T09:00:00Z",
		"0 9 * * 7-1":           "2026-11-22T09:00:00Z",
		"0 9 * * 1#1":           "2026-12-07T09:00:00Z",
		"0 9 * * FRI#5":         "2027-01-29T09:00:00Z",
		"0 9 * * 5L":            "2026-11-27T09:00:00Z",
		"0 9 L * *":             "2026-11-30T09:00:00Z",
		"0 9 15W JAN,feb *":     "2027-01-15T09:00:00Z",
		"0 9 1W 5 *":            "2027-05-03T09:00:00Z",
		"0 0 29 2 *":            "2028-02-29T00:00:00Z",
		"0 0 13 * 5":            "2026-11-27T00:00:00Z",
		"5/20 * * * *":          "2026-11-20T12:05:00Z",
		"10-30/10 12 * * *":     "2026-11-20T12:10:00Z",
		"*/15 30 12 * * *":      "2026-11-20T12:30:00Z",
		"059 012 * * *":         "2026-11-20T12:59:00Z",
		"@yearly":               "2027-01-01T00:00:00Z",
		"@monthly":              "2026-12-01T00:00:00Z",
		"@weekly":               "2026-11-22T00:00:00Z",
		"@daily":                "2026-11-21T00:00:00Z",
		"@HOURLY":               "2026-11-20T13:00:00Z",
		"*/7,59 * * * *":        "2026-11-20T12:07:00Z",
		"0 9 * * 7/2":           "2026-11-21T09:00:00Z",
		"0 9 * * 1-7/2":         "2026-11-22T09:00:00Z",
		"0 9 * * 7#1":           "2026-12-06T09:00:00Z",
	} {
		s, err := Check(cronSpec(expr, "UTC"), noon, Rules{})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if f, ok := s.Next(noon); !ok || !f.Slot.Equal(at(t, want)) {
			t.Errorf("%s: next is %s, want %s", expr, f.Slot, want)
		}
	}
}

func TestCheckBoundsIntervals(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{math.MinInt64, -5, -1, 0, 1, 999, 315_360_000_001, 9223372036855, math.MaxInt64} {
		_, err := Check(Spec{Kind: KindEvery, EveryMs: ms}, noon, Rules{})
		refused(t, "every", err, "schedule.everyMs", InvalidRange, "is out of range 1000-315360000000")
	}
	for _, ms := range []int64{1000, 59_999, 60_000, 315_360_000_000} {
		if _, err := Check(Spec{Kind: KindEvery, EveryMs: ms}, noon, Rules{}); err != nil {
			t.Errorf("every %d ms: %v", ms, err)
		}
		_, err := Check(Spec{Kind: KindEvery, EveryMs: ms}, noon, Rules{}.ForChat())
		if ms < 60_000 {
			refused(t, "every for chat", err, "schedule.everyMs", InvalidRange, "is out of range 60000-315360000000")
		} else if err != nil {
			t.Errorf("every %d ms for chat: %v", ms, err)
		}
	}
	_, err := Check(Spec{Kind: KindEvery, EveryMs: 1000, AnchorMs: -1}, noon, Rules{})
	refused(t, "anchor", err, "schedule.anchorMs", InvalidRange, "out of range 0-")
	_, err = Compile(Spec{Kind: KindEvery, EveryMs: 1000, AnchorMs: math.MaxInt64})
	refused(t, "anchor", err, "schedule.anchorMs", InvalidRange, "out of range 0-")
}

func TestCheckRefusesExpressionsCloserThanTheMinimum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr  string
		least time.Duration
		ok    bool
	}{
		{"* * * * * *", time.Second, true},
		{"*/30 * * * * *", time.Minute, false},
		{"59 * * * * *", time.Minute, true},
		{"* * * * *", time.Minute, true},
		{"* * * * *", 61 * time.Second, false},
		{"0,59 30 12 * * *", time.Minute, false},
		{"0,59 0,1 12 * * *", time.Second, true},
		{"0,59 0,1 12 * * *", 2 * time.Second, false},
		{"*/20 * * * *", 20 * time.Minute, true},
		{"*/25 * * * *", 20 * time.Minute, false}, // 50 to the next 0
		{"5,55 */2 * * *", 50 * time.Minute, true},
		{"5,55 */2 * * *", 51 * time.Minute, false},
		{"0 0,23 * * *", time.Hour, true},
		{"0 0,23 * * *", 61 * time.Minute, false},
		{"0 0,23 * * 1", 61 * time.Minute, true},
		{"0 12 * * *", 24 * time.Hour, true},
		{"0 12 * * *", 25 * time.Hour, false},
		{"0 12 1,L * *", 25 * time.Hour, false},
		{"0 12 1,15 * *", 13 * 24 * time.Hour, true},
		{"0 12 1,15 * *", 15 * 24 * time.Hour, false},
	} {
		_, err := Check(cronSpec(c.expr, "UTC"), noon, Rules{MinInterval: c.least})
		if c.ok && err != nil {
			t.Errorf("%s at least %s: %v", c.expr, c.least, err)
		}
		if !c.ok {
			refused(t, c.expr, err, "schedule.expr", InvalidFrequent, "at least "+c.least.String()+" are needed")
		}
	}
}

func TestCheckBoundsMoments(t *testing.T) {
	t.Parallel()
	check := func(at time.Time, r Rules) error {
		_, err := Check(Spec{Kind: KindAt, At: at}, noon, r)
		return err
	}
	for _, d := range []time.Duration{-time.Minute, 0, time.Millisecond, 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		if err := check(noon.Add(d), Rules{}); err != nil {
			t.Errorf("at now%+v: %v", d, err)
		}
	}
	refused(t, "past", check(noon.Add(-time.Minute-time.Millisecond), Rules{}), "schedule.at", InvalidPast, "1m0s before now")
	if err := check(noon.Add(-time.Hour), Rules{}); !strings.HasPrefix(err.Error(), "schedule.at is in the past: 2026-11-20T11:00:00.000Z") {
		t.Errorf("message %q has the wrong start", err)
	}
	refused(t, "2200", check(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), Rules{}), "schedule.at", InvalidRange, "2199-12-31")
	refused(t, "chat", check(noon.AddDate(2, 0, 0), Rules{}.ForChat()), "schedule.at", InvalidRange, "at most 366 days")
	refused(t, "zero", check(time.Time{}, Rules{}), "schedule.at", InvalidMissing, "a moment is needed")
}

func TestAtInMillisecondsRefusesSeconds(t *testing.T) {
	t.Parallel()
	for ms, sentence := range map[int64]string{
		-1: "is negative", 0: "looks like seconds", 1803895200: "looks like seconds; milliseconds since 1970 are needed, try 1803895200000",
		99_999_999_999: "looks like seconds", 7_258_118_400_000: "2199-12-31", math.MaxInt64: "2199-12-31",
	} {
		_, err := AtFromMs(ms)
		refused(t, "at", err, "schedule.atMs", InvalidRange, sentence)
	}
	if got, err := AtFromMs(1803895200000); err != nil || !got.Equal(at(t, "2027-03-01T10:00:00Z")) {
		t.Errorf("AtFromMs = %s, %v", got, err)
	}
}

func TestParseAtReadsLocalTimesInTheZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, tz, want string }{
		{"2027-03-02T08:00:00Z", "Europe/Berlin", "2027-03-02T08:00:00Z"},
		{"2027-03-02T08:00:00.1239+02:00", "", "2027-03-02T06:00:00.123Z"},
		{"2027-03-02T08:00", "", "2027-03-02T08:00:00Z"},
		{"2027-03-02 08:00:30", "Europe/Berlin", "2027-03-02T07:00:30Z"},
		{"2027-03-02T08:00:00.5", "+05:30", "2027-03-02T02:30:00.5Z"},
		{"2027-03-02T08:00", "-03:30", "2027-03-02T11:30:00Z"},
		{"2027-03-02", "Asia/Tokyo", "2027-03-01T15:00:00Z"},
		{"2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:00:00Z"},
		{"2026-11-01T01:30:00", "America/New_York", "2026-11-01T05:30:00Z"},
		{"2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"},
		{"1803895200000", "", "2027-03-01T10:00:00Z"},
	} {
		if got, err := ParseAt(c.text, c.tz); err != nil || !got.Equal(at(t, c.want)) {
			t.Errorf("ParseAt(%q, %q) = %s, %v, want %s", c.text, c.tz, got, err, c.want)
		}
	}
	for _, text := range []string{"", "soon", "2027-02-30T00:00:00Z", "2027-13-01", "2027-03-02T25:00", "2027-03-02T08:00:00+99:99"} {
		_, err := ParseAt(text, "")
		refused(t, text, err, "schedule.at", InvalidSyntax, "is not a moment")
	}
	_, err := ParseAt("2200-01-01T00:00:00Z", "")
	refused(t, "2200", err, "schedule.at", InvalidRange, "2199-12-31")
	_, err = ParseAt("2027-03-02T08:00", "Mars/Base")
	refused(t, "zone", err, "schedule.tz", InvalidZone, "not a known time zone: Mars/Base")
}

// The rules of Canada, Cuba and Morocco changed in 2026.
func TestZonesHaveTheRulesOf2026(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 12, 10, 0, 0, 0, 0, time.UTC)
	for zone, hour := range map[string]int{
		"America/Vancouver": 16, "America/Edmonton": 15, "America/Inuvik": 15, "America/Yellowknife": 15, "America/Winnipeg": 14,
		"America/Rainy_River": 14, "America/Havana": 13, "Africa/Casablanca": 9, "Africa/El_Aaiun": 9, "Canada/Pacific": 16, "Europe/Berlin": 8,
	} {
		s, err := Check(cronSpec("0 9 * * *", zone), day, Rules{})
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := s.Next(day); !ok || at.At.UTC().Hour() != hour {
			t.Errorf("9:00 in %s is %s, want %d:00 UTC", zone, at.At.UTC(), hour)
		}
	}
	if r := ZoneRelease(); r < "2026c" {
		t.Errorf("the release is %s", r)
	}
}

func TestClockChangesOfZonesFollowEachOther(t *testing.T) {
	t.Parallel()
	for _, name := range embeddedZones() {
		loc, err := LoadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := time.Date(2026, 1, 1, 12, 0, 0, 0, loc); at.Year() < 2037; {
			_, end := at.ZoneBounds()
			if end.IsZero() {
				break
			}
			if !end.After(at) {
				t.Fatalf("%s: no change follows %s", name, at)
			}
			at = end
		}
	}
}

// ZONEINFO replaces the rules of the program by those of a directory; a zone that is not there is
// not found elsewhere.
func TestZONEINFOReplacesTheEmbeddedZones(t *testing.T) {
	dir := t.TempDir()
	berlin, err := zoneRules{}.file("Europe/Berlin")
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "Custom"), berlin, 0o600), os.WriteFile(filepath.Join(dir, "tzdata.zi"), []byte("# version 2031a\nR x\n"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ZONEINFO", dir)
	loc, err := LoadZone("Custom")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, loc).Zone(); offset != 7200 {
		t.Errorf("the offset is %d", offset)
	}
	if _, err := LoadZone("Europe/London"); err == nil {
		t.Error("a zone of the host or of the program was read")
	}
	if got := ZoneRelease(); got != "2031a" {
		t.Errorf("the release is %s", got)
	}
}

func TestMissingZONEINFOIsNamedAsTheCause(t *testing.T) {
	t.Setenv("ZONEINFO", filepath.Join(t.TempDir(), "none"))
	_, err := LoadZone("Europe/Berlin")
	refused(t, "no rules", err, "schedule.tz", InvalidZone, "Europe/Berlin cannot be looked up: the variable ZONEINFO of the gateway names")
	if CheckZones() == nil {
		t.Error("the check accepts a directory that does not exist")
	}
	if _, err := LoadZone("+02:00"); err != nil {
		t.Error("an offset needs no rules:", err)
	}
}

func TestZonesAreKnownOrRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "UTC", "Z", "+05:30", "-11:00", "+14:00", "+00:00", "Europe/Berlin", "Etc/GMT+5", "America/Argentina/Buenos_Aires"} {
		if _, err := LoadZone(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, sentence := range map[string]string{
		"Mars/Base": "not a known time zone: Mars/Base; write a name", "Europe/Berln": "did you mean Europe/Berlin?", "europe/berlin": "did you mean Europe/Berlin?", "Local": "not a known time zone: Local", "localtime": "not a known",
		"right/UTC": "not a known", "../etc/passwd": "not a known", "/etc/localtime": "not a known", "Europe/Ber\x00lin": "not a known",
		"+5:30": "+HH:MM", "+0530": "+HH:MM", "+14:01": "out of range", "-15:00": "out of range", "+01:60": "out of range",
		"+1a:00": "+HH:MM", strings.Repeat("A", 65): "not a known", "Zürich": "not a known",
	} {
		_, err := Check(cronSpec("0 9 * * *", name), noon, Rules{})
		refused(t, name, err, "schedule.tz", InvalidZone, sentence)
	}
	s, err := Check(Spec{Kind: KindCron, Expr: "0 9 * * *"}, noon, Rules{DefaultTZ: "Asia/Tokyo"})
	if err != nil || s.Spec().TZ != "Asia/Tokyo" || s.Location().String() != "Asia/Tokyo" {
		t.Errorf("default zone: %+v, %v", s.Spec(), err)
	}
	if s, err = Check(Spec{Kind: KindCron, Expr: "0 9 * * *"}, noon, Rules{}); err != nil || s.Spec().TZ != "UTC" {
		t.Errorf("without a zone: %+v, %v", s.Spec(), err)
	}
}

func TestCheckRefusesUnknownWords(t *testing.T) {
	t.Parallel()
	_, err := Check(Spec{Kind: "weekly"}, noon, Rules{})
	refused(t, "kind", err, "schedule.kind", InvalidKind, "weekly is not known; the kinds are at, every and cron")
	_, err = Check(Spec{}, noon, Rules{})
	refused(t, "no kind", err, "schedule.kind", InvalidMissing, "one of at, every and cron")
	_, err = Check(Spec{Kind: KindCron, Expr: "0 9 * * *", Gap: "never"}, noon, Rules{})
	refused(t, "gap", err, "dst.gap", InvalidChoice, "run_after and skip")
	_, err = Check(Spec{Kind: KindCron, Expr: "0 9 * * *", Fold: "third"}, noon, Rules{})
	refused(t, "fold", err, "dst.overlap", InvalidChoice, "first, second and both")
}

func TestSignatureIsTheSameForTheSamePattern(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Spec{
		"every:60000":                  {Kind: KindEvery, EveryMs: 60000, AnchorMs: 77},
		"cron:0 9 * * 1:Europe/Madrid": {Kind: KindCron, Expr: " 0  9 * *\t1 ", TZ: "Europe/Madrid", Gap: GapSkip},
		"cron:@daily:UTC":              {Kind: KindCron, Expr: "@daily"},
		"at:1803898800000":             {Kind: KindAt, At: time.UnixMilli(1803898800000)},
	} {
		if got := s.Signature(); got != want {
			t.Errorf("Signature(%+v) = %q, want %q", s, got, want)
		}
		if got := mustCompile(t, s).Spec().Signature(); got != want {
			t.Errorf("signature of the stored form = %q, want %q", got, want)
		}
	}
	if got := Key("tea", Spec{Kind: KindEvery, EveryMs: 1000}); got != "tea::every:1000" {
		t.Errorf("Key = %q", got)
	}
}

// Expressions of Quartz, AWS and other schedulers with the first days on which they fire from 1
// January 2027.
func TestWordsOfOtherSchedulersMeanWhatPeopleMean(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)
	for expr, want := range map[string]string{
		"0 9 LW * *": "01-29 02-26 03-31 04-30 05-31", "0 9 lw * *": "01-29 02-26 03-31", "0 9 L-2 * *": "01-29 02-26 03-29", "0 9 L-30 * *": "01-01 03-01 05-01", "0 9 L-0 * *": "01-31 02-28",
		"0 9 1,LW * *": "01-01 01-29 02-01 02-26", "0 0 9 ? * MON-FRI": "01-01 01-04 01-05", "0 9 1 * ?": "01-01 02-01", "0 9 ? * ?": "01-01 01-02", "@midnight": "01-01 01-02", "@Annually": "01-01",
		"0 9 * * FRI-MON": "01-01 01-02 01-03 01-04 01-08", "0 9 * * sat-sun": "01-02 01-03 01-09", "0 9 * * FRI-MON/2": "01-01 01-03 01-08", "0 9 1 NOV-FEB *": "01-01 02-01 11-01 12-01", "0 9 1 November-february *": "01-01 02-01 11-01 12-01",
		"0 9 * * 5-7": "01-01 01-02 01-03 01-08", "0 9 * * FRI#L": "01-29 02-26", "0 9 * * 7": "01-03 01-10", "0 9 * * monday-Friday/4": "01-01 01-04 01-08", "0 9 * * TUES,thurs": "01-05 01-07 01-12", "0 9 1 sept,December *": "09-01 12-01", "0 9 15W * *": "01-15 02-15 03-15 04-15 05-14",
	} {
		s, err := Check(cronSpec(expr, "UTC"), begin, Rules{})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		at := begin
		for day := range strings.FieldsSeq(want) {
			f, ok := s.Next(at)
			if at = f.Slot; !ok || at.Format("01-02") != day {
				t.Errorf("%s fires on %s, want %s", expr, at.Format("01-02"), day)
				break
			}
		}
	}
}

func TestSurprisesNameTheRealDistances(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"*/45 * * * *":    "minute */45 starts again with each hour (0, 45): the runs are 45 minutes apart, but 15 minutes at its end; an even interval is written every 45m",
		"*/7 * * * *":     "(0, 7, 14, ..., 56): the runs are 7 minutes apart, but 4 minutes at its end",
		"0-59/45 * * * *": "but 15 minutes at its end",
		"7/25 * * * *":    "(7, 32, 57): the runs are 25 minutes apart, but 10 minutes at its end",
		"0 */5 * * *":     "hour */5 starts again with each day (0, 5, 10, 15, 20): the runs are 5 hours apart, but 4 hours at its end; an even interval is written every 5h",
		"0 0 */2 * *":     "day of month */2 starts again with each month of 31 days (1, 3, 5, ..., 31): the runs are 2 days apart, but 1 day at its end",
		"0 0 1 */5 *":     "month */5 starts again with each year (JAN, JUN, NOV): the runs are 5 months apart, but 2 months at its end",
		"0 0 * * */2":     "day of week */2 starts again with each week (SUN, TUE, THU, SAT): the runs are 2 days apart, but 1 day at its end",
		"*/25 * * * * *":  "second */25 starts again with each minute (0, 25, 50): the runs are 25 seconds apart, but 10 seconds at its end",
		"40/30 * * * *":   "minute 40/30 is one value in each hour (40)",
		"0 1-23/5 * * *":  "(1, 6, 11, 16, 21): the runs are 5 hours apart, but 4 hours at its end",
		"0-58/7 * * * *":  "(0, 7, 14, ..., 56): the runs are 7 minutes apart, but 4 minutes at its end",
		"0 0 */31 * *":    "day of month */31 is one value in each month of 31 days (1); an even interval is written every 31d",
		"0 0 * * 1-7/2":   "(MON, WED, FRI, SUN): the runs are 2 days apart, but 1 day at its end",
		"0 0 * * 7/2":     "(SUN, TUE, THU, SAT): the runs are 2 days apart, but 1 day at its end",
		"0 9 13 * FRI":    "day of month and day of week are both given: it runs on each day that matches one of them, on 65 days in the next year",
		"0 9 */2 * MON":   "must both match",
		"*/15 0-6 * * *":  "when the clock goes back on Sun 31 Oct 2027, the repeated hour has no runs: 1h15m pass between 01:45 and 02:00 instead of 15m",
		"0 1,2,3 * * *":   "2h pass between 01:00 and 02:00 instead of 1h",
		"*/15 * * * *":    "", "*/15 0-23 * * *": "", "0 0-11,12-23 * * *": "", "5/20 * * * *": "", "0 */8 * * *": "", "*/45 9 * * *": "", "0 8-18/3 * * *": "", "0 9 * * MON-FRI": "",
		"0 0 9 ? * 2-6":   "day of week 2-6 is TUE-SAT; schedulers that write ? count from SUN = 1: if you mean MON-FRI, write it so",
		"0 9 ? * 1#2":     "day of week 1#2 is MON#2;",
		"0 9 31 * *":      "day of month 31 is not in each month: no run in February, April, June, September and November; the last day of a month is written L",
		"0 9 1,15,30 * *": "day of month 30 is not in each month: no run in February; the last day",
		"0 9 29 * *":      "no run in February, except in leap years; the last day",
		"0 9 29 2 *":      "no run in February, except in leap years",
		"0 9 31 1,4 *":    "no run in April;",
		"0 9 28-31 * *":   "", "0 9 28 * *": "", "0 9 31 1,3 *": "", "0 9 L * *": "", "0 9 31 12 *": "", "0 9 30 APR *": "",
		"30 1 * * *": "", "0 1,13 * * *": "", "0 9 ? * FRI": "", "0 9 1 */3 *": "", "@hourly": "",
		"0 9 * * MON-FRI/2": "", "0 1-23/2 * * *": "", "5-55/10 * * * *": "", "0 0 * * */7": "",
	} {
		s, err := Check(cronSpec(expr, "Europe/London"), noon, Rules{})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		got := strings.Join(s.Surprises(time.Date(2027, 10, 1, 0, 0, 0, 0, time.UTC)), " | ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	if (Schedule{}).Surprises(noon) != nil {
		t.Error("no schedule is no surprise")
	}
}

func TestAllHoursFollowRealTimeHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	like := mustCompile(t, cronSpec("*/15 * * * *", "Europe/London"))
	for _, expr := range []string{"*/15 0-23 * * *", "*/15 0-11,12-23 * * *", "*/15 0-23/1 * * *"} {
		s := mustCompile(t, cronSpec(expr, "Europe/London"))
		for at, end := time.Date(2027, 10, 30, 12, 0, 0, 0, time.UTC), time.Date(2027, 10, 31, 12, 0, 0, 0, time.UTC); at.Before(end); {
			want, _ := like.Next(at)
			if got, _ := s.Next(at); !got.Slot.Equal(want.Slot) {
				t.Fatalf("%s: %s after %s, want %s", expr, got.Slot, at, want.Slot)
			}
			at = want.Slot
		}
	}
}

func TestCompilerRemembersAndStaysBounded(t *testing.T) {
	t.Parallel()
	c := NewCompiler(8)
	first, err := c.Compile(cronSpec("0 9 * * *", "Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := c.Compile(cronSpec("0 9 * * *", "Europe/Berlin"))
	if first != again {
		t.Error("the same spec was compiled twice")
	}
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range 200 {
				spec := cronSpec(fmt.Sprintf("%d %d * * *", i%60, (i+g)%24), "Asia/Tokyo")
				s, err := c.Compile(spec)
				if err != nil || s.Spec() != spec {
					t.Errorf("Compile(%+v) = %+v, %v", spec, s.Spec(), err)
				}
				if _, ok := s.Next(noon); !ok {
					t.Errorf("%+v never fires", spec)
				}
			}
		})
	}
	group.Wait()
	if kept := len(c.newer) + len(c.older); kept > 16 {
		t.Errorf("%d schedules are kept, want at most 16", kept)
	}
	_, err = c.Compile(cronSpec("0 9 * * *", "Mars/Base"))
	refused(t, "zone", err, "schedule.tz", InvalidZone, "Mars/Base")
	if s, err := c.Compile(Spec{Kind: KindEvery, EveryMs: 1000}); err != nil || s.Kind() != KindEvery {
		t.Errorf("every: %+v, %v", s, err)
	}
}

// Typical mistakes are refused quickly: each of these takes less than a millisecond in the best of
// several tries, which is independent of the load of the machine.
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
