package dispatch

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

const (
	// overFor is how long a run that has ended is remembered: a late event of it, such as that it waits, is not published after its end.
	overFor = 10 * time.Second
	// quietFor is how long a run without an event is remembered. Its numbers begin again afterwards; no turn lasts longer.
	quietFor = maxTimeout
	// tidyRuns is how many runs are remembered before those that may be forgotten are looked for.
	tidyRuns = 1024
)

// reasonDeleted is the reason of the event that a session was deleted.
const reasonDeleted = "delete"

// runLogs has the event sequence of every run that this process publishes events of. Every event of a run goes through its log.
type runLogs struct {
	mu     sync.Mutex
	byName map[runName]*runLog
	tidyAt int
}

// runName is a run as watchers know it. The answer of a job is delivered under the id of its run into another session.
type runName struct {
	session chat.SessionKey
	id      string
}

// runLog owns the event sequence of one run: it gives the numbers, publishes one event at a time in their order, and nothing after the end. It outlives the
// attempts of the run, so that the numbers go on when it runs again in this process.
type runLog struct {
	touched atomic.Int64 // Unix nanoseconds of the last use
	over    atomic.Bool  // written under mu

	mu      sync.Mutex // held while subscribers are called, which do not block
	seq     int64      // of the last event
	current *liveRun   // the turn whose text it is; an older attempt on its way out publishes nothing
}

// of is the log of a run; it is made at the first use.
func (r *runLogs) of(session chat.SessionKey, id string) *runLog {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := runName{session, id}
	l := r.byName[name]
	if l == nil {
		r.tidy(now)
		l = &runLog{}
		r.byName[name] = l
	}
	l.touched.Store(now.UnixNano())
	return l
}

// known reports whether a run has published events here.
func (r *runLogs) known(session chat.SessionKey, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[runName{session, id}] != nil
}

// forget forgets the runs of a session that was deleted: their ids may be used again.
func (r *runLogs) forget(session chat.SessionKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byName, func(name runName, l *runLog) bool { return name.session == session && l.over.Load() })
}

// tidy forgets what may be forgotten when there are twice as many runs as it left the last time.
func (r *runLogs) tidy(now time.Time) {
	if r.byName == nil {
		r.byName, r.tidyAt = map[runName]*runLog{}, tidyRuns
	}
	if len(r.byName) < r.tidyAt {
		return
	}
	for name, l := range r.byName {
		idle := now.Sub(time.Unix(0, l.touched.Load()))
		if idle >= quietFor || (l.over.Load() && idle >= overFor) {
			delete(r.byName, name)
		}
	}
	r.tidyAt = max(tidyRuns, 2*len(r.byName))
}

// publish gives the event the next number, at least the one that it brings, and passes it on. False: the run is over, and nothing was published.
func (l *runLog) publish(h *hub, e *chat.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next(h, e)
}

// next is publish under the mutex.
func (l *runLog) next(h *hub, e *chat.Event) bool {
	if l.over.Load() {
		return false
	}
	l.touched.Store(time.Now().UnixNano())
	l.seq = max(l.seq+1, e.Seq)
	e.Seq = l.seq
	switch e.Kind { //nolint:exhaustive // the others end nothing
	case chat.EventFinal, chat.EventAborted, chat.EventFailed:
		l.over.Store(true)
	}
	h.publish(*e)
	return true
}

// publish passes an event on to the watchers of this process; false when it is of a run that is over.
func (d *Dispatcher) publish(e *chat.Event) bool {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	if e.Kind == chat.EventSession {
		if e.Reason == reasonDeleted {
			d.runs.forget(e.Session)
		}
		d.hub.publish(*e)
		return true
	}
	return d.runs.of(e.Session, e.RunID).publish(&d.hub, e)
}
