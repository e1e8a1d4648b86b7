package store

import "context"

// Waker is an optional ability of a store: hints between processes that share it. A hint says "look again" and carries no
// data. Hints may be lost, doubled or late; what must happen happens without them, a little later.
type Waker interface {
	// Notify tells a node that one of its sessions has a new message. It returns at once and never fails; hints to the same
	// node are joined, at most one per 100 ms is sent.
	Notify(node string)
	// Wakeups delivers the hints for a node that lives in this process. The channel holds at most one hint and is never closed. The
	// same node gets the same channel until it is unregistered.
	Wakeups(node string) <-chan struct{}
	// NotifyStop tells a node that one of its runs was asked to stop, as Notify does. A node that misses it learns of the stop by its heartbeat.
	NotifyStop(node string)
	// StopWakeups delivers the hints of NotifyStop, as Wakeups does.
	StopWakeups(node string) <-chan struct{}
	// StopRequests is the stop requests for runs that the node owns, as [Nodes].Heartbeat returns them. It uses the control connection.
	StopRequests(ctx context.Context, node string) ([]StopRequest, error)
}

// MaxBroadcast is how many bytes one text of a [Broadcaster] may have.
const MaxBroadcast = 7_000

// Broadcaster is an optional ability of a store: short texts from every process to all others that share it, for what people who are connected
// elsewhere would like to see. A text may be lost; nothing that must happen hangs on one.
type Broadcaster interface {
	// Broadcast sends a text without line feeds. It returns at once and never fails: texts are joined and sent at most once per 100 ms, outside of
	// any transaction. One that is longer than [MaxBroadcast] is not sent, nor are those that come faster than they can be sent.
	Broadcast(text string)
	// Broadcasts delivers what other processes send from the first call on, in the order of each of them. The channel is never closed. What its
	// reader is too slow for is lost.
	Broadcasts() <-chan string
}
