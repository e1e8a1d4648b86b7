package schedule

import (
	"testing"
	"time"
)

func TestParsePastReadsWhatAPersonAsksAbout(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 14, 0, 0, 0, time.UTC) // a Wednesday, 15:00 in Berlin
	for text, want := range map[string]string{
		"9:00":                 "2026-11-25T08:00:00Z",
		"15:00":                "2026-11-25T14:00:00Z",
		"15:01":                "2026-11-24T14:01:00Z",
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
	} {
		got, err := ParsePast(text, now, "Europe/Berlin")
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("ParsePast(%q) = %s, %v, want %s", text, got.UTC().Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"", "soon", "every day 9:00", "9:00 and more", "yesterday", "25:00"} {
		if got, err := ParsePast(text, now, "Europe/Berlin"); err == nil {
			t.Errorf("ParsePast(%q) = %s, want an error", text, got)
		}
	}
	_, err := ParsePast("today 9:00", now, "Mars/Base")
	refused(t, "zone", err, "schedule.tz", InvalidZone, "not a known time zone: Mars/Base")
}
