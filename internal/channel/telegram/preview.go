package telegram

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

const (
	// previewEvery is how often a preview is updated.
	previewEvery = time.Second
	// previewLife is how long the preview of a run that ended is kept for its final text;
	// maxPreviews bounds their number.
	previewLife = 10 * time.Minute
	maxPreviews = 1000
	// draftless is how long no draft is tried in a chat that refused one.
	draftless = time.Hour
)

// previews shows answers while they are written. Each answer has a goroutine while its turn runs.
// The goroutine ends with finish, with the final text, or with the context of open; close waits for
// all of them. It is safe for concurrent use; the lock is not held during a call.
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

// preview is one answer. The mutex of previews guards all fields except shown, line and unknown.
// Only the loop sends, and only the loop changes to, message, shown, line and unknown. After the
// loop has ended, [previews.tidy] takes its place.
type preview struct {
	to      address
	now     channel.Preview
	message int    // that shows it; 0 if none
	shown   string // HTML of what is shown, "" if nothing is
	line    bool   // what is shown has the line of a step
	// unknown is true when the first message may have arrived. No second one is posted, because
	// both could be in the chat.
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

// update shows a state of an answer within the next second. It never blocks. It starts the
// goroutine of the answer if it does not run.
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

// start starts the loop of a preview. The loop first waits for the end of an earlier loop of the
// same run. The mutex is held.
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

// forget drops previews that ended long ago, and all that have ended when there are too many. The
// mutex is held.
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

// finish ends the preview of a run. A preview that no reply replaces loses the line of its step,
// and is deleted if it has nothing else. This works after endAll too: it changes no other message.
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

// take ends the preview of a run and returns the message that its final text replaces, 0 if none.
// It waits for a running call, so that no older text can arrive after the final one.
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

// step shows one state; false means to retry later. A state that would look the same is not sent
// again. Another process may have the turn once the lease of this one has ended.
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

// notShown evaluates the failure to show a state. It reports whether this state is given up:
// Telegram would refuse it again, but may accept the next.
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

// failed updates the state after a failed call. The final text comes through the outbox and does
// not depend on it.
func (p *previews) failed(ctx context.Context, to address, err error) {
	p.signs.follow(ctx, to, err)
	if ctx.Err() == nil {
		p.log.DebugContext(ctx, "a state of an answer was not shown", "reason", reasonFor(err))
	}
}

// showDraft shows a state as a draft. It remembers permanently that the API has no drafts, and for
// [draftless] that a chat refused one.
func (p *previews) showDraft(ctx context.Context, v *preview, part chunk) bool {
	if !p.limits.spare(v.to.chat, false) {
		return false
	}
	params := placed(v.to)
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

const (
	// previewBytes is how much of a long answer is rendered for one preview message: enough for its
	// 4096 units with their markup.
	previewBytes = 32 << 10
	// stepEvery is how often the time of a step is updated.
	stepEvery = 10 * time.Second
	// maxStep bounds the name of a step in bytes; lineUnits bounds its line with the blank line
	// before it.
	maxStep   = 80
	lineUnits = 160
)

// frame is what a preview shows at one time: the text of the answer, and below it a line about the
// current step, "" if none.
type frame struct{ text, line string }

// frameOf returns what a preview shows now, and how long it shows this unless its state changes; 0
// means forever.
func (p *previews) frameOf(v *preview) (f frame, until time.Duration) {
	p.mu.Lock()
	now := v.now
	p.mu.Unlock()
	if now.Step == "" {
		return frame{text: now.Text}, 0
	}
	took := max(0, time.Since(now.Since))
	shown := took.Truncate(stepEvery)
	return frame{now.Text, lineOf(now, shown)}, shown + stepEvery - took
}

// lineOf returns the line of a step: "go test… 40 s, 3 tools".
func lineOf(p channel.Preview, took time.Duration) string {
	var figures []string
	switch {
	case took >= time.Minute:
		figures = append(figures, fmt.Sprintf("%d min %d s", took/time.Minute, took%time.Minute/time.Second))
	case took > 0:
		figures = append(figures, fmt.Sprintf("%d s", took/time.Second))
	}
	if p.Steps > 1 {
		figures = append(figures, fmt.Sprintf("%d tools", p.Steps))
	}
	name := strings.Join(strings.Fields(chat.Printable(p.Step)), " ")
	if short := chat.Cut(name, maxStep); short != name {
		name = strings.TrimSpace(short)
	}
	return strings.TrimSpace(name + "… " + strings.Join(figures, ", "))
}

// begin returns the first part of the text, as much as one message shows, with the line below it;
// false if nothing is to be shown.
func (f frame) begin() (chunk, bool) {
	chunks := f.chunks(chat.Cut(f.text, previewBytes))
	if len(chunks) == 0 {
		return f.alone()
	}
	return f.below(chunks[0]), true
}

// end returns the part of the text that a draft shows: its end, because that is new. Earlier text
// is left out in steps of [previewBytes], so that the first line does not change each second. A
// code block that began earlier is opened again.
func (f frame) end() (chunk, bool) {
	text := f.text
	if from := (len(text)/previewBytes - 1) * previewBytes; from > 0 {
		from = len(chat.Cut(text, from))
		fences := strings.Count("\n"+text[:from], "\n```")
		text = text[from:]
		if fences%2 == 1 {
			text = "```\n" + text
		}
	}
	chunks := f.chunks(text)
	if len(chunks) == 0 {
		return f.alone()
	}
	return f.below(chunks[len(chunks)-1]), true
}

// chunks returns the messages of an answer, with room for the line.
func (f frame) chunks(text string) []chunk {
	if f.line == "" {
		return render(text).chunks(maxUnits)
	}
	return render(text).chunks(maxUnits - lineUnits)
}

// alone returns the line without an answer.
func (f frame) alone() (chunk, bool) {
	return chunk{html: "<i>" + escape(f.line) + "</i>", plain: f.line}, f.line != ""
}

// below returns a part of the text with the line below it.
func (f frame) below(part chunk) chunk {
	if f.line != "" {
		part.html = strings.TrimRight(part.html, "\n") + "\n\n<i>" + escape(f.line) + "</i>"
		part.plain = strings.TrimRight(part.plain, "\n") + "\n\n" + f.line
	}
	return part
}

// signTime bounds a call that only shows something.
const signTime = 3 * time.Second

// signs makes the calls that only show something: typing, reactions, the end of buttons. They are
// made while the limits leave capacity, and are not retried. It is safe for concurrent use.
type signs struct {
	api       *client
	limits    *limiter
	addresses *addresses
	notes     *notes
	recent    *recentMessages
	log       *slog.Logger
}

// show makes one call, or none while its chat or the bot has no capacity for it.
func (s *signs) show(ctx context.Context, to address, method string, p tgbotapi.Params) error {
	if !s.limits.spare(to.chat, false) {
		return nil
	}
	err := s.api.call(ctx, signTime, method, p, nil)
	s.follow(ctx, to, err)
	return err
}

// follow records that the group of a failed call has moved.
func (s *signs) follow(ctx context.Context, to address, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		return
	}
	if err := s.addresses.move(ctx, to.chat, e.migrateTo); err != nil { // the next sign tries again
		s.log.WarnContext(ctx, "the new id of a group was not recorded", "err", err)
	}
}

// typing shows for about five seconds that an answer is being written.
func (s *signs) typing(ctx context.Context, to address) {
	p := placed(to)
	p["action"] = "typing"
	if err := s.show(ctx, to, "sendChatAction", p); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "typing was not shown", "reason", reasonFor(err))
	}
}

// queued puts a reaction under a message that has to wait, or answers it with a note where
// reactions are not allowed. A message that came through another node, or long ago, is not in
// memory and receives neither.
func (s *signs) queued(ctx context.Context, messageID string) {
	m, ok := s.recent.get(messageID)
	if !ok {
		return
	}
	m.to.chat = s.addresses.follow(m.to.chat)
	err := s.show(ctx, m.to, "setMessageReaction", tgbotapi.Params{
		"chat_id": number(m.to.chat), "message_id": number(int64(m.message)),
		"reaction": jsonOf([]map[string]string{{"type": "emoji", "emoji": "👀"}}),
	})
	if reason := reasonFor(err); err != nil && (reason == reasonBadRequest || reason == reasonUnauthorized) {
		s.notes.replyOnce(ctx, m.to, noteWaits, "Your message is waiting for a free slot.", m.message)
	}
}

// removeKeyboard removes the buttons of a message after one of them was used.
func (s *signs) removeKeyboard(ctx context.Context, to address, message int) {
	p := tgbotapi.Params{"chat_id": number(to.chat), "message_id": number(int64(message))}
	if err := s.show(ctx, to, "editMessageReplyMarkup", p); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "the buttons of a message were not removed", "reason", reasonFor(err))
	}
}

// answerPress ends the progress indicator of a button and shows text to the person, if any. The
// call concerns no chat, so only the limits and the cooldown of the bot apply.
func (s *signs) answerPress(ctx context.Context, id, text string) {
	if !s.limits.spare(anyChat, false) {
		return
	}
	p := tgbotapi.Params{"callback_query_id": id}
	if text != "" {
		p["text"] = text
	}
	if err := s.api.call(ctx, signTime, "answerCallbackQuery", p, nil); err != nil {
		s.log.DebugContext(ctx, "a press of a button was not answered", "reason", reasonFor(err))
	}
}
