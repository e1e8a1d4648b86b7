package store

import "time"

// Progresser is an optional ability of a store with one writer: it reports whether the writer makes progress.
type Progresser interface {
	// WriterAge is how long the current operation or batch has been running; 0 when the writer is idle. It keeps growing while the disk
	// does not answer, so a health check can tell a slow store from one that hangs. It never blocks.
	WriterAge() time.Duration
}
