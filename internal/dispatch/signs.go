package dispatch

import (
	"cmp"
	"context"
	"fmt"
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

// queuedAfter is how long a message waits, beyond its debounce window, before its person is shown
// that it waits.
const queuedAfter = time.Second

// signs shows people on a channel the state of their message before its answer: that it waits, that
// an answer is being made, and its text so far.
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

// closePreview ends the updates of a turn's preview, and tells the reply that replaces it, if there
// is one, which message shows it.
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

// recordPreview returns how a channel makes durable which message shows the answer of a turn. If it
// fails, a kill of this process leaves that message as it is.
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

// endPreviews permanently ends the previews of every channel. It returns when no call for them is
// active, or when ctx is done.
func (sg *signs) endPreviews(ctx context.Context) {
	var ends sync.WaitGroup
	for _, c := range sg.channels {
		if s, ok := c.(channel.Streamer); ok {
			ends.Go(func() { s.EndPreviews(ctx) })
		}
	}
	ends.Wait()
}

// showQueued shows a person that their message waits, unless it starts or ends before that is
// useful. It does not block.
func (sg *signs) showQueued(ctx context.Context, m *chat.Message, hold time.Duration) {
	to, id := m.Content.Options.ReplyTo, m.ID
	q, ok := sg.channels[to.Channel].(channel.Queuer)
	if !ok || m.Content.System {
		return
	}
	sg.background.Go(func() {
		if retry.Sleep(context.WithoutCancel(ctx), queuedAfter+hold) != nil {
			return
		}
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), queuedAfter)
		defer cancel()
		row, err := sg.store.MessageByID(look, id)
		if err != nil || row.State == store.StateRunning || row.State == store.StateDone {
			return
		}
		sign, end := context.WithTimeout(context.WithoutCancel(ctx), signTimeout)
		defer end()
		q.Queued(sign, to, id)
	})
}

// stepBetween is the step of an agent that has the results of all its calls and has not written
// since.
const stepBetween = "working"

// steps are the tool calls of one turn, as shown to the person who waits for its answer. The zero
// value is a turn without calls.
type steps struct {
	open  []step // calls without a result, in the order in which they started
	since time.Time
	count int
	idle  bool // the latest event was a result, and no call is open
}

type step struct {
	id, name string
	since    time.Time
}

// take records a step of a call.
func (s *steps) take(e *chat.ToolEvent) {
	switch e.Phase {
	case "start":
		s.count++
		s.open = append(s.open, step{e.CallID, e.Name, time.Now()})
	case "update":
		if i := slices.IndexFunc(s.open, func(o step) bool { return o.id == e.CallID }); i >= 0 {
			s.open[i].name = e.Name
		}
	case "result":
		s.open = slices.DeleteFunc(s.open, func(o step) bool { return o.id == e.CallID })
		s.since, s.idle = time.Now(), true
	}
}

// write records that the answer has new text.
func (s *steps) write() { s.idle = false }

// preview returns the state of an answer with this text.
func (s *steps) preview(text string) channel.Preview {
	p := channel.Preview{Text: text, Steps: s.count}
	switch {
	case len(s.open) > 0:
		last := s.open[len(s.open)-1]
		p.Step, p.Since = last.name, last.since
	case s.idle:
		p.Step, p.Since = stepBetween, s.since
	}
	return p
}

// burst is how long drops are collected before the person receives one notice.
const burst = 2 * time.Second

// noticeLife is how long a notice may wait before it expires.
const noticeLife = 24 * time.Hour

// newNotice returns an outgoing row about a message of a session, without its text.
func newNotice(key chat.SessionKey, principal string, to chat.Target) *store.Outgoing {
	return &store.Outgoing{ID: newID(), Session: key, Principal: principal, Target: to, Kind: store.KindNotice, Count: 1}
}

// notice returns the outbox row that informs a person of a channel how their message ended; nil
// when an event suffices.
func notice(r store.Waiting, outcome chat.Outcome, reason, text string) *store.Outgoing {
	to := r.Content.Options.ReplyTo
	if outcome == chat.OutcomeDropped {
		to = droppedTo(r.Session, r.Channel, to)
	}
	if to.IsZero() {
		return nil
	}
	switch outcome {
	case chat.OutcomeDropped, chat.OutcomeFailed, chat.OutcomeInterrupted, chat.OutcomeDead:
	default:
		return nil
	}
	if text == "" {
		text = sentence(outcome, reason)
	}
	n := newNotice(r.Session, r.Principal, to)
	n.Text = text
	if outcome == chat.OutcomeDropped {
		coalesceDrops(n, 0)
	}
	return n
}

// dropNotice returns the notice for the case that accepting m removes another message from the
// queue.
func dropNotice(m chat.Message, limit int) *store.Outgoing {
	to := droppedTo(m.Session, m.Channel, m.Content.Options.ReplyTo)
	if to.IsZero() {
		return nil
	}
	n := newNotice(m.Session, m.Principal, to)
	coalesceDrops(n, limit)
	return n
}

// droppedTo returns the address of the notice of a drop: the address of the answer, or the
// transcript for web users, who read the history.
func droppedTo(key chat.SessionKey, from string, to chat.Target) chat.Target {
	if to.IsZero() && from == channel.Web {
		return channel.WebTarget(key)
	}
	return to
}

func coalesceDrops(n *store.Outgoing, limit int) {
	why := "because too many were waiting"
	if limit > 0 {
		why = fmt.Sprintf("because more than %d were waiting", limit)
	}
	n.Text = "1 message was dropped " + why + "."
	n.TextMany = "%d messages were dropped " + why + "."
	n.Coalesce = "dropped:" + n.Session.String()
	n.Delay = burst
}

// refusal returns the error for a message that a full queue refused, and the notice for a person of
// a channel: one per burst, with the number of messages. A later refusal has a new notice. Without
// a notice, the sender reads the error.
func refusal(m chat.Message, limit int) (notices []store.Outgoing, err error) {
	why := fmt.Sprintf("%d messages wait here already", limit)
	if limit == 1 {
		why = "1 message waits here already"
	}
	full := *chat.ErrQueueFull
	full.Message = why + "; send it again after the next answer, or stop the running turn"
	err = full.With("cap", limit)
	to := m.Content.Options.ReplyTo
	if to.IsZero() {
		return nil, err
	}
	n := newNotice(m.Session, m.Principal, to)
	n.Text = "This was not taken: " + why + "; send it again after the next answer, or stop the running turn."
	n.TextMany = "%d messages were not taken: " + why + "; send them again after the next answer, or stop the running turn."
	n.Coalesce, n.Delay, n.ExpiresAt = "refused:"+m.Session.String(), burst, time.Now().Add(noticeLife)
	return []store.Outgoing{*n}, err
}
