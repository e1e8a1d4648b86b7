package sqlite

import (
	"context"
	"slices"

	"laneway/internal/cron"
)

// endWaiting cancels the runs of a job that wait to start: all of them, or those that the schedule has made. It returns how many were
// planned fires.
func (t *tx) endWaiting(ctx context.Context, jobID string, all bool, c cancellation) (ended []cron.CancelledRun, fires int, err error) {
	rows, err := t.activeOf(ctx, jobID)
	if err != nil {
		return nil, 0, err
	}
	rows = slices.DeleteFunc(rows, func(r *ledgerRow) bool {
		return !r.WaitsToStart() || !all && !r.Trigger.Planned()
	})
	for _, r := range rows {
		if r.Trigger.Planned() {
			fires++
		}
	}
	ended, err = t.cancelAll(ctx, rows, c)
	return ended, fires, err
}
