package store

import (
	"context"
	"errors"

	"laneway/internal/chat"
)

// CommitUnknown reports whether an error leaves open whether the operation was committed. Every operation may be repeated as a whole.
func CommitUnknown(err error) bool {
	return errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
