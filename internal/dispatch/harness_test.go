package dispatch_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/channel"
	"laneway/internal/channel/web"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/dispatch"
	"laneway/internal/gateway"
	"laneway/internal/scheduler"
	"laneway/internal/store/sqlite"
	"laneway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a runner that is controlled by the last message: `sleep 2s`, `deaf 5s` (ignores its
// context and returns "late"), `fail` (overloaded), `fail REASON`, `panic`; any other text is
// echoed. It counts concurrent calls per session.
type script struct {
	mu      sync.Mutex
	calls   []agent.Request
	starts  []time.Time // of the calls
	ends    []error     // of the calls' contexts when they returned
	now     map[string]int
	most    map[string]int
	total   int
	mostAll int
}

func (s *script) enter(ctx context.Context, req agent.Request) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := req.Session.String()
	if s.now == nil {
		s.now, s.most = map[string]int{}, map[string]int{}
	}
	s.calls, s.starts = append(s.calls, req), append(s.starts, time.Now())
	s.now[key]++
	s.total++
	s.most[key] = max(s.most[key], s.now[key])
	s.mostAll = max(s.mostAll, s.total)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now[key]--
		s.total--
		s.ends = append(s.ends, context.Cause(ctx))
	}
}

func (s *script) texts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.calls {
		out = append(out, joined(c))
	}
	return out
}

// began returns when the first call with this text started, or zero.
func (s *script) began(text string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.calls {
		if joined(c) == text {
			return s.starts[i]
		}
	}
	return time.Time{}
}

// call returns the i-th call, its start, and the state of its context when it returned.
func (s *script) call(i int) (req agent.Request, started time.Time, ended error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[i], s.starts[i], s.ends[i]
}

func (s *script) textsOf(session string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, c := range s.calls {
		if c.Session.String() == session {
			out = append(out, joined(c))
		}
	}
	return out
}

func joined(r agent.Request) string {
	var parts []string
	for _, m := range r.Messages {
		parts = append(parts, m.Text)
	}
	return strings.Join(parts, "\n")
}

func (s *script) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	defer s.enter(ctx, req)()
	text := joined(req)
	line, _, _ := strings.Cut(req.Messages[len(req.Messages)-1].Text, "\n") // in a late run, the scheduled time follows
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "sleep", "deaf":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return agent.Result{}, err
		}
		emit(agent.Event{Kind: agent.EventDelta, Text: "begun"})
		done := ctx.Done()
		if word == "deaf" {
			done = nil
		}
		select {
		case <-time.After(d):
		case <-done:
			return agent.Result{}, context.Cause(ctx)
		}
		if word == "deaf" {
			return agent.Result{Text: "late"}, nil // differs from the emitted text: nothing may overwrite the text from before the stop
		}
		return agent.Result{Text: "begun"}, nil
	case "fail":
		return agent.Result{}, &agent.Error{Reason: chat.FailReason(cmp.Or(rest, string(chat.FailOverloaded))), Message: "the model is overloaded; try again"}
	case "panic":
		panic("as asked")
	case "files", "bare-files", "quiet-files", "fail-files":
		return leave(req, word, strings.Fields(rest), emit)
	}
	emit(agent.Event{Kind: agent.EventDelta, Text: text})
	return agent.Result{Text: text, StopReason: "stop"}, nil
}

// leave writes files into the directory of the turn, each with its name as content, and attaches
// them.
func leave(req agent.Request, word string, names []string, emit func(agent.Event)) (agent.Result, error) {
	dir, err := req.OutputDir()
	if err != nil {
		return agent.Result{}, err
	}
	res := agent.Result{Text: map[string]string{"files": "here", "quiet-files": "NO_REPLY"}[word], StopReason: agent.StopNormal}
	for _, name := range names {
		res.Attachments = append(res.Attachments, chat.Attachment{Path: name})
		if strings.Contains(name, "missing") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			return agent.Result{}, err
		}
	}
	if res.Text != "" {
		emit(agent.Event{Kind: agent.EventDelta, Text: res.Text})
	}
	if word == "fail-files" {
		return res, agent.NewError(chat.FailOverloaded, "the model is overloaded; try again", nil)
	}
	return res, nil
}

// harness is a dispatcher with a store inside a synctest bubble.
type harness struct {
	t      *testing.T
	st     dispatch.Store
	d      *dispatch.Dispatcher
	runner *script
	box    *postbox
	hook   *postbox // sent to URLs
	asker  *asker   // supports buttons, unlike the other channels
	web    *web.Channel
	log    warnings
	mu     sync.Mutex
	events []chat.Event
	cancel context.CancelFunc
	work   context.CancelCauseFunc
	ended  chan struct{}
	n      atomic.Int64
}

type option func(*dispatch.Config)

func lanes(n int) option {
	return func(c *dispatch.Config) {
		c.Lanes = []scheduler.Lane{{Name: "main", Limit: n}, {Name: "subagent", Limit: n}, {Name: "team", Limit: n}, {Name: "cron", Limit: n}}
	}
}

func queue(s scheduler.Settings) option {
	return func(c *dispatch.Config) {
		c.Queue = func(_, _, kind string) scheduler.Settings {
			if kind == chat.KindGroup && s.MaxConcurrent == 0 {
				s.MaxConcurrent = 3
			}
			return s
		}
	}
}

func open(t *testing.T, st dispatch.Store, opts ...option) *harness {
	t.Helper()
	h := build(t, st, opts...)
	h.start()
	return h
}

// build is open without start.
func build(t *testing.T, st dispatch.Store, opts ...option) *harness {
	t.Helper()
	h := &harness{t: t, st: st, runner: &script{}, box: &postbox{name: "box"}, hook: &postbox{name: "webhook"}, asker: &asker{postbox: postbox{name: "asker"}}, web: web.New(), ended: make(chan struct{})}
	table, err := command.New()
	if err != nil {
		t.Fatal(err)
	}
	cfg := dispatch.Config{
		Version: "test", Agents: []dispatch.Agent{{Info: agent.Info{ID: "main", Runner: "script"}, Runner: h.runner}},
	}
	for _, o := range opts {
		o(&cfg)
	}
	work, cancelWork := context.WithCancelCause(t.Context())
	h.work = cancelWork
	h.d, err = dispatch.New(work, cfg, dispatch.Deps{Store: st, Commands: table, Needs: gateway.Needs(), Channels: []channel.Channel{h.box, h.hook, h.asker, h.web}, Logger: slog.New(&h.log)})
	if err != nil {
		t.Fatal(err)
	}
	h.d.Subscribe(func(e chat.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = append(h.events, e)
	}, func(chat.Event) bool { return true })
	return h
}

// start runs the dispatcher until the harness is closed.
func (h *harness) start() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	h.cancel = cancel
	go func() {
		defer close(h.ended)
		delivers := make(chan error, 1)
		go func() { delivers <- h.web.Run(ctx, h.d) }()
		if err := errors.Join(h.d.Run(ctx), <-delivers); err != nil {
			h.t.Errorf("Run ended with %v", err)
		}
	}()
	synctest.Wait()
}

// close drains and ends the harness. It is the last step of every test, so that no goroutine is
// left in the bubble.
func (h *harness) close() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), 30*time.Second)
	defer cancel()
	if err := h.d.Drain(ctx); err != nil {
		h.t.Errorf("Drain: %v", err)
	}
	h.d.Leave(ctx)
	h.cancel()
	<-h.ended
	h.work(errors.New("over"))
}

// msg returns a message of a program with a numbered id.
func (h *harness) msg(session, text string) chat.Message {
	key, err := chat.ParseSessionKey(session, "main")
	if err != nil {
		h.t.Fatal(err)
	}
	return chat.Message{
		Session: key, ID: fmt.Sprintf("m%d", h.n.Add(1)), Principal: "tester", Scope: "operator.admin", Channel: "web",
		Content: chat.Content{Text: text, Sender: chat.Sender{ID: "anna"}},
	}
}

// send sends a message that must be accepted.
func (h *harness) send(session, text string, change ...func(*chat.Message)) string {
	h.t.Helper()
	m := h.msg(session, text)
	for _, f := range change {
		f(&m)
	}
	r, err := h.d.Receive(h.t.Context(), m)
	if err != nil {
		h.t.Fatalf("sending %q: %v", text, err)
	}
	return r.RunID
}

func typed(m *chat.Message) { m.Content.Options.Typed = true }

func replyTo(chatID string) func(*chat.Message) {
	return func(m *chat.Message) {
		m.Content.Options.ReplyTo = chat.Target{Channel: "box", ChatID: chatID}
		m.Channel = "box"
	}
}

func mode(q chat.QueueMode) func(*chat.Message) {
	return func(m *chat.Message) { m.Content.Options.Mode = q }
}

// end waits for a message's end.
func (h *harness) end(id string) chat.RunEnd {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Hour)
	defer cancel()
	e, err := h.d.Wait(ctx, id)
	if err != nil {
		h.t.Fatalf("waiting for %s: %v", id, err)
	}
	return e
}

// kinds returns the kinds of the run events of a message, in order.
func (h *harness) kinds(id string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	last := int64(0)
	for _, e := range h.events {
		if e.RunID != id || e.Kind == chat.EventSession {
			continue
		}
		if e.Seq <= last && len(out) > 0 {
			h.t.Errorf("event %s of %s has number %d after %d", e.Kind, id, e.Seq, last)
		}
		last = e.Seq
		out = append(out, string(e.Kind))
	}
	return out
}

func want[T comparable](t *testing.T, what string, got, expect T) {
	t.Helper()
	if got != expect {
		t.Errorf("%s: got %v, want %v", what, got, expect)
	}
}

func wantList(t *testing.T, what string, got, expect []string) {
	t.Helper()
	if !slices.Equal(got, expect) {
		t.Errorf("%s: got %q, want %q", what, got, expect)
	}
}

func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// inDispatcher runs f in a bubble, with a dispatcher and its own store, which are closed
// afterwards.
func inDispatcher(t *testing.T, f func(t *testing.T, h *harness), opts ...option) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(t), opts...)
		defer h.close()
		f(t, h)
	})
}

// inJobs is inDispatcher with jobs that fire.
func inJobs(t *testing.T, f func(t *testing.T, h *jobHarness), opts ...option) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		h := openCron(t, newStore(t), opts...)
		defer h.close()
		f(t, h)
	})
}

func newStore(tb testing.TB) *sqlite.Store {
	tb.Helper()
	return sqlitetest.Open(tb, sqlite.Config{})
}

// postbox is a channel that records the replies that it sends. Chats in slow or broken respond
// slowly or not at all.
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
