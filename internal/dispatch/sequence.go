package dispatch

import (
	"context"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// takeover applies decisions of ownership to the queue; it implements [ownership.Handler].
type takeover struct {
	q       *queue
	running *runningTurns
}

// Resume wakes sessions that this process owns.
func (t takeover) Resume(ctx context.Context, sessions []store.Taken) {
	for _, s := range sessions {
		t.q.resume(ctx, s)
	}
}

// Known returns up to which number this process has the messages of a session.
func (t takeover) Known(key chat.SessionKey) int64 { return t.q.sched.Known(key.String()) }

// Stop cancels a turn of this process. A turn that was already cancelled keeps its cause.
func (t takeover) Stop(r store.StopRequest) { t.q.sched.StopRun(r.Session.String(), r.RunID, r.By) }

// LeaseLost cancels every turn and clears the queues in memory; the messages are in the store.
func (t takeover) LeaseLost() {
	t.q.sched.Cancel(scheduler.ErrLeaseLost)
	t.q.sched.ResetAll()
}

// Running returns the ids of the running turns.
func (t takeover) Running() map[string]bool { return t.running.ids() }

// resume wakes a session with its unfinished messages.
func (q *queue) resume(ctx context.Context, t store.Taken) {
	for i := range t.Messages {
		q.wake(ctx, t.Messages[i], q.front(&t.Messages[i], t.Mode))
	}
}
