package teste2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

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

// Messages are sent through one replica and run on another one. The sender, and subscribers of either replica, receive each end once, with
// the complete text.
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
