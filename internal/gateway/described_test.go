package gateway_test

import (
	"slices"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway"
	"laneway/internal/wire"
)

// goodParams are valid parameters for methods that require some.
func goodParams() map[string]params {
	job := params{"id": "x"}
	return map[string]params{
		"chat.send": send("main", "tool hello", "r1"), "chat.history": {"sessionKey": "main"}, "chat.abort": {"sessionKey": "main"},
		"agent": send("agent:main:other", "hello", "r2"), "wake": {"mode": "now", "text": "hello"},
		"sessions.describe": {"key": "main"}, "sessions.search": {"query": "x"}, "toc.list": {"level": "day"}, "sessions.reset": {"key": "main"}, "sessions.delete": {"key": "main"}, "sessions.subscribe": {"limit": 1, "deltas": false},
		"runs.get": {"id": "t1"}, "tasks.get": {"id": "t1"}, "tasks.stop": {"id": "t1"}, "questions.answer": {"id": "q1", "option": 1},
		"cron.add":    {"name": "n", "schedule": 1, "sessionTarget": 1, "payload": 1},
		"cron.create": {"name": "n", "schedule": 1, "message": "m"},
		"cron.get":    job, "cron.resume": job, "cron.run": job, "cron.cancel": job, "cron.remove": job, "cron.delete": job, "cron.preview": job, "cron.explain": {"id": "job", "at": "9:00"},
		"cron.update": {"id": "x", "patch": params{}}, "cron.pause": {"id": "x", "note": "n"}, "cron.toggle": {"id": "x", "enabled": true},
		"cron.backfill": {"id": "x", "fromMs": 1, "toMs": 2},
	}
}

// allBackends is a backend with sessions, jobs and channels.
type allBackends struct {
	*pairingBackend
	*jobBook
}

// The harness compares every frame with the description of the protocol. This test causes an answer of every method and every event, in
// both views, so that none of them can differ from its description.
func TestEveryAnswerAndEventIsAsDescribed(t *testing.T) {
	t.Parallel()
	for _, caps := range [][]string{nil, {wire.CapExtended, wire.CapToolEvents}} {
		l, _ := openLobby(t)
		all := allBackends{l, &jobBook{}}
		job := cron.Job{
			ID: "x", Key: "k", Name: "n", Enabled: true, Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 1000}, Payload: cron.Payload{Kind: cron.PayloadAgentTurn},
		}
		run := cron.Run{ID: "run", JobID: "x", State: cron.RunOK, Trigger: cron.TriggerSchedule, ScheduledFor: time.Now(), StartedAt: time.Now()}
		all.put(job, run)
		l.questions = []agent.OpenQuestion{{ID: "q1", Principal: "gateway", Session: chat.MainKey("main"), Question: agent.Question{Options: []agent.Option{{Label: "Allow"}}}}}
		b := serve(t, l.fakeBackend, all, func(c *gateway.Config) { c.Deadlines.Watch = 5 * time.Millisecond })
		s := b.login(adminToken, caps...)
		answered, seen := []string{"connect"}, map[string]bool{wire.EventTick: true} // ticks come every 30 s, see TestTicksComeEveryThirtySeconds
		note := func(f frame) bool {
			seen[f.Event] = true
			return f.Type == wire.FrameResponse
		}
		for _, m := range b.srv.Methods() {
			p := goodParams()[m.Name]
			switch m.Name {
			case "channels.pairing.approve":
				p = params{"requestId": l.asks(t, family, annasNumber, "Anna").ID}
			case "channels.pairing.dismiss":
				p = params{"channel": "telegram", "accountId": "work", "requestId": l.asks(t, work, 8, "").ID}
			case "channels.pairing.revoke":
				p = params{"senderId": "7"}
			}
			s.request(m.Name, m.Name, p)
			if f := s.next(note); !f.OK {
				t.Errorf("%s: %+v", m.Name, f.Error)
			}
			if m.Name == "agent" {
				s.next(note) // its second answer
			}
			answered = append(answered, m.Name)
		}
		all.event(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run})
		s.must("sessions.subscribe", nil) // the loop has unsubscribed it
		l.publish(chat.Event{Kind: chat.EventQuestions, Session: chat.MainKey("main"), Principal: "gateway", Reason: "asked"})
		l.publish(chat.Event{Kind: chat.EventSession, Session: chat.MainKey("main"), Reason: "reset"})
		if caps != nil {
			s.request("held", "chat.send", send("agent:main:held", "wait", "r3"))
			s.next(func(f frame) bool { note(f); return f.Event == wire.EventLanes })
		}
		l.set(func() { l.down = true })
		b.srv.Drain()
		s.next(func(f frame) bool { note(f); return f.Event == wire.EventShutdown })
		s.next(func(f frame) bool { note(f); return f.Event == wire.EventHealth })
		p, err := published()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(answered)
		if !slices.Equal(answered, p.Methods()) {
			t.Errorf("answers of %v, want %v", answered, p.Methods())
		}
		for _, name := range p.Events() {
			if !seen[name] && (caps != nil || name != wire.EventLanes && name != wire.EventQuestions) {
				t.Errorf("no event %s was seen with %v", name, caps)
			}
		}
	}
}
