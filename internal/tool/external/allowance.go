package external

import (
	"bytes"
	"context"

	"golang.org/x/time/rate"
)

const (
	// readRate is the rate at which the output of a program is read, in bytes per second, after a burst of one message of the greatest length. It
	// bounds the cost of an endless flow of messages.
	readRate = 1 << 20
	// lineCost is what each line takes from the allowance in addition to its bytes: decoding and handling a message takes some 400 µs however short
	// it is, so with readRate alone short messages could keep a processor busy. [logFilter] removes the most frequent ones first.
	lineCost = 256
)

// allowance is how much more one program may write. It is used by one goroutine.
type allowance struct{ limiter *rate.Limiter }

func newAllowance() allowance { return allowance{rate.NewLimiter(readRate, maxMessage)} }

// take waits until piece may be passed on. It returns the error of ctx.
func (a allowance) take(ctx context.Context, piece []byte) error {
	cost := len(piece) + lineCost*bytes.Count(piece, []byte{'\n'})
	return a.limiter.WaitN(ctx, min(cost, maxMessage)) //nolint:wrapcheck // the end of the connection
}
