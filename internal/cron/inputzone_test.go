package cron_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// A zone that does not exist was accepted where the kind of the schedule does not use it.
func TestAnUnknownZoneIsRefusedForEveryKind(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"every": `{"kind":"every","everyMs":60000,"tz":"Mars/Base"}`,
		"at":    `{"kind":"at","atMs":1900000000000,"tz":"Mars/Base"}`,
		"cron":  `{"kind":"cron","expr":"0 9 * * *","tz":"Mars/Base"}`,
	} {
		_, err := cron.Border{Now: time.UnixMilli(1_800_000_000_000)}.Planned(cron.Job{}, cron.Members{"schedule": json.RawMessage(text)})
		if bad, ok := errors.AsType[*schedule.InvalidError](err); !ok || bad.Field != "schedule.tz" {
			t.Errorf("%s: got %v, want a refusal of schedule.tz", name, err)
		}
	}
}
