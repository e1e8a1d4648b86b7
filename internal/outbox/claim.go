package outbox

import (
	"context"
	"errors"
	"sync"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// reasonStale is the reason of an attempt whose claim had ended before a request.
const reasonStale = "stale"

var (
	errStale   = errors.New("the claim of this process has ended")
	errClosing = errors.New("the process ends, the next one sends the message")
)

// claim is the claim of one attempt, see [channel.Claim].
type claim struct {
	s        *Sender
	node, id string

	mu       sync.Mutex
	progress string // what has arrived, "" = nothing new
}

// Check implements [channel.Claim]: the incarnation that claimed the row still holds its lease, and the process is not shutting down.
func (c *claim) Check() error {
	select {
	case <-c.s.closing:
		return stale(errClosing)
	default:
	}
	if node, err := c.s.node.Alive(); err != nil || node != c.node {
		return stale(errStale)
	}
	return nil
}

// Record implements [channel.Claim]. Progress that cannot be written now is written with the result of the attempt.
func (c *claim) Record(ctx context.Context, progress string) error {
	c.mu.Lock()
	c.progress = progress
	c.mu.Unlock()
	err := c.s.store.RecordProgress(ctx, c.node, c.id, progress)
	switch {
	case errors.Is(err, chat.ErrFenced):
		return stale(errStale)
	case err != nil:
		c.s.log.WarnContext(ctx, "a part of a message was not recorded; after a crash it is sent again", "outbox_id", c.id, "err", err)
	}
	return nil
}

func (c *claim) arrived() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

func stale(cause error) error {
	return &channel.SendError{Reason: reasonStale, Uncounted: true, Cause: cause}
}
