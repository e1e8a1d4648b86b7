package telegram

import (
	"context"
	"errors"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"
	"time"

	"laneway/internal/chat"
)

const (
	// previewEvery is how often an answer that grows is shown again.
	previewEvery = time.Second
	// previewLife is how long the preview of a run that ended is kept for its final text.
	previewLife = 10 * time.Minute
	maxPreviews = 1000
	// previewBytes is how much of a long answer is rendered each time to show one message of it: enough for its 4096 units with their markup.
	previewBytes = 32 << 10
	// draftless is for how long no draft is tried in a chat that refused one.
	draftless = time.Hour
)

// previews shows answers while they grow. Each has a goroutine while its turn runs; it ends with Finish, with the final text, or with Run.
type previews struct {
	c   *Channel
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // the life of Run; previews belong to no call
	wg  sync.WaitGroup
	all map[string]*preview
	// refused are the chats that took no draft lately.
	refused *once
}

// preview is one answer. All but shown and lost is guarded by the mutex of previews; the loop alone sends, and it alone changes to, shown and lost.
type preview struct {
	to      address
	text    string
	message int    // that shows it; 0 = none
	shown   string // HTML of what is shown, "" = nothing
	// lost: nobody knows whether Telegram has taken the first message. It may stand in the chat, so no second one is posted beside it.
	lost    bool
	draft   int64
	touched time.Time
	wake    chan struct{} // capacity 1: look again
	stop    chan struct{} // closed by who ends it
	ended   chan struct{} // closed by the loop
}

func newPreviews(c *Channel) *previews {
	return &previews{c: c, all: map[string]*preview{}, refused: newOnce(draftless)}
}

func (p *previews) open(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
}

// close waits for the loops; the context of open is over by then.
func (p *previews) close() {
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// Update shows the text so far, some time within the next second. It never blocks, and starts the goroutine of the answer when there is
// none.
func (c *Channel) Update(target chat.Target, runID, text string) {
	to, err := c.target(target)
	if err == nil {
		c.previews.update(to, runID, text)
	}
}

// Finish ends the preview of a run. What is shown stays until the final text takes its place.
func (c *Channel) Finish(_ chat.Target, runID string) { c.previews.finish(runID) }

func (p *previews) update(to address, runID, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	v := p.all[runID]
	if v == nil {
		p.forget()
		v = &preview{to: to, draft: draftID(runID)}
		p.all[runID] = v
	}
	v.text, v.touched = text, time.Now()
	if v.stop == nil {
		p.start(v)
	}
	wake(v.wake)
}

// start begins the loop of a preview, after an earlier one of the same run has ended. The mutex is held.
func (p *previews) start(v *preview) {
	before := v.ended
	v.wake, v.stop, v.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	ctx, l, ended := p.ctx, loop{preview: v, wake: v.wake, stop: v.stop}, v.ended
	p.wg.Go(func() {
		defer close(ended)
		if before != nil {
			<-before
		}
		p.show(ctx, l)
	})
}

// loop is one life of a preview.
type loop struct {
	*preview
	wake, stop chan struct{}
}

// forget drops what nobody will ask for. The mutex is held.
func (p *previews) forget() {
	for id, v := range p.all {
		if v.stop == nil && (time.Since(v.touched) > previewLife || len(p.all) >= maxPreviews) {
			delete(p.all, id)
		}
	}
}

// draftID is a number for the drafts of a run, never 0.
func draftID(runID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID))
	return int64(h.Sum32()>>1) + 1
}

func (p *previews) finish(runID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.all[runID]; v != nil && v.stop != nil {
		close(v.stop)
		v.stop = nil
		v.touched = time.Now()
	}
}

// take ends the preview of a run for its final text and gives the message that is to become it, 0 = none. It waits for a call that is on
// its way, so that nothing old can arrive after the final text.
func (p *previews) take(ctx context.Context, to address, runID string) int {
	p.finish(runID)
	p.mu.Lock()
	v := p.all[runID]
	p.mu.Unlock()
	if v == nil {
		return 0
	}
	select {
	case <-v.ended:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, runID)
	if v.to.chat != to.chat {
		return 0
	}
	return v.message
}

// giveBack keeps the message of a preview for the next attempt.
func (p *previews) giveBack(to address, runID string, message int) {
	if message == 0 {
		return
	}
	ended := make(chan struct{})
	close(ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[runID] = &preview{to: to, message: message, draft: draftID(runID), touched: time.Now(), ended: ended}
}

// show is the loop of one preview.
func (p *previews) show(ctx context.Context, v loop) {
	shown := ""
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.stop:
			return
		case <-t.C:
		}
		p.mu.Lock()
		text := v.text
		p.mu.Unlock()
		if text != shown && p.step(ctx, v.preview, text) {
			shown = text
		}
		t.Reset(previewEvery)
		if !p.changed(ctx, v, shown) {
			return
		}
	}
}

// changed waits until there is something new to show; false at the end.
func (p *previews) changed(ctx context.Context, v loop, shown string) bool {
	for {
		p.mu.Lock()
		fresh := v.text != shown
		p.mu.Unlock()
		if fresh {
			return true
		}
		select {
		case <-v.wake:
		case <-v.stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// step shows one state of the text; false = not now. What Telegram would show as it is is not sent again.
func (p *previews) step(ctx context.Context, v *preview, text string) bool {
	p.mu.Lock()
	to, message := v.to, v.message
	p.mu.Unlock()
	if message == 0 && !to.group() && p.takesDrafts(to) {
		part, ok := draftOf(text)
		if !ok || part.html == v.shown {
			return true
		}
		shown := p.showDraft(ctx, v, part)
		if shown {
			v.shown = part.html
		}
		if shown || p.takesDrafts(to) {
			return shown
		}
		v.shown = ""
	}
	chunks := render(chat.Cut(text, previewBytes)).chunks(maxUnits)
	if len(chunks) == 0 || chunks[0].html == v.shown || v.lost {
		return true
	}
	if !p.c.limits.spare(to.chat, true) {
		return false
	}
	id, err := p.c.post(ctx, outgoing{to: to, chunk: chunks[0], edit: message}, false)
	if err != nil {
		return p.notShown(ctx, v, err)
	}
	p.mu.Lock()
	v.message = id
	p.mu.Unlock()
	v.shown = chunks[0].html
	return true
}

// draftOf is what a draft shows of a text: its end, because that is what is new. The text before it is left out in steps, so that the
// beginning of what is shown does not move each second; a block of code that it began is opened again.
func draftOf(text string) (chunk, bool) {
	if from := (len(text)/previewBytes - 1) * previewBytes; from > 0 {
		from = len(chat.Cut(text, from))
		fences := strings.Count("\n"+text[:from], "\n```")
		text = text[from:]
		if fences%2 == 1 {
			text = "```\n" + text
		}
	}
	chunks := render(text).chunks(maxUnits)
	if len(chunks) == 0 {
		return chunk{}, false
	}
	return chunks[len(chunks)-1], true
}

// takesDrafts reports whether a draft is worth a call.
func (p *previews) takesDrafts(to address) bool {
	return p.c.drafts.Load() && p.refused.again(number(to.chat)) == ""
}

// notShown takes notice of a state that Telegram did not take, and reports whether that is settled: the next state may do better, this one
// would be refused again.
func (p *previews) notShown(ctx context.Context, v *preview, err error) bool {
	p.c.lost(ctx, v.to, err)
	e, ok := errors.AsType[*apiError](err)
	switch {
	case !ok:
		return false
	case p.leftTopic(v, e):
		return false
	case v.message == 0 && e.unknown:
		v.lost = true
		return true
	default:
		return e.reason == reasonBadRequest
	}
}

// leftTopic goes on without a topic that is gone, as Send does.
func (p *previews) leftTopic(v *preview, e *apiError) bool {
	if v.to.thread == 0 || !e.noTopic() {
		return false
	}
	p.mu.Lock()
	v.to.thread = 0
	p.mu.Unlock()
	return true
}

// noTopic reports whether a call was refused because its topic does not take it.
func (e *apiError) noTopic() bool {
	return e.says("thread not found") || e.says("topic_deleted") || e.says("topic_closed")
}

// lost takes notice of a state that was not shown. The final text comes through the outbox and does not depend on it.
func (c *Channel) lost(ctx context.Context, to address, err error) {
	if e, ok := errors.AsType[*apiError](err); ok {
		c.heed(ctx, to, e)
	}
	if ctx.Err() == nil {
		c.log.DebugContext(ctx, "a state of an answer was not shown", "reason", reasonFor(err))
	}
}

// showDraft shows a state as a draft. An API without drafts is remembered, and for a while a chat that refuses one.
func (p *previews) showDraft(ctx context.Context, v *preview, part chunk) bool {
	if !p.c.limits.spare(v.to.chat, false) {
		return false
	}
	params := place(v.to)
	params["draft_id"], params["text"], params["parse_mode"] = number(v.draft), part.html, "HTML"
	err := p.c.api.call(ctx, callTime, "sendMessageDraft", params, nil)
	if err == nil {
		return true
	}
	p.c.lost(ctx, v.to, err)
	e, ok := errors.AsType[*apiError](err)
	switch {
	case !ok || p.leftTopic(v, e):
	case e.code == http.StatusNotFound:
		p.c.drafts.Store(false)
	case e.code == http.StatusBadRequest:
		p.refused.said(number(v.to.chat), "refused")
	}
	return false
}
