package cron

import (
	"errors"
	"testing"

	"laneway/internal/cron/schedule"
)

func FuzzRunID(f *testing.F) {
	f.Add("manual:a:1")
	f.Add("schedule:019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4:1803974400000")
	f.Fuzz(func(t *testing.T, id string) {
		trigger, job, slot, err := ParseRunID(id)
		if err != nil {
			if !errors.Is(err, schedule.ErrInvalid) {
				t.Fatalf("%q is refused with %v", id, err)
			}
			return
		}
		if again := RunID(trigger, job, slot); again != id {
			t.Fatalf("%q becomes %q", id, again)
		}
	})
}
