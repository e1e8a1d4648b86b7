package outbox

import (
	"context"
	"errors"
	"sync"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/store"
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

// rowOf is a row under the incarnation that claimed it: the next incarnation may claim the row while the attempt of the former one still ends.
type rowOf struct{ node, id string }

// claimedRows are the rows that this process has claimed and whose result is not recorded, so that a claim finds those that it does not know.
type claimedRows struct {
	mu    sync.Mutex
	ended map[rowOf]bool // true = the attempt has ended
}

// of returns the rows of an incarnation that are being sent, and those whose attempt ended without a recorded result.
func (c *claimedRows) of(node string) (sending, unrecorded []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for row, ended := range c.ended {
		switch {
		case row.node != node && ended: // the store finds it by the end of its node
			delete(c.ended, row)
		case row.node != node:
		case ended:
			unrecorded = append(unrecorded, row.id)
		default:
			sending = append(sending, row.id)
		}
	}
	return sending, unrecorded
}

// begin records the result of a claim: the unrecorded rows are due again, and the claimed ones are being sent.
func (c *claimedRows) begin(p store.ClaimOutgoingParams, rows []store.Outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range p.Unrecorded {
		delete(c.ended, rowOf{p.Node, id})
	}
	if c.ended == nil {
		c.ended = map[rowOf]bool{}
	}
	for i := range rows {
		c.ended[rowOf{p.Node, rows[i].ID}] = false
	}
}

// end records the end of an attempt.
func (c *claimedRows) end(node, id string, recorded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if recorded {
		delete(c.ended, rowOf{node, id})
	} else {
		c.ended[rowOf{node, id}] = true
	}
}
