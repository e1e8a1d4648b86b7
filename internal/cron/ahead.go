package cron

import (
	"slices"
	"time"
)

// A slot is claimed a little before its moment, so that it starts on its millisecond. Until then nothing has happened: every operation that
// reads or changes the job goes by [Job.Unclaimed], and one that changes it withdraws the claim, which leaves no trace.
//
// Only a claim that can be withdrawn by its row alone is made ahead, see [Planner.Decide]: the job has no other active run, its last slot
// was not skipped, the run has a session of its own, and nothing else is recorded with it.

// Ahead reports whether a run was claimed before its moment and the moment has not come.
func (r Run) Ahead(now time.Time) bool {
	return r.unstarted() && r.Trigger == TriggerSchedule && r.FireAt.After(now)
}

// WaitsToStart reports whether the moment of a run has come and its first attempt has not begun: it waits for its lane or its session.
func (r Run) WaitsToStart(now time.Time) bool { return r.unstarted() && !r.Ahead(now) }

func (r Run) unstarted() bool { return r.State == RunQueued && r.Attempt == 0 }

// Unclaimed is the job without the claim of a slot ahead: as it was before, which the row of that slot determines.
func (j Job) Unclaimed(slot, fireAt time.Time) Job {
	j.State.Next, j.State.NextRunAt = slot, fireAt
	j.State.Fired = max(0, j.State.Fired-1)
	j.State.Queued = max(0, j.State.Queued-1)
	j.Enabled = true // a job that does not fire is not claimed; its last claim has disabled it
	return j
}

// Unfired is the job when planned fires that waited to start have been cancelled: they do not count against MaxRuns, and a job that the
// claim of its last fire has disabled is enabled again.
func (j Job) Unfired(fires int) Job {
	j.State.Fired = max(0, j.State.Fired-fires)
	j.Enabled = j.Enabled || (fires > 0 && !j.AutoDisabled)
	return j
}

// SeenAs is the due job as an operation sees it that would withdraw the claim ahead of its next slot: j is the job without that claim.
func (d DueJob) SeenAs(j Job) DueJob {
	claim := RunID(TriggerSchedule, j.ID, j.State.Next)
	d.Active = slices.DeleteFunc(d.Active, func(id string) bool { return id == claim })
	d.Job = j
	d.Job.State.Queued = len(d.Active)
	if len(d.Active) == 0 {
		d.Session = ""
	}
	return d
}
