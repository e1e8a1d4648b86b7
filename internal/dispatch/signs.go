package dispatch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/retry"
	"laneway/internal/store"
)

// signTimeout limits one call that shows a person that their message waits.
const signTimeout = 60 * time.Second

// typingEvery is below the five seconds for which Telegram shows the sign.
const typingEvery = 4 * time.Second

// queuedAfter is how long a message waits, beyond its debounce window, before its person is shown that it waits.
const queuedAfter = time.Second

// signs shows people on a channel the state of their message before its answer: that it waits, that an answer is being made, and its text
// so far.
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

// closePreview ends the updates of a turn's preview, and tells the reply that replaces it, if there is one, which message shows it.
func (sg *signs) closePreview(ctx context.Context, t *turn, replies []store.Outgoing) {
	to := t.rows[len(t.rows)-1].Content.Options.ReplyTo
	s, ok := sg.channels[to.Channel].(channel.Streamer)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), previewTime)
	defer cancel()
	shown, own := s.Close(ctx, to, t.run.RunID)
	i := slices.IndexFunc(replies, replaces(to, t.run.RunID))
	if i < 0 {
		return
	}
	replies[i].Progress = cmp.Or(shown, t.started.Preview)
	if own {
		replies[i].First = t.claim.Node
	}
}

// replaces reports whether a reply replaces the preview of a run.
func replaces(to chat.Target, runID string) func(store.Outgoing) bool {
	return func(o store.Outgoing) bool {
		return o.Target == to && o.RunID == runID && o.Kind == store.KindReply && o.File == nil
	}
}

// recordPreview returns how a channel makes durable which message shows the answer of a turn. If it fails, a kill of this process leaves that message as it is.
func (sg *signs) recordPreview(t *turn) func(ctx context.Context, shown string) {
	claim, runID := t.claim, t.run.RunID
	return func(ctx context.Context, shown string) {
		err := sg.node.WhileAlive(ctx, func(ctx context.Context) error { return sg.store.RecordPreview(ctx, claim, runID, shown) })
		if err != nil && ctx.Err() == nil {
			sg.log.DebugContext(ctx, "the message that shows an unfinished answer was not recorded", "run_id", runID, "err", err)
		}
	}
}

// endPreview ends the preview of a run; replies are the messages that are sent at its end.
func (sg *signs) endPreview(to chat.Target, runID string, replies []store.Outgoing) {
	if s, ok := sg.channels[to.Channel].(channel.Streamer); ok {
		s.Finish(to, runID, slices.ContainsFunc(replies, replaces(to, runID)))
	}
}

// endPreviews permanently ends the previews of every channel. It returns when no call for them is active, or when ctx is done.
func (sg *signs) endPreviews(ctx context.Context) {
	var ends sync.WaitGroup
	for _, c := range sg.channels {
		if s, ok := c.(channel.Streamer); ok {
			ends.Go(func() { s.EndPreviews(ctx) })
		}
	}
	ends.Wait()
}

// showQueued shows a person that their message waits, unless it starts or ends before that is useful. It does not block.
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
