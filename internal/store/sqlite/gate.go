package sqlite

import (
	"context"
	"time"

	"laneway/internal/store"
)

// rest is the result of a poll at now: when idle, it found nothing, and before next (0 = never) only a change can make it find something.
type rest struct {
	idle      bool
	next, now int64
}

// resting reports whether a poll needs no read. The poll still counts as an operation for Config.Before.
func (s *Store) resting(ctx context.Context, p store.Poll) (next time.Time, yes bool, err error) {
	if ctx.Err() == nil { // otherwise the operation returns the error
		next, yes = s.gate.Resting(p, s.now())
	}
	if yes {
		err = s.before(ctx, p.Kind)
	}
	return next, yes, err
}
