package external

import (
	"bytes"
	"context"

	"golang.org/x/time/rate"
)

const (
	// readRate is the rate at which what a program writes is read, in bytes per second, behind one message of the greatest length. It bounds what messages
	// without end cost.
	readRate = 1 << 20
	// lineCost is what each line takes from the allowance beside its bytes: decoding and handling a message takes some 400 µs however short it is, so
	// readRate alone would let short ones keep a processor busy. [logFilter] keeps the most frequent ones from it.
	lineCost = 256
)

// allowance is what one program may still write. It is used by one goroutine.
type allowance struct{ limiter *rate.Limiter }

func newAllowance() allowance { return allowance{rate.NewLimiter(readRate, maxMessage)} }

// take waits until piece may be passed on. It returns the error of ctx.
func (a allowance) take(ctx context.Context, piece []byte) error {
	cost := len(piece) + lineCost*bytes.Count(piece, []byte{'\n'})
	return a.limiter.WaitN(ctx, min(cost, maxMessage)) //nolint:wrapcheck // the end of the connection
}
