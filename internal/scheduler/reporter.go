package scheduler

import (
	"log/slog"
	"time"
)

// reporter publishes decisions: it completes tickets, calls the Observer and logs. Its methods are called without the mutex, by many goroutines concurrently.
// The fields of a turn or an entry that they read do not change after the decision.
type reporter[M any] struct {
	obs Observer
	log *slog.Logger
}

// started reports a turn that got its slot. The messages before the leading one end merged into it.
func (r *reporter[M]) started(t *Turn[M]) {
	r.obs.TurnStarted(t.lane.Name, t.Waited())
	if t.first == t.lead {
		return
	}
	err := &MergedError{RunID: t.runID}
	for e := t.first; e != t.lead; e = e.next {
		e.ticket.complete(OutcomeMerged, err)
		r.obs.MessageEnded(t.lane.Name, OutcomeMerged)
	}
}

// taken completes the tickets of a unit that the turn took as input, and adds its messages to items. It must not read past the last message of the unit, where
// another call may append more.
func (r *reporter[M]) taken(t *Turn[M], u *entry[M], merged error, items []Item[M]) []Item[M] {
	for e := u; ; e = e.next {
		e.ticket.complete(OutcomeMerged, merged)
		r.obs.MessageEnded(t.lane.Name, OutcomeMerged)
		items = append(items, *e.item())
		if e == u.last {
			return items
		}
	}
}

// turnEnded reports the decided outcome of a turn and of its leading message.
func (r *reporter[M]) turnEnded(t *Turn[M], now time.Duration) {
	t.lead.ticket.complete(t.outcome, t.err)
	r.obs.TurnEnded(t.lane.Name, t.outcome, now-t.started)
}

// turnStuck reports a cancelled turn that has not returned within its grace.
func (r *reporter[M]) turnStuck(t *Turn[M], grace time.Duration) {
	r.log.Warn("turn ignores its cancelled context", slog.String("session", t.Session()), slog.String("run_id", t.runID),
		slog.String("lane", t.lane.Name), slog.Duration("grace", grace))
	r.obs.TurnStuck(t.lane.Name)
}

// unknownLane counts a message for a lane that does not exist. Each name is logged once; name is empty on later calls.
func (r *reporter[M]) unknownLane(name string) {
	r.obs.LaneUnknown()
	if name != "" {
		r.log.Warn("unknown lane, using main", slog.String("lane", name))
	}
}

// ended completes the tickets of messages that ended without a turn and lists them, oldest first.
func (r *reporter[M]) ended(gone []goneUnits[M]) []Ended[M] {
	n := 0
	for _, g := range gone {
		for _, u := range g.units {
			n += u.count
		}
	}
	if n == 0 {
		return nil
	}
	ended := make([]Ended[M], 0, n)
	for _, g := range gone {
		for _, u := range g.units {
			for e := u; e != nil; e = e.next {
				e.ticket.complete(g.outcome, g.err)
				r.obs.MessageEnded(e.lane.Name, g.outcome)
				ended = append(ended, Ended[M]{Item: *e.item(), Outcome: g.outcome, Err: g.err})
			}
		}
	}
	return ended
}
