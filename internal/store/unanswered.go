package store

import (
	"context"
	"errors"

	"laneway/internal/chat"
)

// Unanswered reports whether an error of an operation leaves open whether it was committed. Every operation may be repeated as a whole.
func Unanswered(err error) bool {
	return errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
