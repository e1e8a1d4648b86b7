package dispatch

import (
	"cmp"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// QueueRules are how messages of one session wait. The scheduler follows its settings, which are embedded. The store enforces Cap and Drop,
// because only the store sees the messages that every replica has accepted.
type QueueRules struct {
	scheduler.Settings
	// Cap is how many messages may wait; 0 = 10.
	Cap int
	// Drop decides which message loses its place when Cap messages wait; "" = [chat.DropOld].
	Drop chat.DropPolicy

	usual chat.QueueMode // the mode where neither the session nor the message chose one; set by chosen
}

// defaultCap is the bound of a queue whose rules name none.
const defaultCap = 10

// chosen returns the rules with the last mode that is not empty, and with every default written out.
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

// mode is the queue mode in the words of package chat. The scheduler imports the standard library only, so it has a type of its own
// with the same words; this method and [QueueRules.chosen] are the one place that converts between them.
func (r QueueRules) mode() chat.QueueMode { return chat.QueueMode(r.Mode) }

func defaultQueue(_, _, kind string) QueueRules {
	if kind == chat.KindGroup {
		return QueueRules{Settings: scheduler.Settings{MaxConcurrent: defaultGroup}}
	}
	return QueueRules{}
}
