package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// signTimeout bounds one call that shows a person that their message waits.
const signTimeout = 60 * time.Second

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
		if retry.Sleep(context.WithoutCancel(ctx), queuedAfter+hold) != nil {
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
