package dispatch

import (
	"cmp"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// QueueRules define how messages of one session wait. The scheduler uses the embedded settings. The store enforces Cap and Drop, because
// only the store sees the messages that every replica has accepted.
type QueueRules struct {
	scheduler.Settings
	// Cap is how many messages may wait; 0 = 10.
	Cap int
	// Drop selects the message to remove when Cap messages wait; "" = [chat.DropOld].
	Drop chat.DropPolicy

	usual chat.QueueMode // the mode when neither the session nor the message has one; set by chosen
}

// defaultCap is the limit of a queue without a configured limit.
const defaultCap = 10

// chosen returns the rules with the last mode that is not empty, and with all defaults filled in.
func (r QueueRules) chosen(modes ...chat.QueueMode) QueueRules {
	r.Settings = r.Over(scheduler.DefaultSettings())
	r.Cap = cmp.Or(r.Cap, defaultCap)
	r.Drop = cmp.Or(r.Drop, chat.DropOld)
	r.usual = r.mode()
	for _, m := range modes {
		r.Mode = cmp.Or(scheduler.QueueMode(m), r.Mode)
	}
	return r
}

// mode returns the queue mode as a value of package chat. The scheduler imports only the standard library, so it has its own type with the
// same values; only this method and [QueueRules.chosen] convert between them.
func (r QueueRules) mode() chat.QueueMode { return chat.QueueMode(r.Mode) }

func defaultQueue(_, _, kind string) QueueRules {
	if kind == chat.KindGroup {
		return QueueRules{Settings: scheduler.Settings{MaxConcurrent: defaultGroup}}
	}
	return QueueRules{}
}
