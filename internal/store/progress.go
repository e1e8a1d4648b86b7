package store

import "time"

// Progresser is an optional ability of a store with one writer: it reports whether the writer makes progress.
type Progresser interface {
	// WriterAge is how long the current operation or batch has been running; 0 when the writer is idle. It keeps growing while the disk does not respond, so
	// that a health check can distinguish a slow store from a blocked one. It never blocks.
	WriterAge() time.Duration
}
