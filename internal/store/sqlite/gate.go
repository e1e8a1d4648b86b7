package sqlite

import (
	"context"
	"time"

	"laneway/internal/store"
)

// rest is a look that was made at now: when it is idle, it has found nothing, and before next (0 = never) only a change can make it find something.
type rest struct {
	idle      bool
	next, now int64
}

// resting reports whether a poll needs no read. Then it is an operation all the same, for Before of the configuration.
func (s *Store) resting(ctx context.Context, p store.Poll) (next time.Time, yes bool, err error) {
	if ctx.Err() == nil { // otherwise the operation says so
		next, yes = s.gate.Resting(p, s.now())
	}
	if yes {
		err = s.before(ctx, p.Kind)
	}
	return next, yes, err
}
