package telegram

import (
	"context"
	"slices"
	"time"

	"laneway/internal/retry"
)

// urgentPatience is how long an urgent command waits for the earlier updates of its chat. Updates that are settled within it keep their order, so
// that a /stop stops the message that was sent right before it. Slow ones (a download, a store that cannot be reached) are overtaken.
const urgentPatience = 500 * time.Millisecond

// overtake handles an urgent command outside of the queue of its chat, once it has waited for urgentPatience. The goroutine that removes the
// task from the queue settles it: this one, or that of the queue. There are never more of these goroutines than unfinished updates.
func (in *intake) overtake(ctx context.Context, q *chatQueue, t *task) {
	if retry.Sleep(ctx, urgentPatience) != nil {
		return // the queue leaves it unconfirmed
	}
	in.mu.Lock()
	at := slices.Index(q.tasks, t)
	if at >= 0 {
		q.tasks = slices.Delete(q.tasks, at, at+1)
	}
	in.mu.Unlock()
	if at >= 0 {
		in.settle(ctx, []*task{t})
	}
}
