package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lane is a named limit on concurrent turns, as configured by a caller. An option of a lane is a
// field here.
type Lane struct {
	// Name must not be empty. It becomes a label of metrics, so it must not come from users.
	Name string
	// Limit is the number of slots, from 1 to 1 000 000.
	Limit int
}

// The lanes of the default configuration.
const (
	// LaneMain runs chat turns. It must exist: an unknown lane name falls back to it.
	LaneMain = "main"
	// LaneSubagent runs turns that a running agent spawned.
	LaneSubagent = "subagent"
	// LaneTeam runs delegations between agents.
	LaneTeam = "team"
	// LaneCron runs scheduled turns.
	LaneCron = "cron"
)

// DefaultLanes are the lanes of a Config that names none. The caller owns the slice.
func DefaultLanes() []Lane {
	return []Lane{{Name: LaneMain, Limit: 30}, {Name: LaneSubagent, Limit: 50}, {Name: LaneTeam, Limit: 100}, {Name: LaneCron, Limit: 30}}
}

// maxLimit bounds a lane's limit. A larger number of goroutines is certainly a mistyped setting.
const maxLimit = 1_000_000

// check reports why the lane is unusable.
func (l Lane) check() error {
	if strings.TrimSpace(l.Name) == "" {
		return errors.New("a lane needs a name")
	}
	if l.Limit < 1 || l.Limit > maxLimit {
		return fmt.Errorf("%s: the limit %d is not between 1 and %d", l.Name, l.Limit, maxLimit)
	}
	return nil
}

// laneFaults lists the faults of the configured lanes; an empty list is valid.
func laneFaults(lanes []Lane) []error {
	if len(lanes) == 0 {
		return nil
	}
	var faults []error
	if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.Name == LaneMain }) {
		faults = append(faults, errors.New("lanes: \"main\" must exist, because unknown names fall back to it"))
	}
	seen := map[string]bool{}
	for _, l := range lanes {
		if err := l.check(); err != nil {
			faults = append(faults, fmt.Errorf("lanes: %w", err))
		}
		if seen[l.Name] {
			faults = append(faults, fmt.Errorf("lanes: %s: is there twice", l.Name))
		}
		seen[l.Name] = true
	}
	return faults
}

// lane is the state of a Lane. Name is fixed and read without the scheduler's mutex; every other
// field is guarded by it.
type lane struct {
	Lane
	active int // slots in use; above Limit for a while after the lane was shrunk

	// Sessions with a turn that may start, in the order in which they became ready. A session is
	// here once, however many messages wait in it, and at the same time in the subqueue of its
	// principal.
	ready line
	// ring are the principals with ready sessions. Its head starts the next turn, unless it started
	// the last turn of the lane: then it first moves to the end, after those that were added
	// meanwhile.
	ring ring
	last string // name of the principal whose turn was started last
	// Turns that released their slot with Yield and wait for one. They precede ready sessions: a
	// turn that has begun holds resources that its end frees.
	returning []*Turn

	stopping  int // active turns whose context was cancelled
	yielded   int // turns of the lane without a slot
	lastStart time.Duration

	started, answered, failed, cancelled int
}

// The two links of a session. It is in the ready list of a lane and in a subqueue of that lane's
// ring, or among the sessions that wait for a place of their principal.
const (
	inLine = iota
	inSubqueue
	linkCount
)

// link connects a session to its neighbours in a line.
type link struct{ prev, next *session }

// line is a first-in-first-out list of sessions over one of their links.
type line struct {
	head, tail *session
	count      int
	link       int // inLine or inSubqueue
}

// push appends the session to the line.
func (l *line) push(x *session) {
	x.links[l.link] = link{prev: l.tail}
	if l.tail == nil {
		l.head = x
	} else {
		l.tail.links[l.link].next = x
	}
	l.tail = x
	l.count++
}

// remove removes the session from its line.
func (l *line) remove(x *session) {
	at := &x.links[l.link]
	if at.prev == nil {
		l.head = at.next
	} else {
		at.prev.links[l.link].next = at.next
	}
	if at.next == nil {
		l.tail = at.prev
	} else {
		at.next.links[l.link].prev = at.prev
	}
	*at = link{}
	l.count--
}

// ring is a list of subqueues.
type ring struct{ head, tail *subqueue }

// push appends the subqueue.
func (r *ring) push(t *subqueue) {
	t.prev, t.next = r.tail, nil
	if r.tail == nil {
		r.head = t
	} else {
		r.tail.next = t
	}
	r.tail = t
}

// remove removes the subqueue.
func (r *ring) remove(t *subqueue) {
	if t.prev == nil {
		r.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		r.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}

// push makes the session ready, as the last one of its principal. A principal without ready
// sessions is appended to the ring.
func (l *lane) push(x *session, who *principal, now time.Duration) {
	t := who.subqueue(l)
	if t.ready.count == 0 {
		l.ring.push(t)
	}
	t.ready.push(x)
	l.ready.push(x)
	who.standing++
	x.lane, x.subqueue, x.readyAt = l, t, now
}

// leave removes the session from the ready list and returns its principal.
func (l *lane) leave(x *session) *principal {
	t := x.subqueue
	l.ready.remove(x)
	t.ready.remove(x)
	t.who.standing--
	if t.ready.count == 0 {
		l.ring.remove(t)
	}
	x.lane, x.subqueue = nil, nil
	return t.who
}

// next selects the session whose turn starts now, nil when none is ready. Principals take turns,
// and so do the sessions of each.
func (l *lane) next() *session {
	t := l.ring.head
	if t == nil {
		return nil
	}
	if t.who.name == l.last && t != l.ring.tail {
		l.ring.remove(t)
		l.ring.push(t)
		t = l.ring.head
	}
	l.last = t.who.name
	return t.ready.head
}

// hasSlot reports whether a slot is free.
func (l *lane) hasSlot() bool { return l.active < l.Limit }

// acquire gives the turn a slot.
func (l *lane) acquire(t *Turn) {
	l.active++
	t.slot = true
	if t.cause != nil {
		l.stopping++
	}
}

// release returns the slot of the turn, if it has one.
func (l *lane) release(t *Turn) {
	if !t.slot {
		return
	}
	l.active--
	t.slot = false
	if t.cause != nil {
		l.stopping--
	}
}

// stats is the state of the lane.
func (l *lane) stats(now time.Duration) LaneStats {
	stats := LaneStats{
		Name: l.Name, Capacity: l.Limit, Active: l.active, Stopping: l.stopping, Yielded: l.yielded,
		Ready:   l.ready.count + len(l.returning),
		Started: total(l.started), Finished: total(l.answered + l.failed + l.cancelled),
		Answered: total(l.answered), Failed: total(l.failed), Cancelled: total(l.cancelled),
	}
	if l.ready.head != nil {
		stats.OldestWait = now - l.ready.head.readyAt
	}
	return stats
}

// maxUnknown bounds how many unknown lane names are remembered.
const maxUnknown = 64

// lanes are the lanes by name. A lane is never removed.
type lanes struct {
	byName   map[string]*lane
	unknown  map[string]struct{} // unknown names that have been logged
	fellBack int                 // messages that named an unknown lane
}

func newLanes(configured []Lane) lanes {
	ls := lanes{byName: make(map[string]*lane, len(configured)), unknown: map[string]struct{}{}}
	for _, l := range configured {
		ls.byName[l.Name] = &lane{Lane: l}
	}
	return ls
}

// find returns the lane of a message. An unknown name falls back to main; it is counted, and logged
// the first time.
func (ls *lanes) find(name string, fx *effects) *lane {
	if name == "" {
		return ls.byName[LaneMain]
	}
	if l, ok := ls.byName[name]; ok {
		return l
	}
	ls.fellBack++
	fx.unknown = true
	if _, logged := ls.unknown[name]; !logged && len(ls.unknown) < maxUnknown {
		ls.unknown[name] = struct{}{}
		fx.firstName = name
	}
	return ls.byName[LaneMain]
}

// stalled is how long some lane has had a free slot and a ready session without a start.
func (ls *lanes) stalled(now time.Duration) time.Duration {
	var stalled time.Duration
	for _, l := range ls.byName {
		if l.ready.head != nil && l.hasSlot() {
			stalled = max(stalled, now-max(l.lastStart, l.ready.head.readyAt))
		}
	}
	return stalled
}

// SetLane adds the lane, or changes the limit of the lane with its name. Growing takes effect
// immediately; shrinking as turns end. The error matches ErrInvalid.
func (s *Scheduler) SetLane(to Lane) error {
	if err := to.check(); err != nil {
		return fmt.Errorf("set lane: %w: %w", ErrInvalid, err)
	}
	fx := s.begin()
	s.mu.Lock()
	l := s.core.lanes.byName[to.Name]
	if l == nil {
		l = &lane{Lane: to}
		s.core.lanes.byName[to.Name] = l
	}
	l.Limit = to.Limit // its name is read without the mutex
	s.core.pump(l, &fx)
	s.mu.Unlock()
	s.perform(&fx)
	return nil
}
