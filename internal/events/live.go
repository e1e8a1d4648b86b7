package events

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
)

// Run is one turn that runs in this process. Its text grows on the goroutine of the turn; other
// goroutines read it.
type Run struct {
	RunInfo

	log      *RunLog // its mutex guards the fields below, so that text and number belong together
	text     strings.Builder
	replace  bool // the next delta replaces the text of an earlier attempt
	finished bool // the outcome is decided; later text is discarded
}

// RunInfo is the data of a run at its start.
type RunInfo struct {
	Session   chat.SessionKey
	RunID     string
	Lane      string
	Principal string // the owner of the session
	Sender    string // of the leading message
	// Unattended: the run is of a job, so no person waits for its answer, see [chat.Event].
	Unattended bool
	// Replace: an earlier attempt may have published text, which the first delta of this one
	// replaces.
	Replace bool
}

// live are the turns that run in this process.
type live struct {
	mu        sync.Mutex
	bySession map[chat.SessionKey][]*Run // oldest first
}

func (l *live) add(r *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bySession == nil {
		l.bySession = map[chat.SessionKey][]*Run{}
	}
	l.bySession[r.Session] = append(l.bySession[r.Session], r)
}

func (l *live) remove(r *Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := slices.DeleteFunc(l.bySession[r.Session], func(o *Run) bool { return o == r })
	if len(left) == 0 {
		delete(l.bySession, r.Session)
		return
	}
	l.bySession[r.Session] = left
}

// of lists the runs of a session that a sender leads, oldest first.
func (l *live) of(key chat.SessionKey, sender string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, r := range l.bySession[key] {
		if r.Sender == sender {
			ids = append(ids, r.RunID)
		}
	}
	return ids
}

// oldest is the oldest run of a session for whose answer a person waits; nil = there is none.
func (l *live) oldest(key chat.SessionKey) *Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.bySession[key]
	i := slices.IndexFunc(runs, func(r *Run) bool { return !r.Unattended })
	if i < 0 {
		return nil
	}
	return runs[i]
}

// begin makes the turn the one whose events the log of its run publishes, and publishes that it has
// begun.
func (r *Run) begin() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.current = r
	e := r.Event(chat.EventStarted)
	e.Seq = FirstOfTurn
	r.log.next(&e)
}

// Grow adds text and publishes it. It returns the whole text; ok is false when nothing was
// published, because the outcome of the run is already decided, or another attempt of it has begun.
func (r *Run) Grow(text string) (whole string, ok bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.finished || r.log.current != r || text == "" {
		return "", false
	}
	r.text.WriteString(text)
	e := r.Event(chat.EventDelta)
	e.Delta, e.Text, e.Replace = text, r.text.String(), r.replace
	r.replace = false
	return e.Text, r.log.next(&e)
}

// Tool publishes a step of a tool call, as Grow does with text. It also returns the whole text.
func (r *Run) Tool(step *chat.ToolEvent) (whole string, ok bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.finished || r.log.current != r {
		return "", false
	}
	e := r.Event(chat.EventTool)
	e.Tool = step
	return r.text.String(), r.log.next(&e)
}

// Close decides the end of the run and returns its text. It succeeds once; later calls return
// false.
func (r *Run) Close() (text string, ok bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	ok = !r.finished
	r.finished = true
	return r.text.String(), ok
}

// Reopen reverts a decision that could not be written.
func (r *Run) Reopen() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.finished = false
}

// Event creates an event of the run; its log assigns the number.
func (r *Run) Event(kind chat.EventKind) chat.Event {
	return chat.Event{Kind: kind, Session: r.Session, Principal: r.Principal, RunID: r.RunID, Lane: r.Lane, Unattended: r.Unattended, At: time.Now()}
}

func (r *Run) inFlight() (chat.InFlight, bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return chat.InFlight{RunID: r.RunID, Text: r.text.String(), Seq: r.log.seq}, !r.finished
}

const (
	// endedFor is how long an ended run is remembered: a late event of it, such as that it waits,
	// is not published after its end.
	endedFor = 10 * time.Second
	// idleFor is how long a run without an event is remembered. Afterwards its numbers restart; no
	// turn lasts longer.
	idleFor = 24 * time.Hour
	// tidyRuns is how many runs are remembered before expired ones are removed.
	tidyRuns = 1024
	// FirstOfTurn is the lowest number of the event that a turn has begun; 1 is for the event that
	// it waits.
	FirstOfTurn = 2
)

// logs has the event sequence of every run about which this process publishes events.
type logs struct {
	hub    *Hub[chat.Event]
	mu     sync.Mutex
	byName map[runName]*RunLog
	tidyAt int
}

// runName is a run as subscribers identify it. The answer of a job is delivered under the id of its
// run into another session.
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

// Publish assigns the next number to the event, at least the one that it has, and publishes it in
// this process. It returns false when the run has ended; nothing was then published.
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
	switch e.Kind {
	case chat.EventFinal, chat.EventAborted, chat.EventFailed:
		l.ended.Store(true)
	default: // the others end nothing
	}
	l.hub.Publish(*e)
	return true
}
