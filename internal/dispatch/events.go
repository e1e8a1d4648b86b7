package dispatch

import (
	"slices"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// hub hands events to subscribers. Publishing copies the list under the lock and calls outside of it.
type hub struct {
	mu   sync.Mutex
	next int
	subs []subscriber
}

type subscriber struct {
	id     int
	fn     func(chat.Event)
	wanted func(chat.Event) bool
}

func (h *hub) subscribe(fn func(chat.Event), wanted func(chat.Event) bool) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.subs = append(slices.Clone(h.subs), subscriber{id: id, fn: fn, wanted: wanted})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.subs = slices.DeleteFunc(slices.Clone(h.subs), func(s subscriber) bool { return s.id == id })
	}
}

func (h *hub) all() []subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subs
}

// wanted reports whether an event of another process, whose text is still to be read, would be seen by anybody here.
func (h *hub) wanted(e chat.Event) bool {
	return slices.ContainsFunc(h.all(), func(s subscriber) bool { return s.wanted(e) })
}

func (h *hub) publish(e chat.Event) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	for _, s := range h.all() {
		s.fn(e)
	}
}

// liveRuns is the turns that run on this process, with their text so far.
type liveRuns struct {
	mu   sync.Mutex
	byID map[string]*liveRun
	bySn map[string][]*liveRun // by session, oldest first
}

// liveRun is one running turn. Its text grows on the turn's goroutine and is read by others.
type liveRun struct {
	turn      *scheduler.Turn[work] // after a lost lease two turns may have the same run id: the old one on its way out, and the one that runs it again
	session   chat.SessionKey
	runID     string
	lane      string
	principal string
	sender    string // of the leading message

	log       *runLog // its mutex guards text, replace and finished, so that text and number belong together
	text      strings.Builder
	replace   bool      // the next delta replaces what an earlier attempt said
	finished  bool      // the outcome is decided; what comes later is discarded
	startedAt time.Time // the store's clock
	began     time.Time // local
	attempt   int
}

func (l *liveRuns) add(r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID, l.bySn = map[string]*liveRun{}, map[string][]*liveRun{}
	}
	key := r.session.String()
	l.byID[r.runID] = r
	l.bySn[key] = append(l.bySn[key], r)
}

func (l *liveRuns) remove(r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.session.String()
	if l.byID[r.runID] == r {
		delete(l.byID, r.runID)
	}
	l.bySn[key] = slices.DeleteFunc(l.bySn[key], func(o *liveRun) bool { return o == r })
	if len(l.bySn[key]) == 0 {
		delete(l.bySn, key)
	}
}

func (l *liveRuns) get(runID string) *liveRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[runID]
}

// of lists the runs of a session that a person leads, oldest first.
func (l *liveRuns) of(key chat.SessionKey, sender string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, r := range l.bySn[key.String()] {
		if r.sender == sender {
			ids = append(ids, r.runID)
		}
	}
	return ids
}

func (l *liveRuns) oldest(key chat.SessionKey) *liveRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.bySn[key.String()]
	if len(runs) == 0 {
		return nil
	}
	return runs[0]
}

// begin makes the turn the one whose events the log of its run publishes, and publishes that it has begun.
func (r *liveRun) begin(h *hub) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.current = r
	e := r.event(chat.EventStarted)
	e.Seq = firstOfTurn
	r.log.next(h, &e)
}

// firstOfTurn is the least number of the event that a turn has begun; 1 is for the event that it waits.
const firstOfTurn = 2

// grow adds text and publishes it; false when the run's outcome is decided already, or another attempt of it has begun.
func (r *liveRun) grow(h *hub, text string) (chat.Event, bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.finished || r.log.current != r || text == "" {
		return chat.Event{}, false
	}
	r.text.WriteString(text)
	e := r.event(chat.EventDelta)
	e.Delta, e.Text, e.Replace = text, r.text.String(), r.replace
	r.replace = false
	return e, r.log.next(h, &e)
}

// tool publishes a step of a tool call, as grow does with text.
func (r *liveRun) tool(h *hub, step *chat.ToolEvent) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.finished || r.log.current != r {
		return
	}
	e := r.event(chat.EventTool)
	e.Tool = step
	r.log.next(h, &e)
}

// close decides the run's end once; the second caller gets false.
func (r *liveRun) close() (text string, ok bool) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	ok = !r.finished
	r.finished = true
	return r.text.String(), ok
}

// reopen takes a decision back that could not be written.
func (r *liveRun) reopen() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.finished = false
}

// event makes an event of the run; its log gives it a number.
func (r *liveRun) event(kind chat.EventKind) chat.Event {
	return chat.Event{Kind: kind, Session: r.session, Principal: r.principal, RunID: r.runID, Lane: r.lane, At: time.Now()}
}

// InFlight is the oldest running turn of a session on this process.
func (d *Dispatcher) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	r := d.live.oldest(key)
	if r == nil {
		return chat.InFlight{}, false
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return chat.InFlight{RunID: r.runID, Text: r.text.String(), Seq: r.log.seq}, !r.finished
}

// sessionEvent tells watchers that something about a session changed.
func (d *Dispatcher) sessionEvent(key chat.SessionKey, principal, reason, runID string) {
	d.tell(chat.Event{Kind: chat.EventSession, Session: key, Principal: principal, Reason: reason, RunID: runID})
}

// seqSet is messages that have a slot although the store does not know yet that they run. A number is in it at most once; the turn that
// starts it takes it out.
type seqSet struct {
	mu   sync.Mutex
	bySn map[chat.SessionKey][]int64
}

func (s *seqSet) add(key chat.SessionKey, seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySn == nil {
		s.bySn = map[chat.SessionKey][]int64{}
	}
	have := s.bySn[key]
	for _, q := range seqs {
		if !slices.Contains(have, q) {
			have = append(have, q)
		}
	}
	s.bySn[key] = have
}

func (s *seqSet) remove(key chat.SessionKey, seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.bySn[key], func(q int64) bool { return slices.Contains(seqs, q) })
	if len(left) == 0 {
		delete(s.bySn, key)
		return
	}
	s.bySn[key] = left
}

func (s *seqSet) of(key chat.SessionKey) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bySn[key])
}
