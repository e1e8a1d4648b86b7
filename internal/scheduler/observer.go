package scheduler

import "time"

// Observer counts events for metrics. Its arguments come from closed sets: the names of lanes, outcomes and refusals. Many goroutines call its methods
// concurrently, outside every lock; a slow one delays the call or the turn that caused the event. Values that can be computed from the state are in Stats
// instead.
type Observer interface {
	// MessageRefused: Submit returned an error.
	MessageRefused(why Refusal)
	// MessageEnded: a message ended without leading a turn.
	MessageEnded(lane string, o Outcome)
	// TurnStarted: a turn got its slot; waited is the time since its first message was accepted.
	TurnStarted(lane string, waited time.Duration)
	// TurnEnded: the outcome of a turn, and of its leading message, was decided. A stuck turn may return afterwards.
	TurnEnded(lane string, o Outcome, ran time.Duration)
	// TurnStuck: a cancelled turn has not returned within the grace.
	TurnStuck(lane string)
	// LaneUnknown: a message named a lane that does not exist, and falls back to main.
	LaneUnknown()
}

// NopObserver does nothing. Embed it to implement a part of Observer.
type NopObserver struct{}

var _ Observer = NopObserver{}

// MessageRefused does nothing.
func (NopObserver) MessageRefused(Refusal) {}

// MessageEnded does nothing.
func (NopObserver) MessageEnded(string, Outcome) {}

// TurnStarted does nothing.
func (NopObserver) TurnStarted(string, time.Duration) {}

// TurnEnded does nothing.
func (NopObserver) TurnEnded(string, Outcome, time.Duration) {}

// TurnStuck does nothing.
func (NopObserver) TurnStuck(string) {}

// LaneUnknown does nothing.
func (NopObserver) LaneUnknown() {}

// Refusal is why Submit returned an error. The set is closed.
type Refusal string

// The refusals.
const (
	RefusedStale    Refusal = "stale"
	RefusedDraining Refusal = "draining"
	RefusedInvalid  Refusal = "invalid"
)

// Refusals lists every refusal.
func Refusals() []Refusal {
	return []Refusal{RefusedStale, RefusedDraining, RefusedInvalid}
}

// refusalCount is the number of refusals.
const refusalCount = 3

// index is the index of the refusal in a table of counters.
func (r Refusal) index() int {
	switch r {
	case RefusedStale:
		return 0
	case RefusedDraining:
		return 1
	default:
		return 2
	}
}
