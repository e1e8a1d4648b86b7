package teste2e

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/wire"
	"laneway/internal/wire/wiretest"
)

// The program's answers to every method, with its own store and job service, and the events that follow, are compared with the published
// description of the protocol.
func TestAnswersAndEventsOfTheProgramAreAsDescribed(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		described, err := wiretest.Load("../../docs/protocol.json")
		if err != nil {
			t.Fatal(err)
		}
		g := Install(t, database, "agents: {main: {runner: echo}}\nlimits: {chat: 0, requests: 0, cron_writes: 0}\n")
		g.Start()
		events := make(chan Event, 1000)
		c, err := Dial(g.URL(), g.Token(), func(ev Event) { events <- ev })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := described.Answer("connect", c.hello); err != nil {
			t.Error(err)
		}
		if _, err := c.Call("sessions.subscribe", map[string]any{"limit": 10}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		job := addJob(t, c, "described", map[string]any{"kind": "every", "everyMs": 3_600_000}, map[string]any{"retry": map[string]any{"maxRetries": 1}})
		var run struct{ RunID string }
		if err := c.Into(&run, "cron.run", map[string]any{"id": job.ID}); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		finished := func(ev Event) bool {
			return ev.Name == "cron" && strings.Contains(string(ev.Payload), `"action":"finished"`)
		}
		for done := false; !done; {
			select {
			case ev := <-events:
				seen[ev.Name], done = true, finished(ev)
				if ev.Name == wire.EventChallenge {
					continue
				}
				if err := described.Event(ev.Name, ev.Payload); err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("the run did not end; events: %v", seen)
			}
		}
		answered := 0
		for n, m := range publishedMethods(t) {
			payload, err := c.Call(m.Name, honest(m.Name, job.ID, n), 30*time.Second)
			if err != nil { // jobs, questions and pairings that do not exist
				continue
			}
			answered++
			if err := described.Answer(m.Name, payload); err != nil {
				t.Error(err)
			}
		}
		if all := len(publishedMethods(t)); answered < all-10 {
			t.Errorf("%d of %d methods answered", answered, all)
		}
		for _, name := range []string{"chat", "agent", "sessions.changed", "cron"} {
			if !seen[name] {
				t.Errorf("no event %s", name)
			}
		}
	})
}
