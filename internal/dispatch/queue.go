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
	// Drop says which message loses its place when Cap messages wait; "" = [chat.DropOld].
	Drop chat.DropPolicy
}

// defaultCap is the bound of a queue whose rules name none.
const defaultCap = 10

// withDefaults returns the rules with every default written out.
func (r QueueRules) withDefaults() QueueRules {
	r.Settings = r.Over(scheduler.DefaultSettings())
	r.Cap = cmp.Or(r.Cap, defaultCap)
	r.Drop = cmp.Or(r.Drop, chat.DropOld)
	return r
}

// mode is the queue mode in the words of package chat. The scheduler imports the standard library only, so it has a type of its own
// with the same words; this method and [QueueRules.withMode] are the one place that converts between them.
func (r QueueRules) mode() chat.QueueMode { return chat.QueueMode(r.Mode) }

// withMode returns the rules with another mode; "" changes nothing.
func (r QueueRules) withMode(m chat.QueueMode) QueueRules {
	r.Mode = cmp.Or(scheduler.QueueMode(m), r.Mode)
	return r
}

func defaultQueue(_, _, kind string) QueueRules {
	if kind == chat.KindGroup {
		return QueueRules{Settings: scheduler.Settings{MaxConcurrent: defaultGroup}}
	}
	return QueueRules{}
}

// configured are the rules of a message's session without the mode that the session or the message chose.
func (d *Dispatcher) configured(m chat.Message) QueueRules {
	return (*d.queue.Load())(m.Session.Agent, channelKind(m.Channel), m.Session.Kind())
}

// settings of a message's session: the configured ones, then the session's own mode, then what the message asks for.
func (d *Dispatcher) settings(m chat.Message, mode chat.QueueMode) QueueRules {
	return d.configured(m).withMode(mode).withMode(m.Content.Options.Mode).withDefaults()
}

// usualMode is how the session of a message queues where neither the session nor the message says it.
func (d *Dispatcher) usualMode(m chat.Message) chat.QueueMode {
	return d.configured(m).withDefaults().mode()
}
