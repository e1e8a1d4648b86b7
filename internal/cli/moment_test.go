package cli

import (
	"testing"
	"time"
)

func TestMomentsInWords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"in 20m": "2026-11-20T14:20:00Z", "15:00": "2026-11-20T15:00:00Z", "tomorrow 9:00": "2026-11-21T09:00:00Z",
		"2027-03-02T08:00": "2027-03-02T08:00", "every 5m": "every 5m", "never": "never",
	} {
		if got := momentOf(text, "", now); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := momentOf("15:30", "Europe/Berlin", now); got != "2026-11-20T14:30:00Z" {
		t.Errorf("15:30 in Berlin became %s", got)
	}
}
