package dispatch_test

import (
	"context"
	"strconv"
	"sync"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
)

// postbox is a channel that records the replies that it sends. Chats in slow or broken respond slowly or not at all.
type postbox struct {
	name    string
	mu      sync.Mutex
	sent    []chat.Reply
	fail    func(chat.Reply) error
	delay   func(chat.Reply) time.Duration
	typings []time.Time
}

func (p *postbox) Name() string                              { return p.name }
func (*postbox) Run(context.Context, channel.Receiver) error { return nil }
func (*postbox) Status() channel.Status                      { return channel.Status{Configured: true} }

func (p *postbox) Typing(context.Context, chat.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.typings = append(p.typings, time.Now())
}

func (p *postbox) Send(_ context.Context, r chat.Reply, _ channel.Claim) (chat.Sent, error) {
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	if delay != nil {
		time.Sleep(delay(r))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		if err := p.fail(r); err != nil {
			return chat.Sent{}, err
		}
	}
	p.sent = append(p.sent, r)
	return chat.Sent{ProviderID: strconv.Itoa(len(p.sent))}, nil
}

// change changes the behaviour of sending under its lock.
func (p *postbox) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// asker is a postbox with buttons and previews of growing answers.
type asker struct {
	postbox

	shown    []channel.Preview // previews of unfinished answers
	replaced []bool            // previews of ended answers
}

// Update records the preview.
func (a *asker) Update(_ chat.Target, _ string, p channel.Preview) {
	a.change(func() { a.shown = append(a.shown, p) })
}

// Close implements [channel.Streamer]: each answer that grew has a message.
func (a *asker) Close(_ context.Context, _ chat.Target, runID string) (shown string, own bool) {
	a.change(func() {
		if len(a.shown) > 0 {
			shown, own = "message of "+runID, true
		}
	})
	return shown, own
}

// Finish records the end of the preview.
func (a *asker) Finish(_ chat.Target, _ string, replaced bool) {
	a.change(func() { a.replaced = append(a.replaced, replaced) })
}

// EndPreviews does nothing.
func (*asker) EndPreviews(context.Context) {}

// SendFile records the reply with its file: the channel with buttons also shows files.
func (a *asker) SendFile(ctx context.Context, r chat.Reply, c channel.Claim) (chat.Sent, error) {
	return a.Send(ctx, r, c)
}

// Ask records the reply with its choice.
func (a *asker) Ask(ctx context.Context, r chat.Reply, c channel.Claim) (chat.Sent, error) {
	return a.Send(ctx, r, c)
}

// byThread returns the sent messages, joined, by thread.
func (p *postbox) byThread() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]string{}
	for _, r := range p.sent {
		out[r.Target.Thread] += r.Text
	}
	return out
}

func (p *postbox) texts(chatID string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, r := range p.sent {
		if r.Target.ChatID == chatID {
			out = append(out, r.Text)
		}
	}
	return out
}
