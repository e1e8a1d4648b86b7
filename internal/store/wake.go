package store

import "context"

// Hint is what a node is asked to read again.
type Hint string

// The hints. The value follows the id of the node in a notification; a process of an older version ignores those that it does not know.
const (
	HintMessage Hint = ""      // one of its sessions has a new message
	HintStop    Hint = " stop" // one of its runs was asked to stop: [Nodes].Heartbeat returns the request
)

// Waker is an optional ability of a store: hints between processes that share it. A hint means "read again" and has no data. Hints may be
// lost, doubled or late; everything that must happen also happens without them, later.
type Waker interface {
	// Notify sends a hint to a node. It returns at once and never fails. Equal hints to a node are joined: at most one per 100 ms is sent.
	Notify(node string, h Hint)
	// Wakeups delivers the hints for a node that lives in this process. The channel holds at most one hint and is never closed. The
	// same node gets the same channel until it is unregistered.
	Wakeups(node string, h Hint) <-chan struct{}
}

// MaxBroadcast is how many bytes one text of a [Broadcaster] may have.
const MaxBroadcast = 7_000

// Broadcaster is an optional ability of a store: short texts from every process to all others that share it. They carry events to clients
// that are connected to another process. A text may be lost; nothing that must happen depends on one.
type Broadcaster interface {
	// Broadcast sends a text without line feeds. It returns at once and never fails. Texts are joined and sent at most once per 100 ms,
	// outside of any transaction. A text longer than [MaxBroadcast] is not sent, nor is one beyond the bound of texts that wait to be sent.
	Broadcast(text string)
	// Listen begins to receive and waits for the result of the first attempt, or for the end of ctx. When it returns nil, every text that is sent from
	// then on comes. With an error, texts come once a later attempt succeeds, which needs no further call.
	Listen(ctx context.Context) error
	// Broadcasts delivers the texts of other processes, in order for each process; it begins to receive as Listen does, without the wait. The channel
	// is never closed. Texts are lost while there is no connection, and when the reader does not read fast enough. An empty text comes once texts come again
	// after some may have been lost.
	Broadcasts() <-chan string
}
