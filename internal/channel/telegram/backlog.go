package telegram

import (
	"fmt"
	"time"
)

const (
	// backlogSize is how many updates, from the oldest unfinished one on, count as a backlog. Telegram returns [batch] updates from there and none
	// after them, for all chats, until the oldest is settled.
	backlogSize = batch / 2
	// backlogTime is how long the oldest update may continue its downloads while there is a backlog.
	backlogTime = 5 * time.Second
)

// errBacklog wraps errCallTime because it ends downloads in the same way.
var errBacklog = fmt.Errorf("other chats wait for it: %w", errCallTime)

// boundOldest limits the downloads of the oldest unfinished update to backlogTime while there is a backlog. The update is then settled without its
// file, and its sender receives a note. The mutex is held.
func (in *intake) boundOldest() {
	if len(in.order) < backlogSize {
		return
	}
	oldest := in.pending[in.order[0]]
	if oldest == nil || oldest.endDownloads == nil || oldest.deadline != nil {
		return
	}
	oldest.deadline = time.AfterFunc(backlogTime, func() { oldest.endDownloads(errBacklog) })
}
