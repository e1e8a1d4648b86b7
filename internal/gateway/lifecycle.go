package gateway

import (
	"sync/atomic"

	"laneway/internal/gateway/fault"
)

// lifecycle is where the gateway is between start and stop. It is safe for concurrent use.
type lifecycle struct {
	up, down atomic.Bool
	leaving  atomic.Bool // not ready any more, and serving on
}

func (l *lifecycle) ready() bool    { return l.up.Load() }
func (l *lifecycle) draining() bool { return l.down.Load() }

// Refusal is why no work is accepted now; nil = it is.
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
