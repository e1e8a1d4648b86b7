package telegram

import (
	"context"
	"slices"
	"time"

	"laneway/internal/retry"
)

// urgentPatience is how long an urgent command keeps its place behind what its chat has in hand. What comes quickly is handled first, so that a
// stop stops the message that was sent right before it; what does not (a download, a store that is away) is overtaken.
const urgentPatience = 500 * time.Millisecond

// urgent reports whether an update is nothing but an urgent command, by the table's word for it. Forwarded text has no authority, and a
// command under a file waits for the file.
func (c *Channel) urgent(u update) bool {
	if u.message == nil || u.forwarded {
		return false
	}
	if _, has := fileOf(u.message); has {
		return false
	}
	word, _, ok := c.command(textOf(u.message))
	return ok && c.words[word]
}

// overtake handles an urgent command that waits in its chat's line beside that line, once it has waited for urgentPatience. Whoever takes the job
// out of the line settles it: here, or the line itself. There are never more of these than updates in work.
func (in *intake) overtake(ctx context.Context, l *line, j *job) {
	if retry.Sleep(ctx, urgentPatience) != nil {
		return // the line leaves it unconfirmed
	}
	in.mu.Lock()
	at := slices.Index(l.jobs, j)
	if at >= 0 {
		l.jobs = slices.Delete(l.jobs, at, at+1)
	}
	in.mu.Unlock()
	if at >= 0 {
		in.settle(ctx, []*job{j})
	}
}
