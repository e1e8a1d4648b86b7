package telegram

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
)

const (
	// previewEvery is how often a preview is updated.
	previewEvery = time.Second
	// previewLife is how long the preview of a run that ended is kept for its final text; maxPreviews bounds their number.
	previewLife = 10 * time.Minute
	maxPreviews = 1000
	// draftless is how long no draft is tried in a chat that refused one.
	draftless = time.Hour
)

// previews shows answers while they are written. Each answer has a goroutine while its turn runs. The goroutine ends with finish, with the final
// text, or with the context of open; close waits for all of them. It is safe for concurrent use; the lock is not held during a call.
type previews struct {
	api    *client
	limits *limiter
	poster *poster
	signs  *signs
	alive  func() error // nil while this process may show something
	log    *slog.Logger

	noDrafts atomic.Bool // the API has no drafts
	refused  *ttlMap     // chats that refused a draft

	mu     sync.Mutex
	closed bool            // nothing is shown any more
	ctx    context.Context //nolint:containedctx // the life of Run; previews belong to no call
	wg     sync.WaitGroup
	all    map[string]*preview // by run id
}

// preview is one answer. The mutex of previews guards all fields except shown, line and unknown. Only the loop sends, and only the loop changes to, message,
// shown, line and unknown. After the loop has ended, [previews.tidy] takes its place.
type preview struct {
	to      address
	now     channel.Preview
	message int    // that shows it; 0 if none
	shown   string // HTML of what is shown, "" if nothing is
	line    bool   // what is shown has the line of a step
	// unknown is true when the first message may have arrived. No second one is posted, because both could be in the chat.
	unknown bool
	draft   int64
	touched time.Time
	wake    chan struct{} // capacity 1: look again
	stop    chan struct{} // closed by finish
	ended   chan struct{} // closed by the loop
}

func (p *previews) open(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx
}

// close waits for the loops. The caller has ended the context of open.
func (p *previews) close() {
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// update shows a state of an answer within the next second. It never blocks. It starts the goroutine of the answer if it does not run.
func (p *previews) update(to address, runID string, now channel.Preview) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	v := p.all[runID]
	if v == nil {
		p.forget()
		v = &preview{to: to, draft: draftID(runID)}
		if before, err := progressOf(now.Shown); err == nil { // else it is of another release
			v.message = before.Preview
		}
		p.all[runID] = v
	}
	v.now, v.touched = now, time.Now()
	if v.stop == nil {
		p.start(v)
	}
	wake(v.wake)
}

// start starts the loop of a preview. The loop first waits for the end of an earlier loop of the same run. The mutex is held.
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

// loop is one run of a preview's goroutine.
type loop struct {
	*preview
	wake, stop chan struct{}
}

// forget drops previews that ended long ago, and all that have ended when there are too many. The mutex is held.
func (p *previews) forget() {
	for id, v := range p.all {
		if v.stop == nil && (time.Since(v.touched) > previewLife || len(p.all) >= maxPreviews) {
			delete(p.all, id)
		}
	}
}

// draftID returns a number for the drafts of a run, never 0.
func draftID(runID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID))
	return int64(h.Sum32()>>1) + 1
}

// finish ends the preview of a run. A preview that no reply replaces loses the line of its step, and is deleted if it has nothing else. This works
// after endAll too: it changes no other message.
func (p *previews) finish(runID string, replaced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.all[runID]
	if v == nil {
		return
	}
	v.finish()
	if replaced || p.ctx == nil {
		return
	}
	before, ended, ctx := v.ended, make(chan struct{}), context.WithoutCancel(p.ctx)
	v.ended = ended
	p.wg.Go(func() {
		defer close(ended)
		<-before
		p.tidy(ctx, v)
	})
}

// finish ends the loop of a preview. The mutex is held.
func (v *preview) finish() {
	if v.stop != nil {
		close(v.stop)
		v.stop = nil
		v.touched = time.Now()
	}
}

// closeOne ends the loop of a preview and returns what shows it, see [channel.Streamer].
func (p *previews) closeOne(ctx context.Context, runID string) (shown string, own bool) {
	p.mu.Lock()
	v := p.all[runID]
	if v == nil {
		p.mu.Unlock()
		return "", false
	}
	v.finish()
	ended := v.ended
	p.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.message == 0 {
		return "", true
	}
	return jsonOf(progress{Preview: v.message}), true
}

// endAll ends every preview permanently, and waits for running calls, at most until ctx ends.
func (p *previews) endAll(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	var ended []chan struct{}
	for _, v := range p.all {
		v.finish()
		ended = append(ended, v.ended)
	}
	p.mu.Unlock()
	for _, end := range ended {
		select {
		case <-end:
		case <-ctx.Done():
			return
		}
	}
}

// take ends the preview of a run and returns the message that its final text replaces, 0 if none. It waits for a running call, so that no older
// text can arrive after the final one.
func (p *previews) take(ctx context.Context, to address, runID string) int {
	p.finish(runID, true)
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

// show is the loop of one preview.
func (p *previews) show(ctx context.Context, v loop) {
	var shown frame
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
		if next, _ := p.frameOf(v.preview); next != shown && p.step(ctx, v.preview, next) {
			shown = next
		}
		t.Reset(previewEvery)
		if !p.changed(ctx, v, shown) {
			return
		}
	}
}

// changed waits until the frame has changed; false at the end.
func (p *previews) changed(ctx context.Context, v loop, shown frame) bool {
	tick := time.NewTimer(stepEvery)
	defer tick.Stop()
	for {
		next, until := p.frameOf(v.preview)
		if next != shown {
			return true
		}
		var due <-chan time.Time // without a step, only an update changes the frame
		if until > 0 {
			tick.Reset(until)
			due = tick.C
		}
		select {
		case <-due:
		case <-v.wake:
		case <-v.stop:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// step shows one state; false means to retry later. A state that would look the same is not sent again. Another process may have the turn once
// the lease of this one has ended.
func (p *previews) step(ctx context.Context, v *preview, f frame) bool {
	if p.alive() != nil {
		return false
	}
	p.mu.Lock()
	to, message := v.to, v.message
	p.mu.Unlock()
	if message == 0 && !to.group() && p.takesDrafts(to) {
		part, ok := f.end()
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
	part, ok := f.begin()
	if !ok || part.html == v.shown || v.unknown {
		return true
	}
	if !p.limits.spare(to.chat, true) {
		return false
	}
	id, err := p.poster.post(ctx, outgoing{to: to, chunk: part, edit: message})
	if err != nil {
		return p.notShown(ctx, v, err)
	}
	p.mu.Lock()
	v.message = id
	record := v.now.Record
	p.mu.Unlock()
	v.shown, v.line = part.html, f.line != ""
	if id != message && record != nil {
		record(ctx, jsonOf(progress{Preview: id}))
	}
	return true
}

// tidy removes the line of a step from a preview that has ended. It is tried once.
func (p *previews) tidy(ctx context.Context, v *preview) {
	ctx, cancel := context.WithTimeout(ctx, signTime)
	defer cancel()
	p.mu.Lock()
	to, message, f := v.to, v.message, frame{text: v.now.Text}
	p.mu.Unlock()
	if message == 0 || !v.line {
		return
	}
	if err := p.limits.wait(ctx, to.chat); err != nil {
		return
	}
	part, ok := f.begin()
	if ok {
		if _, err := p.poster.post(ctx, outgoing{to: to, chunk: part, edit: message}); err != nil {
			p.failed(ctx, to, err)
			return
		}
	} else {
		err := p.api.call(ctx, signTime, "deleteMessage", tgbotapi.Params{"chat_id": number(to.chat), "message_id": number(int64(message))}, nil)
		if err != nil {
			p.failed(ctx, to, err)
			return
		}
		p.mu.Lock()
		v.message = 0
		p.mu.Unlock()
	}
	v.shown, v.line = part.html, false
}

// takesDrafts reports whether a draft is worth a call.
func (p *previews) takesDrafts(to address) bool {
	return !p.noDrafts.Load() && !p.refused.has(number(to.chat))
}

// notShown evaluates the failure to show a state. It reports whether this state is given up: Telegram would refuse it again, but may accept the next.
func (p *previews) notShown(ctx context.Context, v *preview, err error) bool {
	p.failed(ctx, v.to, err)
	e, ok := errors.AsType[*apiError](err)
	switch {
	case !ok:
		return false
	case p.leftTopic(v, e):
		return false
	case v.message == 0 && e.unknown:
		v.unknown = true
		return true
	default:
		return e.reason == reasonBadRequest
	}
}

// leftTopic continues outside of a deleted topic, as [poster.deliver] does.
func (p *previews) leftTopic(v *preview, e *apiError) bool {
	if v.to.thread == 0 || !e.noTopic() {
		return false
	}
	p.mu.Lock()
	v.to.thread = 0
	p.mu.Unlock()
	return true
}

// failed updates the state after a failed call. The final text comes through the outbox and does not depend on it.
func (p *previews) failed(ctx context.Context, to address, err error) {
	p.signs.follow(ctx, to, err)
	if ctx.Err() == nil {
		p.log.DebugContext(ctx, "a state of an answer was not shown", "reason", reasonFor(err))
	}
}

// showDraft shows a state as a draft. It remembers permanently that the API has no drafts, and for [draftless] that a chat refused one.
func (p *previews) showDraft(ctx context.Context, v *preview, part chunk) bool {
	if !p.limits.spare(v.to.chat, false) {
		return false
	}
	params := place(v.to)
	params["draft_id"], params["text"], params["parse_mode"] = number(v.draft), part.html, "HTML"
	err := p.api.call(ctx, callTime, "sendMessageDraft", params, nil)
	if err == nil {
		return true
	}
	p.failed(ctx, v.to, err)
	e, ok := errors.AsType[*apiError](err)
	switch {
	case !ok || p.leftTopic(v, e):
	case e.code == http.StatusNotFound:
		p.noDrafts.Store(true)
	case e.code == http.StatusBadRequest:
		p.refused.add(number(v.to.chat))
	}
	return false
}
