package memory

import (
	"context"
	"time"

	"laneway/internal/cron"
)

// withdraw withdraws the claims ahead of a job, with their messages and sessions. A session that has or had other messages stays. The
// tombstone of a deleted session keeps its numbers and its epoch.
func (s *Store) withdraw(jobID string, now time.Time) (taken []*ledgerRow) {
	for _, r := range s.crons.active(jobID) {
		if !r.Ahead(now) {
			continue
		}
		taken = append(taken, r)
		m := s.messages[r.message]
		se := s.sessions[m.Session]
		se.end(m, "", "", now)
		s.settle(se, now)
		s.forget(r)
		used := false
		for _, other := range s.messages {
			used = used || other.Session == se.Key
		}
		if !used && se.transcriptSeq == 0 {
			s.tombstones[se.Key] = tombstone{lastSeq: se.LastSeq, epoch: se.Epoch}
			delete(s.sessions, se.Key)
		}
	}
	return taken
}

// waiting lists the runs of a job that wait to start, all of them or those that the schedule has made, and returns how many are planned
// fires.
func (s *Store) waiting(jobID string, all bool, now time.Time) (list []*ledgerRow, fires int) {
	for _, r := range s.crons.active(jobID) {
		if !r.WaitsToStart(now) || (!all && !r.Trigger.Planned()) {
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
	list, _ := s.waiting(jobID, all, now)
	return s.cancelRuns(list, p, now)
}

// ReleaseClaims withdraws what a node has claimed ahead, see cron.JobStore.
func (s *Store) ReleaseClaims(ctx context.Context, node string) (int, error) {
	n := 0
	err := s.do(ctx, "ReleaseClaims", func(now time.Time) error {
		for _, r := range s.crons.rows(func(r *ledgerRow) bool { return r.Ahead(now) && r.Node == node }) {
			j := s.crons.jobs[r.JobID]
			for _, taken := range s.withdraw(r.JobID, now) {
				n++
				if j != nil {
					*j = j.Unclaimed(taken.ScheduledFor, taken.FireAt)
				}
			}
		}
		return nil
	})
	return n, err
}
