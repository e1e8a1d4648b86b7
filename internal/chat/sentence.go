package chat

import (
	"context"
	"errors"
)

// SentenceOf is what a person is shown of an error: the sentence of an [Error], never its cause.
func SentenceOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within a second"
	}
	return "internal error"
}
