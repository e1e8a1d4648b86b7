package scheduler

// QueueMode is what happens to a message that arrives while a turn of its session runs. The values are those of package chat, which the scheduler does not
// import; the caller converts.
type QueueMode string

// The modes. The empty mode is ModeQueue.
const (
	// ModeQueue: it waits, first in first out.
	ModeQueue QueueMode = "queue"
	// ModeFollowup: the same as ModeQueue, under another name.
	ModeFollowup QueueMode = "followup"
	// ModeInterrupt: running turns are cancelled, waiting messages end superseded, and the new message starts when
	// the cancelled turns have really returned.
	ModeInterrupt QueueMode = "interrupt"
	// ModeCollect: all waiting messages become one turn when the running one ends.
	ModeCollect QueueMode = "collect"
	// ModeSteer: it is passed to a running turn that takes input; otherwise it waits as in ModeQueue.
	ModeSteer QueueMode = "steer"
)

// QueueModes lists every mode.
func QueueModes() []QueueMode {
	return []QueueMode{ModeQueue, ModeFollowup, ModeInterrupt, ModeCollect, ModeSteer}
}
