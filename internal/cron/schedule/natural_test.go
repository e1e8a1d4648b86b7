package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Friday, 20 November 2026, 13:00 in Berlin.
func TestParseWhenReadsMoments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ at, rest string }{
		"in 20m call Anna":                    {"2026-11-20T12:20:00Z", "call Anna"},
		"in 2h30m":                            {"2026-11-20T14:30:00Z", ""},
		"IN 1d12h  feed  the cat":             {"2026-11-22T00:00:00Z", "feed  the cat"},
		"in 20 minutes tea":                   {"2026-11-20T12:20:00Z", "tea"},
		"in 1w x":                             {"2026-11-27T12:00:00Z", "x"},
		`"in 20m" call Anna`:                  {"2026-11-20T12:20:00Z", "call Anna"},
		"“in 2 hours” tea":                    {"2026-11-20T14:00:00Z", "tea"},
		"„tomorrow 9:00“ x":                   {"2026-11-21T08:00:00Z", "x"},
		`"at 15:00" "x"`:                      {"2026-11-20T14:00:00Z", `"x"`},
		`"2027-03-02 15:00"`:                  {"2027-03-02T14:00:00Z", ""},
		"15:00 call Anna":                     {"2026-11-20T14:00:00Z", "call Anna"},
		"13:00 now is over":                   {"2026-11-21T12:00:00Z", "now is over"},
		"at 9:00 wake up":                     {"2026-11-21T08:00:00Z", "wake up"},
		"3pm tea":                             {"2026-11-20T14:00:00Z", "tea"},
		"1am tea":                             {"2026-11-21T00:00:00Z", "tea"},
		"12pm tea":                            {"2026-11-21T11:00:00Z", "tea"},
		"12:15am moon":                        {"2026-11-20T23:15:00Z", "moon"},
		"today 15:00 x":                       {"2026-11-20T14:00:00Z", "x"},
		"tomorrow 9:00 x":                     {"2026-11-21T08:00:00Z", "x"},
		"tomorrow at 9:00 x":                  {"2026-11-21T08:00:00Z", "x"},
		"Monday 8:30 standup":                 {"2026-11-23T07:30:00Z", "standup"},
		"fri 12:00 next week":                 {"2026-11-27T11:00:00Z", "next week"},
		"on fri 14:00 today":                  {"2026-11-20T13:00:00Z", "today"},
		"2027-03-02 15:00 tax":                {"2027-03-02T14:00:00Z", "tax"},
		"2027-03-28 02:30 in the gap":         {"2027-03-28T01:00:00Z", "in the gap"},
		"2027-03-02T08:00:00Z 5 things":       {"2027-03-02T08:00:00Z", "5 things"},
		"2027-03-02t08:00:00+01:00 line\ntwo": {"2027-03-02T07:00:00Z", "line\ntwo"},
	} {
		got, rest, err := ParseWhen(text, noon, "Europe/Berlin")
		if err != nil || got.Kind != KindAt || !got.At.Equal(at(t, want.at)) || rest != want.rest {
			t.Errorf("ParseWhen(%q) = %+v, %q, %v, want %s, %q", text, got, rest, err, want.at, want.rest)
		}
	}
}

func TestParseWhenReadsRepetitions(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) Spec {
		return Spec{Kind: KindEvery, EveryMs: d.Milliseconds(), AnchorMs: noon.UnixMilli()}
	}
	expr := func(e string) Spec { return cronSpec(e, "Europe/Berlin") }
	for text, want := range map[string]struct {
		spec Spec
		rest string
	}{
		"every 30m drink":                {every(30 * time.Minute), "drink"},
		"every 2 hours stretch":          {every(2 * time.Hour), "stretch"},
		"every 90s":                      {every(90 * time.Second), ""},
		"every day 9:00 news":            {expr("0 9 * * *"), "news"},
		"every day at 7pm news":          {expr("0 19 * * *"), "news"},
		"every 1d 9:00 news":             {expr("0 9 * * *"), "news"},
		"every 1 day at 9:00 news":       {expr("0 9 * * *"), "news"},
		"every 24h 7pm news":             {expr("0 19 * * *"), "news"},
		"every 1d nine news":             {every(24 * time.Hour), "nine news"},
		`"every 2d" 9:00 news`:           {every(48 * time.Hour), "9:00 news"},
		`"every day 9:00" news`:          {expr("0 9 * * *"), "news"},
		`" every 30m "  drink`:           {every(30 * time.Minute), "drink"},
		"«every monday 8:30» plan":       {expr("30 8 * * 1"), "plan"},
		`"@daily" backup`:                {expr("@daily"), "backup"},
		"every weekday 9:05 news":        {expr("5 9 * * 1-5"), "news"},
		"Every Monday 8:30 plan":         {expr("30 8 * * 1"), "plan"},
		"every sun 8:30 rest":            {expr("30 8 * * 0"), "rest"},
		`"0 9 * * 1-5" morning briefing`: {expr("0 9 * * 1-5"), "morning briefing"},
		`"0 0 9 * * 1" six`:              {expr("0 0 9 * * 1"), "six"},
		"0 9 * * 1-5 morning briefing":   {expr("0 9 * * 1-5"), "morning briefing"},
		"0 9 * * mon 5 apples":           {expr("0 9 * * mon"), "5 apples"},
		"0 0 9 * * 1-5 six fields":       {expr("0 0 9 * * 1-5"), "six fields"},
		"0 30 9 * * 1 six fields":        {expr("0 30 9 * * 1"), "six fields"},
		"*/5 * * * *":                    {expr("*/5 * * * *"), ""},
		"@daily  backup":                 {expr("@daily"), "backup"},
	} {
		got, rest, err := ParseWhen(text, noon, "Europe/Berlin")
		if err != nil || got != want.spec || rest != want.rest {
			t.Errorf("ParseWhen(%q) = %+v, %q, %v, want %+v, %q", text, got, rest, err, want.spec, want.rest)
			continue
		}
		if _, err := Check(got, noon, Rules{}); err != nil {
			t.Errorf("Check of %q: %v", text, err)
		}
	}
}

func TestParseWhenNamesWhatItUnderstands(t *testing.T) {
	t.Parallel()
	for text, sentence := range map[string]string{
		"":                         "is not understood; write in 20m",
		"call Anna at 15:00":       "call Anna at 15:00 is not understood",
		"in a while":               "is not understood",
		"in 20x":                   "is not understood",
		"in 0m":                    "is not understood",
		"in 99999999999999999999h": "at most ten years",
		"in 11 years":              "is not understood",
		"in 4000d":                 "at most ten years",
		"25:00 x":                  "is not understood",
		"9:60 x":                   "is not understood",
		"13pm x":                   "is not understood",
		"0am x":                    "is not understood",
		"tomorrow":                 "a time of day is needed after tomorrow",
		"tomorrow noon":            "a time of day is needed after tomorrow",
		"every day":                "a time of day is needed, such as every day 9:00",
		"every fortnight":          "is not understood",
		"2027-02-30 15:00":         "is not understood",
		`"0 9 * * 1-5 x`:           "the closing quote is missing",
		`"in 20m call Anna"`:       "is not understood",
		`"every day" 9:00 x`:       "a time of day is needed, such as every day 9:00",
		`"" x`:                     "is not understood",
		`"`:                        "the closing quote is missing",
		`"0 9 * * 1-5 *  7" x`:     "7 fields",
		"every 2d 9:00 x":          "a time of day goes with a single day",
		"every 1w at 9:00 x":       "a time of day goes with a single day",
		`"0 99 * * *" x`:           "hour 99 is out of range 0-23",
		"99 9 * * * x":             "minute 99 is out of range 0-59",
		"@weekdays x":              "is not known",
	} {
		_, _, err := ParseWhen(text, noon, "Europe/Berlin")
		var got *InvalidError
		if !errors.As(err, &got) || !strings.Contains(err.Error(), sentence) {
			t.Errorf("ParseWhen(%q): %v, want %q", text, err, sentence)
		}
	}
	_, _, err := ParseWhen("15:00 x", noon, "Mars/Base")
	refused(t, "zone", err, "schedule.tz", InvalidZone, "Mars/Base")
}

func TestATimeOfDayIsTheNextOneThroughADayThatDoesNotExist(t *testing.T) {
	t.Parallel()
	// Apia had no 30 December 2011: after the evening of the 29th comes the 31st.
	now := at(t, "2011-12-29T20:00:00-10:00")
	got, _, err := ParseWhen("9:00 x", now, "Pacific/Apia")
	if err != nil || !got.At.After(now) || got.At.After(at(t, "2011-12-31T09:00:00+14:00")) {
		t.Errorf("ParseWhen = %s, %v", got.At, err)
	}
}

func TestParsePastReadsWhatAPersonAsksAbout(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 14, 0, 0, 0, time.UTC) // a Wednesday, 15:00 in Berlin
	for text, want := range map[string]string{
		"9:00":                 "2026-11-25T08:00:00Z",
		"15:00":                "2026-11-25T14:00:00Z",
		"15:01":                "2026-11-24T14:01:00Z",
		"9:00:30":              "2026-11-25T08:00:30Z",
		"15:00:00":             "2026-11-25T14:00:00Z",
		"15:00:01":             "2026-11-24T14:00:01Z",
		"9:00:30am":            "2026-11-25T08:00:30Z",
		"yesterday 9:00:30":    "2026-11-24T08:00:30Z",
		"monday 8:30:15":       "2026-11-23T07:30:15Z",
		"9am":                  "2026-11-25T08:00:00Z",
		"today 16:00":          "2026-11-25T15:00:00Z",
		"yesterday 23:30":      "2026-11-24T22:30:00Z",
		"Yesterday 9:00":       "2026-11-24T08:00:00Z",
		"tomorrow 9:00":        "2026-11-26T08:00:00Z",
		"in 3h":                "2026-11-25T17:00:00Z",
		"monday 8:30":          "2026-11-23T07:30:00Z",
		"wednesday 9:00":       "2026-11-25T08:00:00Z",
		"wednesday 16:00":      "2026-11-18T15:00:00Z",
		"2026-11-20 09:00":     "2026-11-20T08:00:00Z",
		"2026-11-20T09:00:00Z": "2026-11-20T09:00:00Z",
		"1795510800000":        "2026-11-24T09:00:00Z",
		"at 9:00:30":           "2026-11-25T08:00:30Z",
		"yesterday at 9:00:30": "2026-11-24T08:00:30Z",
		"on Monday at 8:30:15": "2026-11-23T07:30:15Z",
		"9:00:30 am":           "2026-11-25T08:00:30Z",
		"9 am":                 "2026-11-25T08:00:00Z",
		"09:00:30.250":         "2026-11-25T08:00:30Z",
		"20m ago":              "2026-11-25T13:40:00Z",
		"2 hours ago":          "2026-11-25T12:00:00Z",
		"now":                  "2026-11-25T14:00:00Z",

		"Tue 24 Nov 2026 09:00:30 +01:00": "2026-11-24T08:00:30Z", // as the explanation of a slot has it
		"Tue 24 Nov 2026 09:00:30 UTC":    "2026-11-24T09:00:30Z",
		"Tue 24 Nov 2026 09:00 CET":       "2026-11-24T08:00:00Z",
		"Tue 24 Nov 2026 09:00":           "2026-11-24T08:00:00Z",
		"Tue 24 Nov 09:00":                "2026-11-24T08:00:00Z",
		"24 Nov 09:00:30":                 "2026-11-24T08:00:30Z",
		"2026-11-24 09:00:30 UTC":         "2026-11-24T09:00:30Z",
	} {
		got, err := ParsePast(text, now, "Europe/Berlin")
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("ParsePast(%q) = %s, %v, want %s", text, got.UTC().Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"", "soon", "every day 9:00", "9:00 and more", "yesterday", "25:00", "9:00:60", "9:00:5", "ago", "soon ago", "Tue 24 Nov 2026 09:00 XYZ"} {
		if got, err := ParsePast(text, now, "Europe/Berlin"); err == nil {
			t.Errorf("ParsePast(%q) = %s, want an error", text, got)
		}
	}
	_, err := ParsePast("today 9:00", now, "Mars/Base")
	refused(t, "zone", err, "schedule.tz", InvalidZone, "not a known time zone: Mars/Base")
}

func TestMomentsAreReadInWords(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-20T14:00:00Z")
	for _, c := range []struct{ text, tz, want string }{
		{"in 20m", "", "2026-11-20T14:20:00Z"},
		{"15:00", "", "2026-11-20T15:00:00Z"},
		{"tomorrow 9:00", "", "2026-11-21T09:00:00Z"},
		{"15:30", "Europe/Berlin", "2026-11-20T14:30:00Z"},
		{"2027-03-02T08:00", "", "2027-03-02T08:00:00Z"},
		{"1803895200000", "", "2027-03-01T10:00:00Z"},
	} {
		if got, err := ParseMoment(c.text, now, c.tz); err != nil || !got.Equal(at(t, c.want)) {
			t.Errorf("%q in %q is %s (%v), want %s", c.text, c.tz, got, err, c.want)
		}
	}
	for text, part := range map[string]string{"every 5m": "write 2027-", "never": "in 20m", "in 20m tea": "in 20m, 15:00", "0 9 * * *": "is not a moment"} {
		_, err := ParseMoment(text, now, "")
		refused(t, text, err, "schedule.at", InvalidSyntax, part)
	}
}

func TestMisspeltDaysAreSuggested(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"tomorow 9:00": "; did you mean tomorrow 9:00?", "on mondy 8:30": "; did you mean on monday 8:30?", "evry 5m": "; did you mean every 5m?", "soon": "or monday 8:30",
	} {
		if _, err := ParseMoment(text, now, ""); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q is refused with %v, want %q", text, err, want)
		}
	}
	if at, err := ParseMoment("yesterday 9:00", now, ""); err != nil || at.Day() != 19 {
		t.Errorf("yesterday is %v, %v", at, err)
	}
}

func TestSchedulesInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expr, tz, want string }{
		{"0 9 * * 1-5", "Europe/Berlin", "weekdays at 09:00, Berlin"},
		{"0 9 * * MON-FRI", "America/New_York", "weekdays at 09:00, New York"},
		{"30 8 * * 1", "", "Mondays at 08:30, UTC"},
		{"0 9 * * 1,4", "Z", "Mondays and Thursdays at 09:00, UTC"},
		{"0 9 * * FRI-MON", "UTC", "Mondays, Fridays, Saturdays and Sundays at 09:00, UTC"},
		{"0 9 * * 0,6", "+05:30", "weekends at 09:00, +05:30"},
		{"0 9 * * 7", "UTC", "Sundays at 09:00, UTC"},
		{"0 9 * * *", "UTC", "daily at 09:00, UTC"},
		{"0 9,17 * * *", "UTC", "daily at 09:00 and 17:00, UTC"},
		{"0 */6 * * *", "UTC", "daily at 00:00, 06:00, 12:00 and 18:00, UTC"},
		{"30 0 9 * * *", "UTC", "daily at 09:00:30, UTC"},
		{"0 * * * *", "UTC", "every hour, UTC"},
		{"15 * * * *", "UTC", "every hour at :15, UTC"},
		{"5 */2 * * *", "UTC", "every 2 hours at :05, UTC"},
		{"0 9-17 * * 1-5", "Europe/Berlin", "every hour from 09:00 to 17:00, weekdays, Berlin"},
		{"*/15 * * * *", "UTC", "every 15 minutes, UTC"},
		{"* * * * *", "UTC", "every minute, UTC"},
		{"*/15 9-17 * * 1-5", "Europe/Berlin", "every 15 minutes from 09:00 to 17:45, weekdays, Berlin"},
		{"*/10 * * * * *", "UTC", "every 10 seconds, UTC"},
		{"0 9 1 * *", "UTC", "on the 1st of each month at 09:00, UTC"},
		{"0 9 1,15 * *", "UTC", "on the 1st and 15th of each month at 09:00, UTC"},
		{"0 9 L * *", "UTC", "on the last day of each month at 09:00, UTC"},
		{"0 18 24 12 *", "UTC", "on the 24th of December at 18:00, UTC"},
		{"0 9 * 6-8 1-5", "UTC", "weekdays in June, July and August at 09:00, UTC"},
		{"@daily", "UTC", "daily at 00:00, UTC"},
		{"@weekly", "UTC", "Sundays at 00:00, UTC"},
		// Without a short description.
		{"0 9 1-7 * 1", "UTC", "0 9 1-7 * 1, UTC"},
		{"*/7 * * * *", "UTC", "*/7 * * * *, UTC"},
		{"0 9 * * 5#2", "UTC", "0 9 * * 5#2, UTC"},
		{"0 9 LW * *", "UTC", "0 9 LW * *, UTC"},
		{"0 9 * * FRI#L", "UTC", "0 9 * * FRI#L, UTC"},
		{"1,5,9 8-10,12 * * *", "UTC", "1,5,9 8-10,12 * * *, UTC"},
		{"not valid", "UTC", "not valid, UTC"},
	} {
		if got := (Spec{Kind: KindCron, Expr: c.expr, TZ: c.tz}).Words(""); got != c.want {
			t.Errorf("%s: got %q, want %q", c.expr, got, c.want)
		}
	}
	for ms, want := range map[int64]string{
		5_400_000: "every 1h30m", 90_000: "every 1m30s", 3_600_000: "every 1h", 172_800_000: "every 2d", 180_000_000: "every 50h", 1_500: "every 1.5s",
	} {
		if got := (Spec{Kind: KindEvery, EveryMs: ms}).Words(""); got != want {
			t.Errorf("%d ms: got %q, want %q", ms, got, want)
		}
	}
	once := Spec{Kind: KindAt, At: at(t, "2026-11-30T08:00:00Z")}
	if got := once.Words("Europe/Berlin"); got != "at Mon 30 Nov 2026 09:00 CET" {
		t.Errorf("a moment is %q", got)
	}
}
