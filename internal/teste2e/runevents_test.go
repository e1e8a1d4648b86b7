package teste2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// runEvents collects what one connection receives about runs, in the order of arrival.
type runEvents struct {
	mu   sync.Mutex
	byID map[string][]runEvent
}

// runEvent is a chat or agent event of a run.
type runEvent struct {
	name, state, reason string // name is chat or agent; state is that of a chat event, or the phase of an agent event
	text                string // of the message, or the sentence of an error
	replace             bool
	seq                 int64
	at                  time.Time
}

func (e runEvent) String() string {
	return fmt.Sprintf("%s %s %s #%d", e.name, e.state, e.reason, e.seq)
}

// ends reports whether the event ends its run.
func (e runEvent) ends() bool { return e.name == "chat" && e.state != "delta" }

func newRunEvents() *runEvents { return &runEvents{byID: map[string][]runEvent{}} }

// take is the onEvent of a connection.
func (r *runEvents) take(ev Event) {
	var p struct {
		RunID, State, StopReason, ErrorMessage string
		Seq                                    int64
		Replace                                bool
		Data                                   struct{ Phase string }
		Message                                struct{ Content []struct{ Text string } }
	}
	if (ev.Name != "chat" && ev.Name != "agent") || json.Unmarshal(ev.Payload, &p) != nil {
		return
	}
	got := runEvent{name: ev.Name, state: p.State + p.Data.Phase, reason: p.StopReason, text: p.ErrorMessage, replace: p.Replace, seq: p.Seq, at: time.Now()}
	for _, c := range p.Message.Content {
		got.text += c.Text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byID[p.RunID] = append(r.byID[p.RunID], got)
}

func (r *runEvents) of(run string) []runEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]runEvent(nil), r.byID[run]...)
}

// end returns the event that ended a run; false when none has arrived.
func (r *runEvents) end(run string) (runEvent, bool) {
	for _, e := range r.of(run) {
		if e.ends() {
			return e, true
		}
	}
	return runEvent{}, false
}

// await waits for the end of a run.
func (r *runEvents) await(t *testing.T, run string) runEvent {
	t.Helper()
	var end runEvent
	testrun.Eventually(t, "the end of "+run, func() (ok bool) { end, ok = r.end(run); return ok })
	return end
}

// watch subscribes a new connection.
func watch(t *testing.T, g *Gateway) *runEvents {
	t.Helper()
	r := newRunEvents()
	if _, err := mustDial(t, g, r.take).Call("sessions.subscribe", map[string]any{}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	return r
}

// checkRunEvents reports errors in the events of a run: more than one end, an event after the end, a number that does not increase. The
// life cycle event of an end has the number of the end.
func checkRunEvents(t *testing.T, run string, events []runEvent) {
	t.Helper()
	ended, last := false, int64(0)
	for i, e := range events {
		if ended || (e.name == "chat" && e.seq <= last && (!e.ends() || e.seq <= 0 || i == 0 || events[i-1].name != "agent" || e.seq != last)) {
			t.Errorf("events of %s are out of order: %v", run, events)
			return
		}
		if e.name == "chat" {
			last = e.seq
		}
		ended = ended || e.ends()
	}
	if !ended {
		t.Errorf("run %s has no end: %v", run, events)
	}
}

// interrupting sends a message in mode interrupt and does not wait for the answer.
func interrupting(c *Client, wg *sync.WaitGroup, t *testing.T, session, id, text string) {
	wg.Go(func() {
		p := map[string]any{"sessionKey": session, "message": text, "idempotencyKey": id, "queueMode": "interrupt"}
		if _, err := c.Call("chat.send", p, 30*time.Second); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	})
}

// Twenty messages interrupt each other without waiting for the answers. For each run, another connection receives one end, nothing after
// it, and increasing numbers.
func TestNothingFollowsTheEndOfARun(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true, delay: 5ms}}\nlimits: {chat: 0, requests: 0}\n")
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		const runs = 20
		for round := range 5 {
			var sent sync.WaitGroup
			for i := range runs {
				interrupting(c, &sent, t, "agent:main:main", fmt.Sprintf("r%d-%d", round, i), "hello "+strconv.Itoa(i))
			}
			sent.Wait()
			for i := range runs {
				w.await(t, fmt.Sprintf("r%d-%d", round, i))
			}
		}
		say(t, c, "agent:main:main", "last", "behind everything")
		w.await(t, "last")
		pause(200 * time.Millisecond) // an event after an end in error would arrive at once
		for round := range 5 {
			for i := range runs {
				run := fmt.Sprintf("r%d-%d", round, i)
				checkRunEvents(t, run, w.of(run))
			}
		}
		OpenOracle(t, g, database).Check(15 * time.Second)
	})
}

// historyOf returns a conversation, one line for each part of a message.
func historyOf(t *testing.T, c *Client, session string) string {
	t.Helper()
	var history struct {
		Messages []struct {
			Role    string
			Content []struct{ Text string }
		}
	}
	if err := c.Into(&history, "chat.history", map[string]any{"sessionKey": session}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range history.Messages {
		for _, part := range m.Content {
			out.WriteString(m.Role + ": " + part.Text + "\n")
		}
	}
	return out.String()
}

// The scheduler is restarted during a turn that has written text. The second attempt continues the numbers of the first, so that a client
// which drops old numbers receives the text that replaces the first one.
func TestNumbersOfARunGoOnAfterARestartInPlace(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			if call.Number == 1 {
				return testmodel.Reply{Pieces: []string{"one ", "two ", "three "}, Hang: true}
			}
			return testmodel.Reply{Pieces: []string{"new ", "text"}}
		})
		g := Install(t, database, fmt.Sprintf("agents: {main: {runner: openai, model: test, base_url: %q, retries: 0}}\n", model.URL()+"/v1"))
		g.Start()
		w, c := watch(t, g), mustDial(t, g, nil)
		say(t, c, "agent:main:main", "run", "hello")
		testrun.Eventually(t, "the first words", func() bool {
			for _, e := range w.of("run") {
				if e.text == "one two three " {
					return true
				}
			}
			return false
		})
		g.Signal(syscall.SIGUSR1)
		if end := w.await(t, "run"); end.state != "final" || end.text != "new text" {
			t.Errorf("the run ended %s %q", end, end.text)
		}
		checkRunEvents(t, "run", w.of("run"))
		replaced := false
		for _, e := range w.of("run") {
			replaced = replaced || e.replace
		}
		if !replaced {
			t.Errorf("no delta replaces the text of the first attempt: %v", w.of("run"))
		}
	})
}
