package scheduler

import (
	"fmt"
	"time"
)

// maxUnknown bounds how many unknown lane names are remembered.
const maxUnknown = 64

// lanes are the lanes by name. A lane is never removed.
type lanes[M any] struct {
	byName   map[string]*lane[M]
	unknown  map[string]struct{} // unknown names that have been logged
	fellBack int                 // messages that named an unknown lane
}

func newLanes[M any](configured []Lane) lanes[M] {
	ls := lanes[M]{byName: make(map[string]*lane[M], len(configured)), unknown: map[string]struct{}{}}
	for _, l := range configured {
		ls.byName[l.Name] = &lane[M]{Lane: l}
	}
	return ls
}

// find returns the lane of a message. An unknown name falls back to main; it is counted, and logged the first time.
func (ls *lanes[M]) find(name string, fx *effects[M]) *lane[M] {
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

// getOrCreate returns the lane with this name, created if needed.
func (ls *lanes[M]) getOrCreate(wanted Lane) *lane[M] {
	l, ok := ls.byName[wanted.Name]
	if !ok {
		l = &lane[M]{Lane: wanted}
		ls.byName[wanted.Name] = l
	}
	return l
}

// stalled is how long some lane has had a free slot and a ready session without a start.
func (ls *lanes[M]) stalled(now time.Duration) time.Duration {
	var stalled time.Duration
	for _, l := range ls.byName {
		if l.ready.head != nil && l.hasSlot() {
			stalled = max(stalled, now-max(l.lastStart, l.ready.head.readyAt))
		}
	}
	return stalled
}

// Resize sets the limit of the lane with this name. Growing takes effect immediately; shrinking as turns end. The error matches ErrUnknownLane, or ErrInvalid
// when the limit is out of its bounds.
func (s *Scheduler[M]) Resize(to Lane) error {
	if err := to.check(); err != nil {
		return fmt.Errorf("resize lane: %w: %w", ErrInvalid, err)
	}
	fx := s.begin()
	s.mu.Lock()
	l, ok := s.core.lanes.byName[to.Name]
	if ok {
		l.set(to)
		s.core.pump(l, &fx)
	}
	s.mu.Unlock()
	s.perform(&fx)
	if !ok {
		return fmt.Errorf("resize lane %.40q: %w", to.Name, ErrUnknownLane)
	}
	return nil
}

// GetOrCreate adds the lane, unless one with its name exists, and returns the existing lane. The error matches ErrInvalid.
func (s *Scheduler[M]) GetOrCreate(wanted Lane) (Lane, error) {
	if err := wanted.check(); err != nil {
		return Lane{}, fmt.Errorf("make lane: %w: %w", ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.lanes.getOrCreate(wanted).Lane, nil
}
