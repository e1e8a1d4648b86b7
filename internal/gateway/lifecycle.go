package gateway

import (
	"sync/atomic"

	"laneway/internal/gateway/fault"
)

// lifecycle is the state of the gateway between start and stop. It is safe for concurrent use.
type lifecycle struct {
	up, down atomic.Bool
	leaving  atomic.Bool // no longer ready, but still serving
}

func (l *lifecycle) ready() bool    { return l.up.Load() }
func (l *lifecycle) draining() bool { return l.down.Load() }

// Refusal returns why no work is accepted now, or nil.
func (l *lifecycle) Refusal() *fault.Error {
	switch {
	case l.draining():
		return fault.Draining()
	case !l.ready():
		return fault.Starting()
	default:
		return nil
	}
}
