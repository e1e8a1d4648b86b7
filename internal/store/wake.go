package store

import "context"

// Hint is what a node should read again.
type Hint string

// The hints. The value follows the id of the node in a notification; a process of an older version ignores unknown values.
const (
	HintMessage Hint = ""      // one of its sessions has a new message
	HintStop    Hint = " stop" // a stop of one of its runs was requested: [Nodes].Heartbeat returns the request
)

// Waker is an optional ability of a store: hints between processes that share it. A hint means "read again" and carries no data. Hints may be lost, duplicated
// or late; without a hint the same work happens later.
type Waker interface {
	// Notify sends a hint to a node. It returns immediately and never fails. Equal hints to a node are coalesced: at most one per 100 ms is sent.
	Notify(node string, h Hint)
	// Wakeups delivers the hints for a node that lives in this process. The channel holds at most one hint and is never closed. The
	// same node gets the same channel until it is unregistered.
	Wakeups(node string, h Hint) <-chan struct{}
}

// MaxBroadcast is the maximum size of one message of a [Broadcaster], in bytes.
const MaxBroadcast = 7_000

// Broadcaster is an optional ability of a store: short messages from every process to all others that share it. They carry events to clients that are connected
// to another process. A message may be lost; correctness does not depend on one.
type Broadcaster interface {
	// Broadcast sends a message without line feeds. It returns immediately and never fails. Messages are joined and sent at most once per 100 ms, outside of
	// any transaction. A message longer than [MaxBroadcast] is not sent, nor is one that exceeds the bound of the send queue.
	Broadcast(text string)
	// Listen starts receiving and waits for the result of the first attempt, or for the end of ctx. When it returns nil, every message that is sent from then
	// on is received. After an error the store retries by itself, and messages are received once an attempt succeeds.
	Listen(ctx context.Context) error
	// Broadcasts delivers the messages of other processes, in order for each process. It starts receiving as Listen does, but does not wait. The channel is
	// never closed. Messages are lost while the connection is down, and when the reader is too slow. An empty message marks the point at which messages are
	// received again after some may have been lost.
	Broadcasts() <-chan string
}
