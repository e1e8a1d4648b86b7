package scheduler

import (
	"slices"
	"time"
)

// Row is what a decision about a waiting message reads: columns of the store, never its body.
type Row struct {
	// Seq is its position in the session's order of acceptance.
	Seq int64
	// RunID is the run that took it before, for a message that waits again; otherwise empty.
	RunID string
	// Sender, Thread and Lane must be equal for messages to share a turn.
	Sender, Thread, Lane string
	// Accepted is when the store accepted it, by the store's clock.
	Accepted time.Time
	// Size is the number of bytes that count towards BatchBytes.
	Size int
	// Mode is what it asks for; "" = the mode of its session.
	Mode QueueMode
	// Typed: a person typed it, and may type more. Alone: it shares no turn. Gathers: its turn may
	// include the following messages that also gather.
	Typed, Alone, Gathers bool
}

// merges reports whether the message may share a turn.
func (r *Row) merges() bool { return !r.Alone && r.RunID == "" }

// SessionState is what a decision depends on besides the waiting messages of its session.
type SessionState struct {
	// Mode is the mode that was chosen for the session; "" = as configured.
	Mode QueueMode
	// Last is the number that it has given last. Cutoff: a stop covers the messages up to this
	// number.
	Last, Cutoff int64
	// Running is the number of its turns, stopping ones included.
	Running int
	// Inputs are the threads of its running turns that take messages during the turn.
	Inputs []string
	// Large: its history is so large that it runs one turn at a time.
	Large bool
}

// Decision is what a session does now: Take and Until exclude each other, and when both are zero it
// waits for the end of a turn, or for a turn that takes the first message as input.
type Decision struct {
	// Take are the messages that become a turn; the last one leads.
	Take []Row
	// Until is the end of the window of the first messages.
	Until time.Time
	// Stopped are the messages that a stop covers.
	Stopped []int64
}

// Next decides what a session does with a slot. rows are its waiting messages, oldest first. The
// result depends on nothing else, so that every process, and every repetition, decides the same.
func Next(rows []Row, s Settings, st SessionState, now time.Time) (d Decision) {
	for len(rows) > 0 && rows[0].Seq <= st.Cutoff {
		d.Stopped = append(d.Stopped, rows[0].Seq)
		rows = rows[1:]
	}
	list := Units(rows, s, st)
	if len(list) == 0 {
		return d
	}
	u, first := list[0], &list[0].Rows[0]
	switch mode := s.modeOf(first, st.Mode); {
	case len(list) == 1 && u.Open.After(now):
		d.Until = u.Open
	case steered(first, s, st):
	case st.Running > 0 && (mode == ModeInterrupt || st.Running >= max(s.MaxConcurrent, 1) || st.Large):
	default:
		d.Take = u.Rows
		if mode == ModeCollect || first.Gathers {
			d.Take = collected(list, s, now)
		}
	}
	return d
}

// steered reports whether a running turn takes the message as input.
func steered(r *Row, s Settings, st SessionState) bool {
	return s.modeOf(r, st.Mode) == ModeSteer && r.merges() && slices.Contains(st.Inputs, r.Thread)
}

// collected are the messages of the first unit and of those after it that may share its turn. Only
// bytes limit them, because the number of waiting messages is limited already.
func collected(list []Unit, s Settings, now time.Time) []Row {
	take, size := slices.Clip(list[0].Rows), list[0].size
	for i := range list[1:] {
		u := &list[1+i]
		a, b := &take[len(take)-1], &u.Rows[0]
		size += u.size
		if open := i == len(list)-2 && u.Open.After(now); open || !a.merges() || !b.merges() || a.Thread != b.Thread || a.Lane != b.Lane ||
			a.Gathers != b.Gathers || a.Gathers && a.Sender != b.Sender || s.BatchBytes > 0 && size > s.BatchBytes {
			break
		}
		take = append(take, u.Rows...)
	}
	return take
}

// SteeredInto returns the waiting messages, oldest first, that a running turn of this thread takes
// as input.
func SteeredInto(rows []Row, thread string, s Settings, session QueueMode) []Row {
	for i := range rows {
		if r := &rows[i]; s.modeOf(r, session) != ModeSteer || !r.merges() || r.Thread != thread {
			return rows[:i]
		}
	}
	return rows
}

// Unit is the waiting messages of one turn.
type Unit struct {
	Rows []Row
	// Open is until when a further message joins it; zero = none does. Only that of the last unit
	// counts.
	Open time.Time

	size   int
	latest time.Time // Open is not moved beyond it
}

// Units groups waiting messages, oldest first. Whether a message fell into the window of the one
// before it follows from the times at which both were accepted. Messages of a run that began before
// stay together.
func Units(rows []Row, s Settings, st SessionState) (list []Unit) {
	for i := range rows {
		r := &rows[i]
		if j := slices.IndexFunc(list, func(u Unit) bool { return r.RunID != "" && u.Rows[0].RunID == r.RunID }); j >= 0 {
			list[j].add(r, s)
			continue
		}
		if n := len(list); n > 0 && list[n-1].takes(r, s, st) {
			list[n-1].add(r, s)
			continue
		}
		u := Unit{Rows: rows[i : i+1 : i+1], size: r.Size}
		if windowed(r, s, st) {
			u.latest = r.Accepted.Add(s.hold())
			u.move(r, s)
		}
		list = append(list, u)
	}
	if n := len(rows); n > 0 && rows[n-1].Seq < st.Last {
		list[len(list)-1].Open = time.Time{}
	}
	return list
}

// takes reports whether the message belongs to the unit. A missing number was a command, or a
// message that has ended: it ends a window.
func (u *Unit) takes(r *Row, s Settings, st SessionState) bool {
	last := &u.Rows[len(u.Rows)-1]
	return r.Accepted.Before(u.Open) && windowed(r, s, st) && r.Seq == last.Seq+1 && r.Sender == last.Sender && r.Thread == last.Thread && r.Lane == last.Lane &&
		(s.BatchBytes <= 0 || u.size+r.Size <= s.BatchBytes)
}

// add adds a message to the unit.
func (u *Unit) add(r *Row, s Settings) {
	u.Rows, u.size = append(u.Rows, *r), u.size+r.Size
	u.move(r, s)
}

// move sets the end of the unit's window after the message was added.
func (u *Unit) move(r *Row, s Settings) {
	switch {
	case u.latest.IsZero():
	case s.cuts(len(u.Rows), u.size):
		u.Open = time.Time{}
	default:
		u.Open = r.Accepted.Add(s.Debounce)
		if u.latest.Before(u.Open) {
			u.Open = u.latest
		}
	}
}

// windowed reports whether the message waits for a further one. A window is not opened if it could
// not merge or would only delay: when the message interrupts, is steered into a running turn, or
// will be collected with others anyway.
func windowed(r *Row, s Settings, st SessionState) bool {
	if !r.Typed || !r.merges() || s.Debounce <= 0 || s.BatchMessages == 1 {
		return false
	}
	switch s.modeOf(r, st.Mode) {
	case ModeInterrupt:
		return st.Running == 0
	case ModeCollect:
		return st.Running < max(s.MaxConcurrent, 1)
	case ModeSteer:
		return !slices.Contains(st.Inputs, r.Thread)
	default:
		return true
	}
}

// MayDisplace reports whether a message may end others, or be refused, when so many wait in its
// session. Otherwise Admit needs not be asked.
func (s Settings) MayDisplace(m *Row, session QueueMode, waiting int64) bool {
	return waiting > 0 && (s.modeOf(m, session) == ModeInterrupt || s.Cap > 0 && waiting >= int64(s.Cap) && !m.Gathers)
}

// Admission is what a new message does to the queue of its session.
type Admission struct {
	// Refused: the queue is full, and the message is not accepted.
	Refused bool
	// Ended are the waiting messages that it ends, oldest first: Superseded by it, else dropped.
	Ended      []int64
	Superseded bool
}

// Admit decides about a new message m. rows are the messages that wait, oldest first. A message in
// mode interrupt ends all of them, unless it joins the window of a session without a turn. Another
// one may find that more than Cap units wait: the queue then refuses it, or drops the oldest units.
//
// While no turn runs, the first unit counts against no cap and is never dropped: it is the one that
// has a slot, or gets the next one. Nor do messages of runs that began before, and those that
// gather.
func Admit(rows []Row, m *Row, s Settings, st SessionState) (a Admission) {
	list := Units(append(slices.Clip(rows), *m), s, st)
	if s.modeOf(m, st.Mode) == ModeInterrupt {
		if len(list) > 1 { // while a turn runs it joins no window
			a.Superseded = true
			for i := range rows {
				a.Ended = append(a.Ended, rows[i].Seq)
			}
		}
		return a
	}
	own := &list[len(list)-1]
	if s.Cap <= 0 || m.Gathers || len(own.Rows) > 1 {
		return a
	}
	if st.Running == 0 {
		list = list[1:]
	}
	list = slices.DeleteFunc(list, func(u Unit) bool { return u.Rows[0].RunID != "" || u.Rows[0].Gathers })
	over := len(list) - s.Cap
	switch {
	case over <= 0:
	case s.DropNew:
		a.Refused = true
	default:
		for _, u := range list[:over] {
			for i := range u.Rows {
				a.Ended = append(a.Ended, u.Rows[i].Seq)
			}
		}
	}
	return a
}
