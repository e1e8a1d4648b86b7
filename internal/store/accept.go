package store

import (
	"slices"

	"laneway/internal/chat"
)

// Displaces selects the messages of a session with this stored mode that a new message ends. waiting are those that wait, oldest first; only their numbers and
// states are read. A message that interrupts a full queue ends all of them; any other message ends the excess that it causes. chat.ErrQueueFull means that the
// new message itself is refused. Messages that are held or have a slot already do not count.
func (p *AcceptParams) Displaces(waiting []Waiting, stored chat.QueueMode) (seqs []int64, outcome chat.Outcome, err error) {
	var free, queued []int64
	for i := range waiting {
		m := &waiting[i]
		if slices.Contains(p.Starting, m.Seq) {
			continue
		}
		if free = append(free, m.Seq); m.State != StateHeld {
			queued = append(queued, m.Seq)
		}
	}
	over := len(queued) + 1 - p.Cap
	switch {
	case p.Cap <= 0 || p.Joins || p.Unqueued || over <= 0:
		return nil, "", nil
	case p.Interrupts(stored):
		return free, chat.OutcomeSuperseded, nil
	case p.Drop == chat.DropNew:
		return nil, "", chat.ErrQueueFull
	default:
		return queued[:over], chat.OutcomeDropped, nil
	}
}

// DisplacedReason is the reason of a message that was displaced with this outcome.
func DisplacedReason(o chat.Outcome) string {
	if o == chat.OutcomeSuperseded {
		return ReasonSuperseded
	}
	return string(chat.FailQueueFull)
}

// NoticeOf is the notice about messages that were displaced with this outcome; nil when none is sent.
func (p *AcceptParams) NoticeOf(o chat.Outcome) *Outgoing {
	if o == chat.OutcomeDropped {
		return p.DropNotice
	}
	return nil
}
