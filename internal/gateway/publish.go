package gateway

import (
	"slices"
	"sync/atomic"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/fault"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/socket"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

// publisher sends events to the connections that may see them. It does not block.
type publisher struct {
	hub *socket.Hub[*client]
	// changed: a session has changed, here or on another replica, since the watcher last published the lanes. The goroutines of events set
	// it, the watcher clears it.
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

// sees reports whether a connection may see the event now: scope and visibility are checked with every event.
func (c *client) sees(ev *chat.Event) bool {
	id := c.who.Load()
	return id != nil && id.level >= chat.ScopeLevel(chat.ScopeRead) && (!id.cred.Own() || (id.cred.Name == ev.Principal && ev.Session.RightOf(id.cred.Name) != chat.RightNone))
}

// event queues one event for every connection that may see it. It runs on the goroutine that published the event and does not block.
func (p publisher) event(ev chat.Event) {
	switch ev.Kind { //nolint:exhaustive // the rest belongs to runs
	case chat.EventSession:
		p.session(&ev)
		return
	case chat.EventQuestions:
		p.questions(&ev)
		return
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

// sendEvent queues an event for those connections that may see it. It is a separate function so that an event is copied only when it is
// sent.
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

// to queues the parts of the event for one connection. The chat event that ends the run is its last.
func (p *publication) to(c *client) {
	id := c.who.Load()
	run := p.ev.RunID
	switch p.ev.Kind { //nolint:exhaustive // the rest is life cycle and end
	case chat.EventDelta:
		c.PutDelta(run, socket.NewDelta(*p.ev))
		return
	case chat.EventTool:
		if payload := p.tool.of(id.extended); payload != nil && id.tools {
			c.PutRunEvent(run, wire.EventAgent, payload, false)
		}
		return
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

// cron sends a cron event to every connection that may read and see the job. Most events have no reader, and no payload is built for them.
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
