package telegram

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// noteTime bounds the delivery of one note.
const noteTime = 5 * time.Second

// notes sends the channel's own messages to people: refusals, hints, pairing codes. A note belongs to no conversation, is not a row of the
// outbox, and is not retried.
type notes struct {
	poster *poster
	log    *slog.Logger
	recent *ttlMap // notes by place and text

	wg sync.WaitGroup // of notes that are sent concurrently with the handling of updates
}

// send sends a note; replyTo is the message that it answers, 0 if none. It reports whether Telegram accepted it.
func (n *notes) send(ctx context.Context, to address, text string, replyTo int) bool {
	return n.deliver(ctx, outgoing{to: to, replyTo: replyTo}, text)
}

// sendWith is send with a keyboard below the note; "" if none.
func (n *notes) sendWith(ctx context.Context, to address, text, keyboard string) {
	n.deliver(ctx, outgoing{to: to, markup: keyboard}, text)
}

// sendOnce sends the same text at most once a minute to one place. It returns at once: a note that waits for the limits of its chat must not delay
// the updates after it, because Telegram returns at most a hundred unsettled updates of all chats. close waits for its end.
func (n *notes) sendOnce(ctx context.Context, to address, text string) {
	if n.recent.add(number(to.chat) + "/" + number(int64(to.thread)) + "/" + text) {
		n.wg.Go(func() { n.send(ctx, to, text, 0) })
	}
}

// close waits for the notes of sendOnce. The caller has ended their context, and no further update is handled.
func (n *notes) close() { n.wg.Wait() }

func (n *notes) deliver(ctx context.Context, o outgoing, text string) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, noteTime, errCallTime)
	defer cancel()
	o.chunk = plain(text).chunks(maxUnits)[0]
	_, err := n.poster.deliver(ctx, o)
	if err != nil {
		n.log.WarnContext(ctx, "a note to a person was not delivered", "reason", reasonFor(err))
	}
	return err == nil
}
