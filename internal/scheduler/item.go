package scheduler

import (
	"errors"
	"time"
)

// Item is one submitted message.
type Item[M any] struct {
	// Session is the key of the conversation. Required.
	Session string
	// Lane is the lane of the turn. Empty means LaneMain; an unknown name falls back to it and is counted.
	Lane string
	// ID identifies the message, and the turn when the message leads it. Required.
	ID string
	// Seq is the position in the session's order of acceptance, from 1. 0 makes the scheduler assign the next one. Within one session either all messages have
	// a Seq or none has.
	Seq int64
	// Sender and Thread must be equal for messages to be merged by the debounce window.
	Sender, Thread string
	// Principal is the principal of a turn whose first message this is. A full lane serves principals in turn, however many sessions each of them has; "" is a
	// principal like any other.
	Principal string
	// Bounded makes such a turn count towards PrincipalTurns.
	Bounded bool
	// Size is the number of bytes that count towards BatchBytes.
	Size int
	// Payload is the caller's message; the scheduler never inspects it.
	Payload M
	// Settings override the defaults for the session from this message on. Nil means the defaults.
	Settings *Settings
	// Typed is true when a person typed the message. Only then does it wait for the debounce window.
	Typed bool
	// NoMerge keeps the message alone in its turn and ends the batch before it: attachments, commands, recovered runs.
	NoMerge bool
	// Gathers lets the turn of this message include the directly following messages that also gather and have the same sender, thread and lane. A message that
	// does not gather is never included, and includes no others, except in ModeCollect.
	Gathers bool
	// RunID is the id of the turn when this message leads it and the run existed before, as after a restart; otherwise empty. Such a message is not merged, as
	// with NoMerge.
	RunID string
}

// merges reports whether the message may share a turn.
func (it *Item[M]) merges() bool { return !it.NoMerge && it.RunID == "" }

// check reports why the item is unusable.
func (it *Item[M]) check() error {
	var faults []error
	if it.Session == "" {
		faults = append(faults, errors.New("session: must not be empty"))
	}
	if it.ID == "" {
		faults = append(faults, errors.New("id: must not be empty"))
	}
	if it.Seq < 0 {
		faults = append(faults, errors.New("seq: must not be negative"))
	}
	if it.Size < 0 {
		faults = append(faults, errors.New("size: must not be negative"))
	}
	if it.Settings != nil {
		faults = append(faults, it.Settings.faults("settings.")...)
	}
	return invalid("message", faults)
}

// Submitted is the result for an accepted message.
type Submitted[M any] struct {
	// Ticket is the promise of the message's outcome; nil when Submit returned an error.
	Ticket *Ticket
	// Seq is the position in the session's order, as given by the caller or the scheduler.
	Seq int64
	// Running is true when the turn of the message has been started.
	Running bool
	// Position is how many messages of the session waited before this one when it was accepted.
	Position int
	// Ended are the waiting messages that this one superseded, oldest first.
	Ended []Ended[M]
	// Duplicate is true when a message with this session and Seq already waits or runs; Ticket is then the ticket of that message.
	Duplicate bool
}

// Ended is a message that ended without a turn of its own.
type Ended[M any] struct {
	Item    Item[M]
	Outcome Outcome
	Err     error
}

// Stopped is the result of a stop. It is empty when there was nothing to stop.
type Stopped[M any] struct {
	// Running are the turns that were asked to stop by this call. They keep their slots until they return.
	Running []*Turn[M]
	// Ended are the waiting messages that ended by this call, oldest first.
	Ended []Ended[M]
	// Cutoff is the sequence number that StopAll has set: messages up to it are stale from now on. Otherwise 0.
	Cutoff int64
}

// Nothing reports whether there was nothing to stop.
func (s Stopped[M]) Nothing() bool { return len(s.Running) == 0 && len(s.Ended) == 0 }

// entry is one accepted message until its end. Entries that will share a turn are chained into a unit. The first entry of the chain describes the unit and
// contains the memory of its turn, so that a turn needs no allocation. Everything but the ticket is guarded by the scheduler's mutex until the turn starts.
type entry[M any] struct {
	box    [1]Item[M] // an array, so that a turn of one message gets its slice of items without an allocation
	ticket Ticket
	at     time.Duration // time of acceptance, on the scheduler's clock
	lane   *lane[M]
	who    *principal[M] // valid only while the message waits, because the record is reused
	next   *entry[M]     // the next message in the same unit
	turnOf *Turn[M]      // the turn that took it, nil while it waits

	// The rest is only meaningful in the first entry of a unit.
	last  *entry[M]
	count int  // messages
	bytes int  // sum of sizes
	open  bool // a debounce window is open: others may join, and the unit may not start
	alone bool // it interrupted: it starts when nothing else of the session runs
	steer bool // a running turn may take it as input
	turn  Turn[M]
}

// item is the message itself.
func (e *entry[M]) item() *Item[M] { return &e.box[0] }

// join appends the unit that begins with o.
func (e *entry[M]) join(o *entry[M]) {
	e.last.next = o
	e.last = o.last
	e.count += o.count
	e.bytes += o.bytes
}

// without removes one message from the unit and returns the rest, nil when nothing is left.
func (e *entry[M]) without(gone *entry[M]) *entry[M] {
	if gone == e {
		return e.withoutFirst()
	}
	before := e
	for before.next != gone {
		before = before.next
	}
	before.next, gone.next = gone.next, nil
	if e.last == gone {
		e.last = before
	}
	e.count--
	e.bytes -= gone.item().Size
	return e
}

// withoutFirst removes the first message and moves the description of the unit to the second.
func (e *entry[M]) withoutFirst() *entry[M] {
	second := e.next
	if second == nil {
		return nil
	}
	second.last, second.count, second.bytes = e.last, e.count-1, e.bytes-e.item().Size
	second.open, second.alone, second.steer = e.open, e.alone, e.steer
	e.next, e.last, e.count = nil, e, 1
	return second
}
