package cron

// Action is the kind of an [Event]. The set is closed.
type Action string

// The actions.
const (
	ActionAdded     Action = "added"
	ActionUpdated   Action = "updated"   // also paused, resumed, disabled
	ActionRemoved   Action = "removed"   // Job is its last state
	ActionStarted   Action = "started"   // the first attempt has begun
	ActionScheduled Action = "scheduled" // an attempt failed and will be retried at Run.NextAttempt
	ActionFinished  Action = "finished"  // a slot has its outcome, even without a run
)

// Event is one change of a job or a run, published after its commit. Run is nil when the event is about the job.
type Event struct {
	Action Action
	Job    Job
	Run    *Run
}
