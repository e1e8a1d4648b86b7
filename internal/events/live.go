package events

import (
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
)

// Run is one turn that runs in this process. Its text grows on the goroutine of the turn; other goroutines read it.
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
	// Replace: an earlier attempt may have published text, which the first delta of this one replaces.
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

// begin makes the turn the one whose events the log of its run publishes, and publishes that it has begun.
func (r *Run) begin() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.current = r
	e := r.Event(chat.EventStarted)
	e.Seq = FirstOfTurn
	r.log.next(&e)
}

// Grow adds text and publishes it. It returns the whole text; ok is false when nothing was published, because the outcome of the run is already decided, or
// another attempt of it has begun.
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

// Close decides the end of the run and returns its text. It succeeds once; later calls return false.
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
