package store_test

import (
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
)

func TestSessionsNameTheRunsThatTheyAreMadeFor(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]string{
		"cron:j1:schedule-1700000000000":       "schedule:j1:1700000000000",
		"cron:j-1:manual-5":                    "manual:j-1:5",
		"cron:j1:catchup-1700000000000":        "",
		"cron:j1:backfill:2-1700000000000":     "",
		"cron:j1:buffered":                     "",
		"cron:j1:schedule-":                    "",
		"cron:j1:schedule-05":                  "",
		"cron:j1:schedule--5":                  "",
		"cron:j1:schedule-5x":                  "",
		"cron:j1:schedule-1234567890123456789": "",
		"cron::schedule-5":                     "",
		"cron:j1":                              "",
		"main":                                 "",
		"telegram:group:schedule-5":            "",
	} {
		if got := store.CompactRunOf(chat.SessionKey{Agent: "main", Rest: rest}); got != want {
			t.Errorf("%s is of %q, want %q", rest, got, want)
		}
	}
	for name, want := range map[string]string{
		"schedule:j1:5": "schedule:j1:5", "cron:schedule:j1:5": "schedule:j1:5", "cron:manual:j1:5": "manual:j1:5",
		"schedule:j1:5/2": "", "backfill:j1:5": "", "m-1": "", "": "",
	} {
		if got := store.CompactRunOfMessage(name); got != want {
			t.Errorf("%q is of %q, want %q", name, got, want)
		}
	}
}
