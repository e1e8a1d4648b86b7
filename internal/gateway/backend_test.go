package gateway_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/gateway"
	"laneway/internal/store"
)

// fakeBackend is a working backend: it keeps sessions and transcripts, runs one turn per session at a time on its own goroutines, and
// publishes events in the order in which they happen. A message is a script: its words are streamed one by one; `wait` pauses the turn
// until the test calls proceed, `fail` ends it with an error.
type fakeBackend struct {
	t  *testing.T
	mu sync.Mutex

	subs        map[int]func(chat.Event)
	nextSub     int
	sessions    map[string]*fakeSession
	messages    map[string]*fakeMessage // by id
	byKey       map[string]*fakeMessage // by dedupe
	newest      map[string]*fakeMessage // by session
	answers     map[chat.IdempotencyKey]recordedAnswer
	deferred    []chat.Message
	callers     []gateway.Caller
	audits      []chat.Audit
	stops       []store.StopParams
	tasks       []store.Task
	questions   []agent.OpenQuestion
	turnList    []store.Turn
	waits       map[string]chat.Waiting
	turnFilters []store.TurnFilter
	stopped     chan struct{} // receives one value per Stop, if its buffer is not full
	gate        chan struct{}
	turns       sync.WaitGroup
	ended       chan struct{} // closed by close

	// Settings of the test, under lock.
	down     bool          // the store is unavailable
	stall    time.Duration // how long no turn has started
	cronAge  time.Duration // time since the cron loop's last iteration; 0 = it has no cron loop
	refuse   error         // error of the next ReceiveFrom
	block    chan struct{} // ReceiveFrom waits for it and ignores its context
	blocked  int           // number of waiting calls
	lists    chan struct{} // Sessions waits for it, or until its context is done
	listing  int           // number of waiting calls
	panics   bool
	notReady error
	channels []chat.ChannelStatus

	stranded []string
}

type fakeSession struct {
	status  chat.SessionStatus
	entries []chat.TranscriptEntry
	queue   []*fakeMessage
	running *fakeMessage
}

type fakeMessage struct {
	m    chat.Message
	at   time.Time
	end  chat.RunEnd
	done chan struct{}
	stop chan string
	text string
	evs  int64
}

// answeredBy returns what the message of a run answers.
func (h *fakeBackend) answeredBy(run string) *chat.Answered {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		if m.m.Dedupe != "" && strings.HasSuffix(m.m.ID, run) {
			return m.m.Content.Answered
		}
	}
	return nil
}

func newFakeBackend(t *testing.T) *fakeBackend {
	t.Helper()
	h := &fakeBackend{
		t: t, subs: map[int]func(chat.Event){}, sessions: map[string]*fakeSession{}, messages: map[string]*fakeMessage{}, byKey: map[string]*fakeMessage{}, newest: map[string]*fakeMessage{}, answers: map[chat.IdempotencyKey]recordedAnswer{},
		gate: make(chan struct{}), ended: make(chan struct{}), stopped: make(chan struct{}, 16),
	}
	t.Cleanup(h.close)
	return h
}

func (h *fakeBackend) close() {
	close(h.ended)
	h.turns.Wait()
}

func (h *fakeBackend) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// proceed continues one turn that has paused at the word `wait`.
func (h *fakeBackend) proceed() {
	select {
	case h.gate <- struct{}{}:
	case <-time.After(10 * time.Second):
		h.t.Error("no turn has paused at wait")
	}
}

func (h *fakeBackend) publish(ev chat.Event) {
	h.mu.Lock()
	fns := make([]func(chat.Event), 0, len(h.subs))
	for _, fn := range h.subs {
		fns = append(fns, fn)
	}
	h.mu.Unlock()
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	for _, fn := range fns {
		fn(ev)
	}
}

func (h *fakeBackend) Subscribe(fn func(chat.Event), _ func(chat.Event) bool) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.nextSub
	h.nextSub++
	h.subs[id] = fn
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, id)
	}
}

func (h *fakeBackend) fakeSession(key chat.SessionKey, principal string) *fakeSession {
	r := h.sessions[key.String()]
	if r == nil {
		now := time.Now()
		r = &fakeSession{status: chat.SessionStatus{
			Key: key, SessionID: fmt.Sprintf("t-%d", len(h.sessions)+1), Principal: principal, CreatedAt: now, UpdatedAt: now, Lane: "main",
		}}
		h.sessions[key.String()] = r
	}
	return r
}

func (h *fakeBackend) ReceiveFrom(ctx context.Context, m chat.Message, by gateway.Caller) (chat.Receipt, error) {
	h.mu.Lock()
	if block := h.block; block != nil {
		h.blocked++
		h.mu.Unlock()
		<-block
		h.mu.Lock()
		h.blocked--
	}
	h.callers = append(h.callers, by)
	if h.panics {
		h.mu.Unlock()
		panic("a defect")
	}
	if err := h.refusal(m); err != nil {
		h.mu.Unlock()
		return chat.Receipt{}, err
	}
	if l := h.byKey[m.Dedupe]; l != nil && m.Dedupe != "" {
		defer h.mu.Unlock()
		return h.repeated(l, m)
	}
	if h.messages[m.ID] != nil {
		h.mu.Unlock()
		return chat.Receipt{}, chat.Errorf(chat.CodeKeyReused, "that id is taken").With("idempotencyKey", m.ID)
	}
	l, receipt := h.accept(m)
	h.mu.Unlock()
	if strings.HasPrefix(m.Content.Text, "/") {
		h.command(l)
		receipt.Command = true
		return receipt, ctx.Err()
	}
	if receipt.Queued {
		h.publish(h.event(l, chat.EventQueued))
		return receipt, ctx.Err()
	}
	h.start(l)
	return receipt, ctx.Err()
}

func (h *fakeBackend) refusal(m chat.Message) error {
	switch {
	case h.refuse != nil:
		err := h.refuse
		h.refuse = nil
		return err
	case h.down:
		return chat.ErrStoreUnavailable
	case m.Session.Agent != "main":
		return chat.Errorf(chat.CodeUnknownAgent, "unknown agent: %s", m.Session.Agent).With("agentId", m.Session.Agent)
	default:
		return nil
	}
}

func (h *fakeBackend) repeated(l *fakeMessage, m chat.Message) (chat.Receipt, error) {
	if l.m.ParamsHash != m.ParamsHash {
		return chat.Receipt{}, chat.Errorf(chat.CodeKeyReused, "key used with other params").With("idempotencyKey", m.ID)
	}
	r := chat.Receipt{RunID: l.m.ID, Session: l.m.Session, AcceptedAt: l.at, Duplicate: true, State: store.StateRunning}
	select {
	case <-l.done:
		r.State, r.Outcome = store.StateDone, l.end.Outcome
	default:
	}
	return r, nil
}

func (h *fakeBackend) accept(m chat.Message) (*fakeMessage, chat.Receipt) {
	r := h.fakeSession(m.Session, m.Principal)
	l := &fakeMessage{m: m, at: time.Now(), done: make(chan struct{}), stop: make(chan string, 1)}
	h.messages[m.ID], h.newest[m.Session.String()] = l, l
	if m.Dedupe != "" {
		h.byKey[m.Dedupe] = l
	}
	receipt := chat.Receipt{RunID: m.ID, Session: m.Session, AcceptedAt: l.at, State: store.StateWaiting}
	if strings.HasPrefix(m.Content.Text, "/") {
		return l, receipt
	}
	if r.running != nil {
		r.queue = append(r.queue, l)
		receipt.Queued, receipt.Position = true, len(r.queue)
		return l, receipt
	}
	r.running = l
	return l, receipt
}

func (h *fakeBackend) event(l *fakeMessage, kind chat.EventKind) chat.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.evs++
	return chat.Event{
		Kind: kind, Session: l.m.Session, Principal: h.fakeSession(l.m.Session, l.m.Principal).status.Principal, RunID: l.m.ID, Seq: l.evs,
		Lane: cmp.Or(l.m.Lane, "main"), At: time.Now(),
	}
}

func (h *fakeBackend) command(l *fakeMessage) {
	ev := h.event(l, chat.EventFinal)
	ev.Text, ev.Command = "done: "+l.m.Content.Text, true
	h.finish(l, chat.RunEnd{Outcome: chat.OutcomeAnswered, Text: ev.Text}, ev, false)
}

func (h *fakeBackend) start(l *fakeMessage) { h.turns.Go(func() { h.turn(l) }) }

func (h *fakeBackend) turn(l *fakeMessage) {
	h.publish(h.event(l, chat.EventStarted))
	for i, word := range strings.Fields(l.m.Content.Text) {
		switch word {
		case "wait":
			if reason := h.pause(l); reason != "" {
				h.aborted(l, reason)
				return
			}
			continue
		case "fail":
			h.failed(l, chat.FailTimeout, "the agent took too long", "")
			return
		case "refused":
			h.failed(l, chat.FailBadRequest, "the model service did not accept it", "no such model")
			return
		case "tool":
			ev := h.event(l, chat.EventTool)
			ev.Tool = &chat.ToolEvent{Phase: "start", CallID: "call-1", Name: "look", Args: `{"at":"sky"}`}
			h.publish(ev)
			continue
		}
		if i > 0 {
			word = " " + word
		}
		h.say(l, word)
	}
	ev := h.event(l, chat.EventFinal)
	ev.Text = l.text
	h.finish(l, chat.RunEnd{Outcome: chat.OutcomeAnswered, Text: l.text, Duration: time.Millisecond}, ev, true)
}

func (h *fakeBackend) say(l *fakeMessage, word string) {
	ev := h.event(l, chat.EventDelta)
	h.mu.Lock()
	l.text += word
	ev.Delta, ev.Text = word, l.text
	h.mu.Unlock()
	h.publish(ev)
}

// pause returns why the turn must not continue, or "".
func (h *fakeBackend) pause(l *fakeMessage) string {
	select {
	case <-h.gate:
		return ""
	case reason := <-l.stop:
		return reason
	case <-h.ended:
		return "draining"
	}
}

func (h *fakeBackend) aborted(l *fakeMessage, reason string) {
	ev := h.event(l, chat.EventAborted)
	ev.Reason, ev.Text = reason, l.text
	h.finish(l, chat.RunEnd{Outcome: chat.OutcomeStopped, Reason: reason}, ev, true)
}

func (h *fakeBackend) failed(l *fakeMessage, reason chat.FailReason, text, detail string) {
	ev := h.event(l, chat.EventFailed)
	ev.Reason, ev.Message, ev.Detail = string(reason), text, detail
	h.finish(l, chat.RunEnd{Outcome: chat.OutcomeFailed, Reason: string(reason), Message: text, Detail: detail}, ev, true)
}

// finish writes the transcript, ends the message, starts the next one, and then publishes the event.
func (h *fakeBackend) finish(l *fakeMessage, end chat.RunEnd, ev chat.Event, turn bool) {
	h.mu.Lock()
	r := h.fakeSession(l.m.Session, l.m.Principal)
	end.RunID, end.Session = l.m.ID, l.m.Session
	l.end = end
	r.add(chat.TranscriptEntry{RunID: l.m.ID, Role: chat.RoleUser, Text: l.m.Content.Text, Sender: l.m.Content.Sender})
	if end.Outcome == chat.OutcomeAnswered {
		r.add(chat.TranscriptEntry{RunID: l.m.ID, Role: chat.RoleAssistant, Text: end.Text, StopReason: "stop", Command: ev.Command})
	}
	var next *fakeMessage
	if turn {
		r.running = nil
		if len(r.queue) > 0 {
			next, r.queue = r.queue[0], r.queue[1:]
			r.running = next
		}
	}
	close(l.done)
	h.mu.Unlock()
	h.publish(ev)
	if next != nil {
		h.start(next)
	}
}

func (r *fakeSession) add(e chat.TranscriptEntry) {
	e.Seq, e.At = int64(len(r.entries)+1), time.Now()
	r.entries = append(r.entries, e)
	r.status.UpdatedAt, r.status.LastMessageAt = e.At, e.At
	r.status.LastPreview = chat.Cut(e.Text, 200)
}

func (h *fakeBackend) Defer(_ context.Context, m chat.Message, _ gateway.Caller) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deferred = append(h.deferred, m)
	return nil
}

func (h *fakeBackend) Stop(_ context.Context, p store.StopParams) ([]string, error) {
	h.mu.Lock()
	h.stops = append(h.stops, p)
	select {
	case h.stopped <- struct{}{}:
	default:
	}
	r := h.sessions[p.Session.String()]
	if r == nil {
		h.mu.Unlock()
		return nil, nil
	}
	var ids []string
	var dropped []*fakeMessage
	for _, l := range slices.Clone(r.queue) {
		if p.Scope == store.StopAll || p.Scope == store.StopRun && l.m.ID == p.MessageID || p.Scope == store.StopOne && r.running == nil {
			r.queue = slices.DeleteFunc(r.queue, func(o *fakeMessage) bool { return o == l })
			dropped = append(dropped, l)
			ids = append(ids, l.m.ID)
		}
	}
	if l := r.running; l != nil && (p.Scope != store.StopRun || l.m.ID == p.MessageID) {
		l.stop <- p.Reason
		ids = append(ids, l.m.ID)
	}
	h.mu.Unlock()
	for _, l := range dropped {
		ev := h.event(l, chat.EventAborted)
		ev.Reason = p.Reason
		h.finish(l, chat.RunEnd{Outcome: chat.OutcomeStopped, Reason: p.Reason}, ev, false)
	}
	return ids, nil
}

func (h *fakeBackend) Wait(ctx context.Context, id string) (chat.RunEnd, error) {
	h.mu.Lock()
	l := h.messages[id]
	h.mu.Unlock()
	if l == nil {
		return chat.RunEnd{}, chat.ErrNotFound
	}
	select {
	case <-l.done:
		return l.end, nil
	case <-ctx.Done():
		return chat.RunEnd{}, context.Cause(ctx)
	}
}
