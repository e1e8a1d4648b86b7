package dispatch

import (
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// takeover applies decisions of ownership to the queue; it implements [ownership.Handler].
type takeover struct {
	q       *queue
	running *runningTurns
}

// Wake wakes sessions that this process owns.
func (t takeover) Wake(fronts []store.Front) {
	for i := range fronts {
		t.q.wakeFront(&fronts[i])
	}
}

// Tracks reports whether this process knows that a session has work.
func (t takeover) Tracks(session string) bool { return t.q.sched.Tracks(session) }

// Stop cancels a turn of this process. A turn that was already cancelled keeps its cause.
func (t takeover) Stop(r store.StopRequest) { t.q.sched.StopRun(r.Session.String(), r.RunID, r.By) }

// LeaseLost cancels every turn and clears the queues in memory; the messages are in the store.
func (t takeover) LeaseLost() {
	t.q.sched.Cancel(scheduler.ErrLeaseLost)
	t.q.sched.ResetAll()
}

// Running returns the ids of the running turns.
func (t takeover) Running() map[string]bool { return t.running.ids() }
