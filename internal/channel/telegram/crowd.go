package telegram

import (
	"fmt"
	"time"
)

const (
	// crowd is how many updates from the oldest unfinished one on are many. Telegram hands out a hundred from there and nothing behind them, for
	// all chats, until the oldest is settled.
	crowd = batch / 2
	// hurryTime is how long the oldest may go on downloading then.
	hurryTime = 5 * time.Second
)

var errCrowd = fmt.Errorf("other chats wait for it: %w", errCallTime)

// crowded gives the oldest unfinished update a short deadline for its downloads when there are many behind it. It is settled without its file
// then, and the person is told. The mutex is held.
func (in *intake) crowded() {
	if len(in.order) < crowd {
		return
	}
	oldest := in.pending[in.order[0]]
	if oldest == nil || oldest.hurry == nil || oldest.soon != nil {
		return
	}
	oldest.soon = time.AfterFunc(hurryTime, func() { oldest.hurry(errCrowd) })
}
