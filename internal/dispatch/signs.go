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

// typingEvery is below the five seconds after which Telegram's sign goes out.
const typingEvery = 4 * time.Second

// queuedAfter is how long a message waits, beyond its debounce window, before its person is shown that it does.
const queuedAfter = time.Second

// signs shows people on a channel what happens to their message before its answer: that it waits, that an answer is being made, its text so far.
type signs struct{ *parts }

// typing shows that an answer is being made until the returned function is called.
func (sg *signs) typing(ctx context.Context, to chat.Target) (stop func()) {
	ty, ok := sg.channels[to.Channel].(channel.Typer)
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

func (sg *signs) preview(to chat.Target, runID string, p channel.Preview) {
	if s, ok := sg.channels[to.Channel].(channel.Streamer); ok {
		s.Update(to, runID, p)
	}
}

// endPreview ends the preview of a run; replies are what is sent at its end.
func (sg *signs) endPreview(to chat.Target, runID string, replies []store.Outgoing) {
	s, ok := sg.channels[to.Channel].(channel.Streamer)
	if !ok {
		return
	}
	s.Finish(to, runID, slices.ContainsFunc(replies, func(o store.Outgoing) bool {
		return o.Target == to && o.RunID == runID && o.Kind == store.KindReply && o.File == nil
	}))
}

// endPreviews ends the previews of every channel for good. It returns when no call of them is under way, or when ctx has ended.
func (sg *signs) endPreviews(ctx context.Context) {
	var ends sync.WaitGroup
	for _, c := range sg.channels {
		if s, ok := c.(channel.Streamer); ok {
			ends.Go(func() { s.EndPreviews(ctx) })
		}
	}
	ends.Wait()
}

// showQueued shows a person that a message of theirs waits, unless it has begun or ended before that is worth showing. It returns at once.
func (sg *signs) showQueued(ctx context.Context, lead store.Waiting, hold time.Duration) {
	to := lead.Content.Options.ReplyTo
	q, ok := sg.channels[to.Channel].(channel.Queuer)
	if !ok || lead.Content.System {
		return
	}
	sg.background.Go(func() {
		if retry.Sleep(context.WithoutCancel(ctx), queuedAfter+hold) != nil {
			return
		}
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), queuedAfter)
		defer cancel()
		row, err := sg.store.MessageByID(look, lead.MessageID)
		if err != nil || row.State == store.StateRunning || row.State == store.StateDone {
			return
		}
		sign, end := context.WithTimeout(context.WithoutCancel(ctx), signTimeout)
		defer end()
		q.Queued(sign, to, lead.MessageID)
	})
}
