package teste2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testmodel"
	"laneway/internal/testpg"
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

// checkRunEvents reports errors in the events of a run: more than one end, an event after the end,
// a number that does not increase. The life cycle event of an end has the number of the end.
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

// The scheduler is restarted during a turn that has written text. The second attempt continues the
// numbers of the first, so that a client which drops old numbers receives the text that replaces
// the first one.
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

// chatEnds collects the chat events that end runs, and the changes of sessions, of one connection.
type chatEnds struct {
	mu      sync.Mutex
	ends    map[string][]string // by run: state and text
	changes map[string]int      // by session and reason
}

func newChatEnds() *chatEnds {
	return &chatEnds{ends: map[string][]string{}, changes: map[string]int{}}
}

func (e *chatEnds) take(ev Event) {
	var p struct {
		RunID, State, SessionKey, Reason, ErrorMessage string
		Message                                        struct{ Content []struct{ Text string } }
	}
	if json.Unmarshal(ev.Payload, &p) != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case ev.Name == "sessions.changed":
		e.changes[p.SessionKey+" "+p.Reason]++
	case ev.Name == "chat" && p.State != "delta":
		text := []string{p.ErrorMessage}
		for _, c := range p.Message.Content {
			text = append(text, c.Text)
		}
		e.ends[p.RunID] = append(e.ends[p.RunID], p.State+" "+strings.Join(text, ""))
	}
}

func (e *chatEnds) of(run string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[run]
}

func (e *chatEnds) changed(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changes[what]
}

// Messages are sent through one replica and run on another one. The sender, and subscribers of
// either replica, receive each end once, with the complete text.
func TestEndsOfRunsReachClientsOfEveryReplica(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	heard := []*chatEnds{newChatEnds(), newChatEnds()}
	var clients []*Client
	for _, h := range heard {
		g := Install(t, database, "cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n")
		g.Start()
		c := mustDial(t, g, h.take)
		if _, err := c.Call("sessions.subscribe", map[string]any{}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	n := 0
	testrun.Eventually(t, "both hear of each other", func() bool {
		n++
		a, b := fmt.Sprint("warm-a", n), fmt.Sprint("warm-b", n)
		say(t, clients[0], "agent:main:ours", a, "hello")
		say(t, clients[1], "agent:main:theirs", b, "hello")
		pause(300 * time.Millisecond)
		return len(heard[1].of(a)) == 1 && len(heard[0].of(b)) == 1
	})
	long := strings.Repeat("a long answer with \u00fcmlauts and \"quotes\" ", 300)
	want := map[string]string{"short": "final short text", "long": "final " + long, "broken": "error ", "stopped": "aborted ", "help": "final "}
	for i, session := range []string{"agent:main:ours", "agent:main:theirs"} { // whichever replica owns them, messages are sent through the first one
		at := fmt.Sprint("-", i)
		started := heard[i].changed(session + " run.started")
		say(t, clients[0], session, "short"+at, "short text")
		say(t, clients[0], session, "long"+at, long)
		say(t, clients[0], session, "broken"+at, "fail refusal")
		say(t, clients[0], session, "help"+at, "/help")
		say(t, clients[0], session, "stopped"+at, "sleep 30s")
		testrun.Eventually(t, "the last one runs", func() bool {
			return len(heard[i].of("broken"+at)) == 1 && heard[i].changed(session+" run.started") >= started+4
		})
		say(t, clients[0], session, "stop"+at, "/stopall")
		for k, h := range heard {
			for run, end := range want {
				testrun.Eventually(t, fmt.Sprintf("a client of replica %d hears the end of %s", k, run+at), func() bool { return len(h.of(run+at)) > 0 })
				if got := h.of(run + at); len(got) != 1 || !strings.HasPrefix(got[0], end) || (run == "long" && got[0] != end) {
					t.Errorf("a client of replica %d heard %d ends of %s, such as %.80q; want %.80q", k, len(got), run+at, got[0], end)
				}
			}
			testrun.Eventually(t, fmt.Sprintf("a client of replica %d hears of the session", k), func() bool { return h.changed(session+" run.finished") >= 4 })
		}
	}
}

// An idempotency key belongs to the principal that uses it. The same key of another principal is
// another call with its own run. Each principal sees its run under that key and receives no event
// of the other's.
func TestAKeyThatAnotherUsesIsFree(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		const write = "write-token-0123456789-abcdefghijklmnopq"
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nlimits: {cron_writes: 0, chat: 0}\n")
		g.env = append(g.env, "LANEWAY_WRITE_TOKEN="+write)
		g.Start()
		all := []string{chat.ScopeRead, chat.ScopeWrite, chat.ScopeAdmin}
		tokens := map[string]string{"gateway": g.Token(), "write": write, "anna": g.named(t, "anna"), "otto": g.namedFor(t, "otto", "write")}
		callers := map[string]*resetter{}
		for name, token := range tokens {
			callers[name] = newResetter(t, g, token, all...)
		}
		session := func(name string) string { return "agent:main:of-" + name }
		for _, method := range []string{"chat.send", "agent"} {
			key := "one-key-" + method[:4]
			for name, c := range callers {
				for again := range 2 {
					p := map[string]any{"sessionKey": session(name), "message": "hello of " + name, "idempotencyKey": key}
					raw, err := c.Call(method, p, 30*time.Second)
					var first struct{ RunID, Status string }
					if err != nil || json.Unmarshal(raw, &first) != nil || first.RunID != key {
						t.Errorf("%s by %s, time %d: %s %v", method, name, again+1, raw, err)
					}
				}
			}
		}
		for name, c := range callers {
			testrun.Eventually(t, name+" hears its own end", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.ends["one-key-chat"] != "" && c.ends["one-key-agen"] != ""
			})
			var h struct {
				Messages []struct {
					RunID    string
					Openclaw struct{ IdempotencyKey string } `json:"__openclaw"` //nolint:tagliatelle // the name of the other gateway
				}
				SessionInfo struct{ LastRunID string }
			}
			if err := c.Into(&h, "chat.history", map[string]any{"sessionKey": session(name)}); err != nil {
				t.Fatal(err)
			}
			if len(h.Messages) != 4 || h.Messages[0].RunID != "one-key-chat" || h.Messages[0].Openclaw.IdempotencyKey != "one-key-chat:user" || h.SessionInfo.LastRunID != "one-key-agen" {
				t.Errorf("%s reads %+v", name, h)
			}
		}
		for name, c := range callers {
			for _, key := range []string{"one-key-chat", "one-key-agen"} {
				for _, method := range []string{"chat.send", "agent"} {
					_, err := c.Call(method, map[string]any{"sessionKey": session(name), "message": "something else", "idempotencyKey": key}, 30*time.Second)
					if wire, ok := errors.AsType[*WireError](err); !ok || wire.Details["code"] != "IDEMPOTENCY_KEY_REUSED" || wire.Details["idempotencyKey"] != key {
						t.Errorf("%s by %s with the key of another call of its own: %v", method, name, err)
					}
				}
			}
		}
		if n := OpenOracle(t, g, database).Count("SELECT count(*) FROM inbox"); n != 2*len(callers) {
			t.Errorf("%d messages of %d calls", n, 2*len(callers))
		}
	})
}
