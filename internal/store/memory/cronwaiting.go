package memory

import (
	"time"

	"laneway/internal/cron"
)

// waiting lists the runs of a job that wait to start, all of them or those that the schedule has made, and returns how many are planned
// fires.
func (s *Store) waiting(jobID string, all bool) (list []*ledgerRow, fires int) {
	for _, r := range s.crons.active(jobID) {
		if !r.WaitsToStart() || (!all && !r.Trigger.Planned()) {
			continue
		}
		list = append(list, r)
		if r.Trigger.Planned() {
			fires++
		}
	}
	return list, fires
}

// endWaiting cancels what waiting lists.
func (s *Store) endWaiting(jobID string, all bool, p cron.CancelParams, now time.Time) []cron.CancelledRun {
	list, _ := s.waiting(jobID, all)
	return s.cancelRuns(list, p, now)
}
