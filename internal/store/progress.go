package store

import "time"

// Progresser is what a store with a writer of its own can say beyond [Store]: whether the writer turns.
type Progresser interface {
	// WriterAge is how long the operation or batch under way has been in hand; 0 when the writer is idle. It only grows while the
	// disk does not answer, so a health check can tell a slow store from a store that hangs. It never blocks.
	WriterAge() time.Duration
}
