package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/outbox"
	"laneway/internal/store"
)

// signTimeout bounds one call that shows a person that their message waits.
const signTimeout = 60 * time.Second

// flushTimeout is how long the end of the process waits for outgoing messages that are due.
const flushTimeout = time.Second

// newOutbox makes the sender of the outbox.
func (d *Dispatcher) newOutbox() *outbox.Sender {
	return outbox.New(outbox.Config{Channels: d.channels, Gone: d.addressGone}, d.store, outboxNode{d}, d.obs, d.log)
}

// outboxNode is the incarnation of this process as the sender of the outbox sees it.
type outboxNode struct{ d *Dispatcher }

// Alive is the id of the current incarnation.
func (n outboxNode) Alive() (string, error) {
	me, err := n.d.alive()
	if err != nil {
		return "", err
	}
	return me.id, nil
}

// Final makes a write that must not be lost.
func (n outboxNode) Final(ctx context.Context, what string, write func(context.Context) error) error {
	return n.d.final(ctx, what, write)
}

// flushOutbox gives the outbox a moment at the end: what is due and can be sent at once goes out before the channels stop.
func (d *Dispatcher) flushOutbox(ctx context.Context) {
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	d.outbox.Flush(flush)
}

func (d *Dispatcher) channelNames() []string {
	names := make([]string, 0, len(d.channels))
	for name := range d.channels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// typingEvery is below the five seconds after which Telegram's sign goes out.
const typingEvery = 4 * time.Second

// typing shows that an answer is being made until the returned function is called.
func (d *Dispatcher) typing(ctx context.Context, to chat.Target) (stop func()) {
	ty, ok := d.channels[to.Channel].(channel.Typer)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(typingEvery)
		defer t.Stop()
		for {
			ty.Typing(ctx, to)
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (d *Dispatcher) preview(to chat.Target, runID, text string) {
	if s, ok := d.channels[to.Channel].(channel.Streamer); ok {
		s.Update(to, runID, text)
	}
}

func (d *Dispatcher) endPreview(to chat.Target, runID string) {
	if s, ok := d.channels[to.Channel].(channel.Streamer); ok {
		s.Finish(to, runID)
	}
}

// queuedAfter is how long a message waits, beyond its debounce window, before its person is shown that it does.
const queuedAfter = time.Second

// showQueued shows a person that a message of theirs waits, unless it has begun or ended before that is worth showing. It returns at once.
func (d *Dispatcher) showQueued(ctx context.Context, lead store.Waiting, hold time.Duration) {
	to := lead.Content.Options.ReplyTo
	q, ok := d.channels[to.Channel].(channel.Queuer)
	if !ok || lead.Content.System {
		return
	}
	d.small.Go(func() {
		if !d.pause(context.WithoutCancel(ctx), queuedAfter+hold) {
			return
		}
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), queuedAfter)
		defer cancel()
		row, err := d.store.MessageByID(look, lead.MessageID)
		if err != nil || row.State == store.StateRunning || row.State == store.StateDone {
			return
		}
		sign, end := context.WithTimeout(context.WithoutCancel(ctx), signTimeout)
		defer end()
		q.Queued(sign, to, lead.MessageID)
	})
}
