package dispatch

import (
	"slices"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// stepBetween is the step of an agent that has the results of all its calls and has not written since.
const stepBetween = "working"

// steps are the tool calls of one turn, as shown to the person who waits for its answer. The zero value is a turn without calls.
type steps struct {
	open  []step // calls without a result, in the order in which they started
	since time.Time
	count int
	idle  bool // the latest event was a result, and no call is open
}

type step struct {
	id, name string
	since    time.Time
}

// take records a step of a call.
func (s *steps) take(e *chat.ToolEvent) {
	switch e.Phase {
	case "start":
		s.count++
		s.open = append(s.open, step{e.CallID, e.Name, time.Now()})
	case "update":
		if i := slices.IndexFunc(s.open, func(o step) bool { return o.id == e.CallID }); i >= 0 {
			s.open[i].name = e.Name
		}
	case "result":
		s.open = slices.DeleteFunc(s.open, func(o step) bool { return o.id == e.CallID })
		s.since, s.idle = time.Now(), true
	}
}

// write records that the answer has new text.
func (s *steps) write() { s.idle = false }

// preview returns the state of an answer with this text.
func (s *steps) preview(text string) channel.Preview {
	p := channel.Preview{Text: text, Steps: s.count}
	switch {
	case len(s.open) > 0:
		last := s.open[len(s.open)-1]
		p.Step, p.Since = last.name, last.since
	case s.idle:
		p.Step, p.Since = stepBetween, s.since
	}
	return p
}
