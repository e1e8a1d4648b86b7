package telegram

import (
	"context"
	"errors"
	"hash/fnv"
	"net/http"
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
)

// previews shows answers while they grow. Each has a goroutine while its turn runs; it ends with Finish, with the final text, or with Run.
type previews struct {
	c   *Channel
	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // the life of Run; previews belong to no call
	wg  sync.WaitGroup
	all map[string]*preview
}

// preview is one answer. text, message and draft are guarded by the mutex of previews; the loop alone sends.
type preview struct {
	to      address
	text    string
	message int // that shows it; 0 = none
	draft   int64
	touched time.Time
	wake    chan struct{} // capacity 1: look again
	stop    chan struct{} // closed by who ends it
	ended   chan struct{} // closed by the loop
}

func newPreviews(c *Channel) *previews { return &previews{c: c, all: map[string]*preview{}} }

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

// step shows one state of the text; false = not now.
func (p *previews) step(ctx context.Context, v *preview, text string) bool {
	chunks := render(text).chunks(maxUnits)
	if len(chunks) == 0 {
		return true
	}
	p.mu.Lock()
	message := v.message
	p.mu.Unlock()
	if message == 0 && !v.to.group() && p.c.drafts.Load() {
		shown := p.c.showDraft(ctx, v.to, v.draft, chunks[len(chunks)-1])
		if shown || p.c.drafts.Load() {
			return shown
		}
	}
	if !p.c.limits.spare(v.to.chat, true) {
		return false
	}
	id, err := p.c.post(ctx, outgoing{to: v.to, chunk: chunks[0], edit: message}, false)
	if err != nil {
		p.c.lost(ctx, v.to, err)
		return false
	}
	p.mu.Lock()
	v.message = id
	p.mu.Unlock()
	return true
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

// showDraft shows a state as a draft: the end of a long text, because that is what is new. An API without drafts is remembered.
func (c *Channel) showDraft(ctx context.Context, to address, draft int64, part chunk) bool {
	if !c.limits.spare(to.chat, false) {
		return false
	}
	p := place(to)
	p["draft_id"], p["text"], p["parse_mode"] = number(draft), part.html, "HTML"
	err := c.api.call(ctx, callTime, "sendMessageDraft", p, nil)
	if err == nil {
		return true
	}
	c.lost(ctx, to, err)
	if e, ok := errors.AsType[*apiError](err); ok && (e.code == http.StatusNotFound || e.code == http.StatusBadRequest) {
		c.drafts.Store(false)
	}
	return false
}
