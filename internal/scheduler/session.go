package scheduler

import (
	"context"
	"slices"
	"time"
)

// session is the state of a conversation while it has running or waiting work. Every field is
// guarded by the scheduler's mutex. alarm and question only ever grow: a late timer or estimate
// finds another number and does nothing.
type session struct {
	key     string
	set     Settings // of the last Wake
	gen     uint64
	front   *Wake // the message that waits first, as far as the scheduler knows; nil = none does
	waiting int   // how many messages wait, as far as the scheduler knows
	heard   int64 // the highest number of a message of which a Wake has told
	running []*Turn
	begins  *Turn // started last and has not begun yet: the next turn of the session waits for that, without a slot

	// The place in a line. If lane is set, the session is in its ready list and in the subqueue of
	// its principal there, and held is the principal whose place it holds for its next turn. If
	// only held is set, it waits for a place. A turn without a bound needs none.
	lane     *lane
	subqueue *subqueue
	held     *principal
	links    [linkCount]link
	readyAt  time.Duration

	// Until when it starts no turn, if it waits.
	waits  bool
	window bool // because a person may still be typing
	burst  burst
	until  time.Duration
	alarm  uint64
	timer  *time.Timer

	// The token estimate.
	question  uint64
	estimate  estimateState
	forgetAsk context.CancelCauseFunc
}

// burst is what a person has typed in the window.
type burst struct {
	last         Row
	count, bytes int
}

func (x *session) idle() bool { return len(x.running) == 0 && x.front == nil }

// leave removes the turn from the session's running ones.
func (x *session) leave(t *Turn) {
	if x.begins == t {
		x.begins = nil
	}
	x.running = slices.DeleteFunc(x.running, func(o *Turn) bool { return o == t })
}

// state is what a decision about its messages depends on, as far as the scheduler knows.
func (x *session) state() SessionState {
	st := SessionState{Running: len(x.running)}
	for _, t := range x.running {
		if t.takesInput() {
			st.Inputs = append(st.Inputs, t.thread)
		}
	}
	return st
}

// holds reports whether a turn that begins with the message waits for further ones. The store
// decides; to ask it earlier would be in vain.
func (x *session) holds(r *Row) bool { return windowed(r, x.set, x.state()) }

// breaks adds a message to the burst in the window, and reports whether it ends the window: it
// belongs to another turn than the one before it, or completes the batch.
func (x *session) breaks(r *Row) bool {
	a := x.burst.last
	x.burst.last, x.burst.count, x.burst.bytes = *r, x.burst.count+1, x.burst.bytes+r.Size
	return x.set.cuts(x.burst.count, x.burst.bytes) ||
		x.burst.count > 1 && (!a.merges() || a.Sender != r.Sender || a.Thread != r.Thread || a.Lane != r.Lane || a.Seq+1 != r.Seq)
}

// steered reports whether a running turn will take the message that waits first as input.
func (x *session) steered() bool { return steered(&x.front.Row, x.front.Settings, x.state()) }
