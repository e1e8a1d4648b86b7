package store

// Waker is an optional ability of a store: hints between processes that share it. A hint says "look again" and carries no
// data. Hints may be lost, doubled or late; what must happen happens without them, a little later.
type Waker interface {
	// Notify tells a node that one of its sessions has a new message. It returns at once and never fails; hints to the same
	// node are joined, at most one per 100 ms is sent.
	Notify(node string)
	// Wakeups delivers the hints for a node that lives in this process. The channel holds at most one hint and is never closed. The
	// same node gets the same channel until it is unregistered.
	Wakeups(node string) <-chan struct{}
}
