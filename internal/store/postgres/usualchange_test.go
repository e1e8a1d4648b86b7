package postgres

import (
	"testing"

	"laneway/internal/cron"
)

// TestAnUnreadableJobHasNoUsualChange: the end of a run does not change the counters of such a job alone.
func TestAnUnreadableJobHasNoUsualChange(t *testing.T) {
	t.Parallel()
	job := cron.Job{ID: "j"}
	if !usualChange(&storedJob{Job: job}, &job) {
		t.Error("the same job is no usual change")
	}
	if usualChange(&storedJob{Job: job, broken: "why"}, &job) {
		t.Error("a job that cannot be read has a usual change")
	}
}
