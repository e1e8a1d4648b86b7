package gateway

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

func eventNames() []string {
	return []string{wire.EventAgent, wire.EventChat, wire.EventCron, wire.EventHealth, wire.EventLanes, wire.EventQuestions, wire.EventSessions, wire.EventShutdown, wire.EventTick}
}

func assistantMessage(text string, at time.Time) *wire.ChatMessage {
	return &wire.ChatMessage{Role: chat.RoleAssistant, Content: []wire.TextPart{{Type: "text", Text: text}}, Timestamp: at.UnixMilli()}
}

func usageOf(u chat.Usage) *wire.Usage {
	if u.InputTokens == 0 && u.OutputTokens == 0 {
		return nil
	}
	return &wire.Usage{InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens}
}

func chatBase(ev *chat.Event, state wire.ChatState) wire.ChatEvent {
	return wire.ChatEvent{
		RunID: chat.ShownRunID(ev.RunID), SessionKey: ev.Session.String(), AgentID: ev.Session.Agent, Seq: max(0, ev.Seq), State: state,
	}
}

// chatDelta returns the payload of an unsent delta, at the time of writing.
func chatDelta(d *socket.Delta) []byte {
	p := chatBase(&d.Event, wire.ChatDelta)
	text := d.Unsent()
	p.DeltaText, p.Replace = &text, d.Replace
	p.Message = assistantMessage(d.Event.Text, d.Event.At)
	return strictjson.Encode(p)
}

// chatEnd returns the payload of the event that ends a run; nil when ev does not end one.
func chatEnd(ev *chat.Event) []byte {
	switch ev.Kind {
	case chat.EventFinal:
		return strictjson.Encode(chatFinal(ev))
	case chat.EventAborted:
		p := chatBase(ev, wire.ChatAborted)
		p.StopReason = ev.Reason
		if ev.Text != "" {
			p.Message = assistantMessage(ev.Text, ev.At)
		}
		return strictjson.Encode(p)
	case chat.EventFailed:
		return strictjson.Encode(chatFailed(ev))
	case chat.EventQueued, chat.EventStarted, chat.EventDelta, chat.EventTool, chat.EventSession, chat.EventQuestions:
	}
	return nil
}

func chatFinal(ev *chat.Event) wire.ChatEvent {
	p := chatBase(ev, wire.ChatFinal)
	if ev.MergedInto != "" {
		p.StopReason, p.Yielded = "merged", true
		return p
	}
	p.Message = assistantMessage(ev.Text, ev.At)
	p.Message.Command, p.Message.Note = ev.Command, ev.Message
	p.Usage = usageOf(ev.Usage)
	p.StopReason = ev.Reason
	p.StopReason = cmp.Or(p.StopReason, "stop")
	return p
}

// failWords returns the prefix by which clients distinguish some failures.
func failWords(reason chat.FailReason) string {
	switch reason {
	case chat.FailQueueFull:
		return "queue full:"
	case chat.FailDead:
		return "interrupted:"
	default:
		return ""
	}
}

func chatFailed(ev *chat.Event) wire.ChatEvent {
	p := chatBase(ev, wire.ChatError)
	p.ErrorKind = errorKind(chat.FailReason(ev.Reason))
	p.ErrorMessage = withPrefix(failWords(chat.FailReason(ev.Reason)), ev.Message)
	p.Usage = usageOf(ev.Usage)
	if ev.Text != "" {
		p.Message = assistantMessage(ev.Text, ev.At)
	}
	return p
}

func withPrefix(prefix, text string) string {
	switch {
	case text == "":
		return strings.TrimSpace(prefix + " the turn failed")
	case prefix == "", strings.HasPrefix(text, prefix):
		return text
	default:
		return prefix + " " + text
	}
}

func errorKind(r chat.FailReason) string {
	switch r {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence:
		return "timeout"
	case chat.FailRateLimit, chat.FailOverloaded, chat.FailBudget:
		return "rate_limit"
	case chat.FailContextLength:
		return "context_length"
	case chat.FailRefusal:
		return "refusal"
	default:
		return "unknown"
	}
}

func agentBase(ev *chat.Event, stream wire.AgentStream, data any, extended bool) []byte {
	p := wire.AgentEvent[any]{RunID: chat.ShownRunID(ev.RunID), Seq: max(0, ev.Seq), Stream: stream, TS: max(0, ev.At.UnixMilli()), Data: data}
	if extended {
		p.SessionKey, p.AgentID, p.Lane = ev.Session.String(), ev.Session.Agent, ev.Lane
	}
	return strictjson.Encode(p)
}

func agentDelta(d *socket.Delta, extended bool) []byte {
	return agentBase(&d.Event, wire.StreamAssistant, wire.AssistantData{Text: d.Event.Text, Delta: d.Unsent(), Replace: d.Replace}, extended)
}

// lifecycleEvent returns the agent event for the start or end of a run; nil for other events.
// Messages that never became a run (merged ones, commands) have no life cycle.
func lifecycleEvent(ev *chat.Event, extended bool) []byte {
	data := wire.LifecycleData{}
	switch ev.Kind {
	case chat.EventQueued:
		data.Phase = "queued"
	case chat.EventStarted:
		data.Phase = "start"
	case chat.EventFinal, chat.EventAborted:
		data.Phase = "end"
	case chat.EventFailed:
		data.Phase, data.Error = "error", ev.Message
	case chat.EventDelta, chat.EventTool, chat.EventSession, chat.EventQuestions:
	}
	if data.Phase == "" || ev.MergedInto != "" || ev.Command || (data.Phase == "queued" && !extended) {
		return nil
	}
	return agentBase(ev, wire.StreamLifecycle, data, extended)
}

func toolStep(ev *chat.Event, extended bool) []byte {
	t := ev.Tool
	if t == nil {
		return nil
	}
	data := wire.ToolData{Phase: t.Phase, ToolCallID: t.CallID, Name: t.Name, Args: jsonOrText(t.Args), IsError: t.IsError}
	if t.Phase == "update" {
		data.PartialResult = jsonOrText(t.Result)
	} else {
		data.Result = jsonOrText(t.Result)
	}
	return agentBase(ev, wire.StreamTool, data, extended)
}

// jsonOrText passes JSON on as JSON. Text that was cut is no longer JSON and becomes a string.
func jsonOrText(s string) any {
	switch {
	case s == "":
		return nil
	case json.Valid([]byte(s)):
		return json.RawMessage(s)
	default:
		return s
	}
}

func sessionChange(ev *chat.Event) []byte {
	return strictjson.Encode(wire.SessionsChanged{
		SessionKey: ev.Session.String(), AgentID: ev.Session.Agent, Reason: ev.Reason, TS: ev.At.UnixMilli(),
	})
}

// publisher sends events to the connections that may see them. It does not block.
type publisher struct {
	hub *socket.Hub[*client]
	// changed: a session has changed, here or on another replica, since the watcher last published
	// the lanes. The goroutines of events set it, the watcher clears it.
	changed *atomic.Bool
}

func newPublisher(hub *socket.Hub[*client]) publisher { return publisher{hub, &atomic.Bool{}} }

// views builds a payload at most once per view, for any number of connections.
type views struct {
	build func(extended bool) []byte
	made  [2][]byte
	done  [2]bool
}

func (v *views) of(extended bool) []byte {
	i := 0
	if extended {
		i = 1
	}
	if !v.done[i] {
		v.made[i], v.done[i] = v.build(extended), true
	}
	return v.made[i]
}

// sees reports whether a connection may see the event now: scope and visibility are checked with
// every event.
func (c *client) sees(ev *chat.Event) bool {
	id := c.who.Load()
	return id != nil && id.level >= chat.ScopeLevel(chat.ScopeRead) && (!id.cred.Own() || (id.cred.Name == ev.Principal && ev.Session.RightOf(id.cred.Name) != chat.RightNone))
}

// event queues one event for every connection that may see it. It runs on the goroutine that
// published the event and does not block.
func (p publisher) event(ev chat.Event) {
	switch ev.Kind {
	case chat.EventSession:
		p.session(&ev)
		return
	case chat.EventQuestions:
		p.questions(&ev)
		return
	default: // the rest belongs to runs
	}
	end := chatEnd(&ev)
	var to []*client
	if ev.Unattended && end == nil {
		to = p.hub.Followers(ev.RunID)
	} else {
		to = p.hub.Audience(ev.RunID, ev.Session, end != nil)
	}
	if end != nil {
		p.hub.Ended(ev.RunID)
	}
	if len(to) > 0 {
		sendEvent(to, ev, end)
	}
}

// sendEvent queues an event for those connections that may see it. It is a separate function so
// that an event is copied only when it is sent.
func sendEvent(to []*client, ev chat.Event, end []byte) {
	pub := newPublication(&ev, end)
	toAdmins := pub
	if ev.Detail != "" {
		detailed := ev
		detailed.Message = fault.WithDetail(ev.Message, ev.Detail)
		toAdmins = newPublication(&detailed, chatEnd(&detailed))
	}
	for _, c := range to {
		switch {
		case !c.sees(&ev):
		case c.who.Load().administers():
			toAdmins.to(c)
		default:
			pub.to(c)
		}
	}
}

// wanted reports whether a connection needs the event, which ends a run.
func (p publisher) wanted(ev chat.Event) bool {
	return slices.ContainsFunc(p.hub.Audience(ev.RunID, ev.Session, true), func(c *client) bool { return c.sees(&ev) })
}

func (p publisher) session(ev *chat.Event) {
	p.changed.Store(true)
	to := p.hub.Subscribers()
	if len(to) == 0 {
		return
	}
	payload := sessionChange(ev)
	for _, c := range to {
		if c.sees(ev) {
			c.PutEvent(wire.EventSessions, payload)
		}
	}
}

// questions sends the event to the person whose questions have changed, and to administrators.
func (p publisher) questions(ev *chat.Event) {
	payload := strictjson.Encode(wire.QuestionsChanged{SessionKey: ev.Session.String(), Reason: ev.Reason, TS: ev.At.UnixMilli()})
	for _, c := range p.hub.Opened() {
		id := c.who.Load()
		if id != nil && id.extended && id.level >= chat.ScopeLevel(chat.ScopeRead) && (id.principal() == ev.Principal || id.administers()) {
			c.PutEvent(wire.EventQuestions, payload)
		}
	}
}

// publication is one event of a run for several connections.
type publication struct {
	ev         *chat.Event
	end        []byte
	life, tool views
}

func newPublication(ev *chat.Event, end []byte) *publication {
	pub := &publication{ev: ev, end: end}
	pub.life.build = func(extended bool) []byte { return lifecycleEvent(ev, extended) }
	pub.tool.build = func(extended bool) []byte { return toolStep(ev, extended) }
	return pub
}

// to queues the parts of the event for one connection. The chat event that ends the run is its
// last.
func (p *publication) to(c *client) {
	id := c.who.Load()
	run := p.ev.RunID
	switch p.ev.Kind {
	case chat.EventDelta:
		c.PutDelta(run, socket.NewDelta(*p.ev))
		return
	case chat.EventTool:
		if payload := p.tool.of(id.extended); payload != nil && id.tools {
			c.PutRunEvent(run, wire.EventAgent, payload, false)
		}
		return
	default: // the rest is life cycle and end
	}
	if payload := p.life.of(id.extended); payload != nil {
		c.PutRunEvent(run, wire.EventAgent, payload, false)
	}
	if p.ev.Kind == chat.EventQueued {
		c.PutDelta(run, socket.NewDelta(*p.ev))
	}
	if p.end != nil {
		c.PutRunEvent(run, wire.EventChat, p.end, true)
	}
}

// cron sends a cron event to every connection that may read and see the job. Most events have no
// reader, and no payload is built for them.
func (p publisher) cron(ev cron.Event) {
	var to []*client
	for _, c := range p.hub.Opened() {
		if c.who.Load() != nil && c.sees(&chat.Event{Principal: ev.Job.Owner}) {
			to = append(to, c)
		}
	}
	if len(to) > 0 {
		sendCron(to, ev)
	}
}

// sendCron is a separate function so that the event is copied only when it is sent.
func sendCron(to []*client, ev cron.Event) {
	v := views{build: func(extended bool) []byte { return strictjson.Encode(jobs.EventView(ev, extended)) }}
	brief := views{build: func(bool) []byte { return strictjson.Encode(jobs.BriefView(ev)) }}
	for _, c := range to {
		switch id := c.who.Load(); {
		case id == nil:
		case id.brief:
			c.brief.put(c, brief.of(true))
		default:
			c.PutEvent(wire.EventCron, v.of(id.extended))
		}
	}
}

// announce sends a shutdown event to every connection.
func (p publisher) announce(reason string) {
	payload := strictjson.Encode(wire.Shutdown{Reason: reason})
	for _, c := range p.hub.Opened() {
		c.PutEvent(wire.EventShutdown, payload)
	}
}

// briefPerSecond is how many events about jobs a connection with the capability cron-brief receives
// in a second, plus one for the remaining events.
const briefPerSecond = 20

// briefJobs limits the events about jobs of one connection. Events beyond the limit become one
// event with their number at the end of the second: ten thousand jobs a minute must not send half a
// megabyte a second to a page that shows a hundred of them.
type briefJobs struct {
	mu     sync.Mutex
	second time.Time // when it started
	sent   int
	left   int // events that were left out since then
	end    *time.Timer
}

// put sends the payload now, or counts it.
func (b *briefJobs) put(c *client, payload []byte) {
	if b.take(time.Now(), c) {
		c.PutEvent(wire.EventCron, payload)
	}
}

func (b *briefJobs) take(now time.Time, c *client) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.second) >= time.Second {
		b.second, b.sent = now, 0
	}
	if b.sent < briefPerSecond {
		b.sent++
		return true
	}
	if b.left++; b.left == 1 {
		b.end = time.AfterFunc(b.second.Add(time.Second).Sub(now), func() { b.flush(c) })
	}
	return false
}

// flush sends the event with the number of events that were left out.
func (b *briefJobs) flush(c *client) {
	b.mu.Lock()
	n := b.left
	b.left = 0
	b.mu.Unlock()
	c.PutEvent(wire.EventCron, strictjson.Encode(wire.CronEvent{Action: wire.ActionMany, Count: n}))
}

// stop ends the timer with its connection.
func (b *briefJobs) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		b.end.Stop()
	}
}
