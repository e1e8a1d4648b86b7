package store

import (
	"context"
	"time"
)

// Allowances is an optional ability of a store that several processes share. It counts calls for all of them.
type Allowances interface {
	// TakeAllowance takes up to n calls from the named allowance. The allowance holds at most perMinute calls and refills by perMinute
	// calls in a minute. It returns the number of calls taken and, when that is 0, how long it takes until one call is available.
	TakeAllowance(ctx context.Context, name string, n, perMinute int) (got int, wait time.Duration, err error)
}
