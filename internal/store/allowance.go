package store

import (
	"context"
	"time"
)

// Allowances is the optional part of a store that several processes share: it counts calls for all of them.
type Allowances interface {
	// TakeAllowance takes up to n calls from the named allowance, which holds perMinute calls at most and fills by as many in a minute. It says
	// how many it got and, when that is none, how long it takes until there is one.
	TakeAllowance(ctx context.Context, name string, n, perMinute int) (got int, wait time.Duration, err error)
}
