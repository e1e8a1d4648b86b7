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

// fakeBackend is a working backend: it keeps sessions and transcripts, runs one turn per session at
// a time on its own goroutines, and publishes events in the order in which they happen. A message
// is a script: its words are streamed one by one; `wait` pauses the turn until the test calls
// proceed, `fail` ends it with an error.
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
		case "mute":
			continue
		case "fail":
			h.failed(l, chat.FailTimeout, "the agent took too long", "")
			return
		case "refused":
			h.failed(l, chat.FailBadRequest, "the model service did not accept it", "no such model")
			return
		case string(chat.FailContextLength), string(chat.FailRefusal), string(chat.FailRateLimit):
			h.failed(l, chat.FailReason(word), "the model service did not take it", "")
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
	end := chat.RunEnd{Outcome: chat.OutcomeAnswered, Text: l.text, Duration: time.Millisecond}
	if c := l.m.Content.Client; c != nil && !c.NoCalls && len(c.Rounds) == 0 {
		end.StopReason, end.Calls = chat.StopCalls, []chat.ToolCall{{ID: "call_1", Name: c.Tools[0].Name, Args: `{"city":"Oslo"}`}}
		if c.Tools[0].Name == "signed" {
			end.Calls[0].Extra = `{"google":{"thought_signature":"c2ln"}}`
		}
	}
	h.finish(l, end, ev, true)
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

// finish writes the transcript, ends the message, starts the next one, and then publishes the
// event.
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

func (h *fakeBackend) InFlight(key chat.SessionKey) (chat.InFlight, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil || r.running == nil {
		return chat.InFlight{}, false
	}
	return chat.InFlight{RunID: r.running.m.ID, Text: r.running.text, Seq: r.running.evs}, true
}

func (h *fakeBackend) Session(_ context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil || visible != "" && r.status.Principal != visible {
		return chat.SessionStatus{}, chat.ErrSessionNotFound
	}
	return r.now(), nil
}

func (r *fakeSession) now() chat.SessionStatus {
	st := r.status
	st.QueueDepth, st.Status = len(r.queue), "done"
	if r.running != nil {
		st.ActiveRuns, st.Status = []string{r.running.m.ID}, "running"
	}
	return st
}

func (h *fakeBackend) Sessions(ctx context.Context, f store.SessionFilter) ([]chat.SessionStatus, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lists := h.lists; lists != nil {
		h.listing++
		h.mu.Unlock()
		select {
		case <-lists:
		case <-ctx.Done():
		}
		h.mu.Lock()
		h.listing--
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	var all []chat.SessionStatus
	for _, r := range h.sessions {
		if f.Visible == "" || f.Visible == r.status.Principal {
			all = append(all, r.now())
		}
	}
	slices.SortFunc(all, func(a, b chat.SessionStatus) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	from := min(f.Offset, len(all))
	return all[from:min(from+f.Limit, len(all))], len(all), nil
}

func (h *fakeBackend) Turns(_ context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, nil, chat.ErrStoreUnavailable
	}
	h.turnFilters = append(h.turnFilters, f)
	var list []store.Turn
	for _, t := range h.turnList {
		fits := f.Which == store.TurnsOpen || f.Which == "" || (f.Which == store.TurnsEnded) == (t.State == store.StateDone)
		if f.One() || f.Parent != "" {
			fits = f.ID == t.ID || f.Message == t.ID || f.Parent != "" && f.Parent == t.Parent
		}
		if fits && (f.Visible == "" || f.Visible == t.Principal) && (f.Outcome == "" || f.Outcome == t.Outcome) {
			list = append(list, t)
		}
	}
	return list[:min(len(list), f.Most())], h.waits, nil
}

func (h *fakeBackend) OpenQuestions(_ context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, chat.ErrStoreUnavailable
	}
	var list []agent.OpenQuestion
	for _, q := range h.questions {
		if owner == "" || owner == q.Principal {
			list = append(list, q)
		}
	}
	return list[:min(len(list), limit)], nil
}

func (h *fakeBackend) AnswerQuestion(_ context.Context, by, id string, option int) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.questions, func(q agent.OpenQuestion) bool { return q.ID == id && q.Principal == by })
	if at < 0 {
		return "", chat.Errorf(chat.CodeNotFound, "there is no open question like this")
	}
	return "The answer is: " + h.questions[at].Options[option-1].Label + ".", nil
}

func (h *fakeBackend) Tasks(_ context.Context, f store.TaskFilter) ([]store.Task, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, chat.ErrStoreUnavailable
	}
	var list []store.Task
	for _, t := range h.tasks {
		if (f.ID == "" || f.ID == t.ID) && (f.Visible == "" || f.Visible == t.Principal) && (!f.Open || t.State != store.StateDone) {
			list = append(list, t)
		}
	}
	return list[:min(len(list), f.Most())], nil
}

func (h *fakeBackend) Transcript(_ context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return store.Transcript{}, chat.ErrStoreUnavailable
	}
	r := h.sessions[q.Session.String()]
	if r == nil {
		return store.Transcript{}, nil
	}
	t := store.Transcript{SessionID: r.status.SessionID, Total: len(r.entries), LastSeq: int64(len(r.entries))}
	if q.After > 0 || q.FromStart {
		from := min(int(q.After), len(r.entries))
		t.Entries = slices.Clone(r.entries[from:min(from+q.Limit, len(r.entries))])
		return t, nil
	}
	to := max(0, len(r.entries)-q.Offset)
	t.Entries = slices.Clone(r.entries[max(0, to-q.Limit):to])
	return t, nil
}

// Toc returns a day of each session, and a week of each principal.
func (h *fakeBackend) Toc(_ context.Context, q store.TocQuery) ([]store.TocNode, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []store.TocNode
	for _, r := range h.sessions {
		n := store.TocNode{Owner: r.status.Principal, Level: q.Level, Period: "2026-W11", Text: "what was said", MadeAt: time.UnixMilli(1000), Made: 1}
		if q.Level == store.TocDay {
			n.Period, n.Session, n.From, n.To, n.Entries = "2026-03-14", r.status.Key, 1, 2, 2
		}
		if (q.Visible == "" || q.Visible == n.Owner) && (q.Session.IsZero() || q.Session == n.Session) && n.Period >= q.From && (q.To == "" || n.Period <= q.To) {
			list = append(list, n)
		}
	}
	return list[min(q.Offset, len(list)):min(len(list), q.Offset+q.Most())], nil
}

// Search searches the transcripts of this backend.
func (h *fakeBackend) Search(_ context.Context, q store.SearchQuery) (store.SearchResult, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var hits []store.Hit
	for _, r := range h.sessions {
		if q.Visible != "" && q.Visible != r.status.Principal || !q.Session.IsZero() && q.Session != r.status.Key {
			continue
		}
		for _, e := range r.entries {
			hit, ok := q.Hit(store.Hit{Session: r.status.Key, SessionID: r.status.SessionID, Principal: r.status.Principal, Entry: e})
			if ok && (q.Until.IsZero() || !e.At.After(q.Until)) {
				hits = append(hits, hit)
			}
		}
	}
	return q.Cut(hits), nil
}

func (h *fakeBackend) PendingInputs(_ context.Context, key chat.SessionKey, _ int64, limit int) ([]store.Waiting, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil {
		return nil, 0, nil
	}
	var out []store.Waiting
	for _, l := range r.queue[:min(limit, len(r.queue))] {
		out = append(out, store.Waiting{Session: key, MessageID: l.m.ID, Content: l.m.Content, AcceptedAt: l.at})
	}
	return out, len(r.queue), nil
}

func (h *fakeBackend) Reset(_ context.Context, key chat.SessionKey, by gateway.Caller, o *chat.IdempotencyKey) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return once(h, o, func() (string, error) {
		r := h.fakeSession(key, by.Principal)
		r.entries = nil
		r.status.SessionID += "x"
		return r.status.SessionID, nil
	})
}

// recordedAnswer is the answer to a call with an idempotency key.
type recordedAnswer struct {
	hash   string
	answer any
}

// once runs do for the first call with a key.
func once[T any](h *fakeBackend, o *chat.IdempotencyKey, do func() (T, error)) (T, error) {
	if o == nil {
		return do()
	}
	name := chat.IdempotencyKey{Owner: o.Owner, Method: o.Method, Key: o.Key}
	if before, ok := h.answers[name]; ok {
		if before.hash != o.Hash {
			var none T
			return none, chat.ErrKeyReused
		}
		return before.answer.(T), nil
	}
	out, err := do()
	if err == nil {
		h.answers[name] = recordedAnswer{o.Hash, out}
	}
	return out, err
}

func (h *fakeBackend) Delete(_ context.Context, p store.DeleteParams, _ gateway.Caller) (store.Deleted, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return once(h, p.IdempotencyKey, func() (store.Deleted, error) {
		r := h.sessions[p.Session.String()]
		switch {
		case r == nil:
			return store.Deleted{}, nil
		case p.ExpectID != "" && p.ExpectID != r.status.SessionID:
			return store.Deleted{}, chat.Errorf(chat.CodeConflict, "the session has another transcript now")
		}
		delete(h.sessions, p.Session.String())
		out := store.Deleted{Deleted: true}
		if p.KeepTranscript {
			out.Kept = r.status.SessionID
		}
		return out, nil
	})
}

func (*fakeBackend) FilesOfRuns(context.Context, chat.SessionKey, []string) (map[string][]chat.Attachment, error) {
	return nil, nil
}

func (h *fakeBackend) Audit(_ context.Context, a chat.Audit) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.audits = append(h.audits, a)
	return nil
}

func (h *fakeBackend) DefaultAgent() string { return "main" }

func (h *fakeBackend) Agents() []agent.Info {
	return []agent.Info{{ID: "main", Name: "Echo", Model: "echo-1", Runner: "echo"}}
}

func (h *fakeBackend) Commands() []chat.CommandInfo {
	return []chat.CommandInfo{
		{Name: "stop", Description: "Stop the oldest running turn.", Category: "session", Urgent: true},
		{Name: "cron", Aliases: []string{"jobs"}, Description: "Jobs.", Category: "cron", ArgsHint: "add …"},
	}
}

func (h *fakeBackend) Lanes() chat.LanesStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := chat.LanesStatus{At: time.Now(), NodeID: "gw-1", Tracked: len(h.sessions), Lanes: []chat.LaneStatus{{Name: "main", Capacity: 30}}}
	for _, r := range h.sessions {
		if r.running != nil {
			st.Running++
			st.Lanes[0].Active++
		}
		st.Waiting += len(r.queue)
	}
	return st
}

func (h *fakeBackend) Status(context.Context) chat.SystemStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := chat.SystemStatus{
		NodeID: "gw-1", Version: "0.1.0", Store: "sqlite", Channels: slices.Clone(h.channels),
		Stranded: h.stranded, Progress: h.progress(), Nodes: []chat.NodeStatus{{ID: "n1", Name: "gw-1", Version: "0.1.0", Lease: 13 * time.Second}},
	}
	if h.down {
		st.StoreError = "the database cannot be reached"
	}
	return st
}

func (h *fakeBackend) Channels() []chat.ChannelStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.channels)
}

func (h *fakeBackend) progress() chat.Progress {
	p := chat.Progress{StalledFor: h.stall, CronAge: -1, DispatcherAge: time.Second}
	if h.cronAge > 0 {
		p.CronAge = h.cronAge
	}
	return p
}

func (h *fakeBackend) Progress() chat.Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.progress()
}

func (h *fakeBackend) Ready(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return &gateway.NotReadyError{Check: gateway.CheckDatabase, Cause: chat.ErrStoreUnavailable}
	}
	return h.notReady
}

// Place finds a message and whether it is the newest of its session.
func (h *fakeBackend) Place(_ context.Context, id string) (chat.Place, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.messages[id]
	if l == nil || h.sessions[l.m.Session.String()] == nil {
		return chat.Place{}, chat.ErrNotFound
	}
	at := chat.Place{Session: l.m.Session, RunID: id, Newest: h.newest[l.m.Session.String()] == l, First: true, AcceptedAt: l.at}
	for _, other := range h.messages {
		at.First = at.First && (other.m.Session != l.m.Session || !other.at.Before(l.at))
	}
	select {
	case <-l.done:
		at.Ended = true
	default:
	}
	return at, nil
}

// DeleteWhole deletes the session of its only message.
func (h *fakeBackend) DeleteWhole(_ context.Context, at chat.Place, by chat.Caller) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r := h.sessions[at.Session.String()]; {
	case !at.First || !at.Newest:
		return false, nil
	case !by.MayChange(at.Session, r.status.Principal, true):
		return false, chat.Errorf(chat.CodeForbidden, "the session belongs to another token")
	}
	delete(h.sessions, at.Session.String())
	return true, nil
}

// BranchAt returns the number of the last entry of a run.
func (h *fakeBackend) BranchAt(_ context.Context, key chat.SessionKey, run string) (chat.Branch, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.sessions[key.String()]
	if r == nil {
		return chat.Branch{}, chat.ErrNotFound
	}
	for i := len(r.entries); i > 0; i-- {
		if r.entries[i-1].RunID == run {
			return chat.Branch{Session: key, SessionID: "current", Seq: int64(i)}, nil
		}
	}
	return chat.Branch{}, chat.ErrNotFound
}
