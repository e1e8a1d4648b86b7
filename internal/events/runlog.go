package events

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

const (
	// endedFor is how long an ended run is remembered: a late event of it, such as that it waits, is not published after its end.
	endedFor = 10 * time.Second
	// idleFor is how long a run without an event is remembered. Afterwards its numbers restart; no turn lasts longer.
	idleFor = 24 * time.Hour
	// tidyRuns is how many runs are remembered before expired ones are removed.
	tidyRuns = 1024
	// FirstOfTurn is the lowest number of the event that a turn has begun; 1 is for the event that it waits.
	FirstOfTurn = 2
)

// logs has the event sequence of every run about which this process publishes events.
type logs struct {
	hub    *Hub[chat.Event]
	mu     sync.Mutex
	byName map[runName]*RunLog
	tidyAt int
}

// runName is a run as subscribers identify it. The answer of a job is delivered under the id of its run into another session.
type runName struct {
	session chat.SessionKey
	id      string
}

// RunLog owns the event sequence of one run.
type RunLog struct {
	hub     *Hub[chat.Event]
	touched atomic.Int64 // Unix nanoseconds of the last use
	ended   atomic.Bool  // written under mu

	mu      sync.Mutex // held while subscribers are called, which do not block
	seq     int64      // of the last event
	current *Run       // the turn that the text belongs to; an older attempt that is ending publishes nothing
}

// of is the log of a run; the first use creates it.
func (l *logs) of(session chat.SessionKey, id string) *RunLog {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	name := runName{session, id}
	log := l.byName[name]
	if log == nil {
		l.tidy(now)
		log = &RunLog{hub: l.hub}
		l.byName[name] = log
	}
	log.touched.Store(now.UnixNano())
	return log
}

// open are the ids of the runs that have not ended here.
func (l *logs) open() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for name, log := range l.byName {
		if !log.ended.Load() {
			ids = append(ids, name.id)
		}
	}
	return ids
}

// known reports whether a run has published events in this process.
func (l *logs) known(session chat.SessionKey, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byName[runName{session, id}] != nil
}

// forget removes the ended runs of a deleted session: their ids may be used again.
func (l *logs) forget(session chat.SessionKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.byName, func(name runName, log *RunLog) bool { return name.session == session && log.ended.Load() })
}

// tidy removes expired runs when there are twice as many as the last call left.
func (l *logs) tidy(now time.Time) {
	if l.byName == nil {
		l.byName, l.tidyAt = map[runName]*RunLog{}, tidyRuns
	}
	if len(l.byName) < l.tidyAt {
		return
	}
	for name, log := range l.byName {
		idle := now.Sub(time.Unix(0, log.touched.Load()))
		if idle >= idleFor || (log.ended.Load() && idle >= endedFor) {
			delete(l.byName, name)
		}
	}
	l.tidyAt = max(tidyRuns, 2*len(l.byName))
}

// Publish assigns the next number to the event, at least the one that it has, and publishes it in this process. It returns false when the run has ended;
// nothing was then published.
func (l *RunLog) Publish(e *chat.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next(e)
}

// next is Publish under the mutex.
func (l *RunLog) next(e *chat.Event) bool {
	if l.ended.Load() {
		return false
	}
	now := time.Now()
	l.touched.Store(now.UnixNano())
	l.seq = max(l.seq+1, e.Seq)
	e.Seq = l.seq
	if e.At.IsZero() {
		e.At = now
	}
	switch e.Kind { //nolint:exhaustive // the others end nothing
	case chat.EventFinal, chat.EventAborted, chat.EventFailed:
		l.ended.Store(true)
	}
	l.hub.Publish(*e)
	return true
}
