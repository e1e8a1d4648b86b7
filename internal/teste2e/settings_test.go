package teste2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// The queue is set by file, by channel, by agent and by call, and each setting takes effect.
func TestQueueSettingsAreReal(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, `
queue: {mode: queue, cap: 3, drop: new}
agents:
  main: {runner: echo, script: true}
  gatherer: {runner: echo, script: true, queue: {mode: collect, cap: 10}}
  follower: {runner: echo, script: true, queue: {mode: followup, drop: old}}
limits: {chat: 0, requests: 0}
`)
		g.Start()
		e := newEndings()
		c := mustDial(t, g, e.take)
		o := OpenOracle(t, g, database)
		send := func(session, id, text, mode string) error {
			params := map[string]any{"sessionKey": session, "message": text, "idempotencyKey": id}
			if mode != "" {
				params["queueMode"] = mode
			}
			_, err := c.Call("chat.send", params, 20*time.Second)
			return err
		}
		fill := func(session, mode string) (refused []string) {
			t.Helper()
			name := strings.ReplaceAll(session, ":", "-")
			say(t, c, session, name+"-run", "sleep 2s")
			testrun.Eventually(t, "the turn of "+session+" runs", func() bool {
				return o.Count("SELECT count(*) FROM runs WHERE state = 'running' AND session_key = '"+session+"'") == 1
			})
			for i := range 5 {
				err := send(session, fmt.Sprint(name, "-", i), strconv.Itoa(i), mode)
				if refusal, ok := errors.AsType[*WireError](err); ok && refusal.Details["code"] == "QUEUE_FULL" {
					refused = append(refused, strconv.Itoa(i))
				} else if err != nil {
					t.Errorf("%s, message %d: %v", session, i, err)
				}
			}
			return refused
		}
		if got := fill("agent:main:a", ""); !slices.Equal(got, []string{"3", "4"}) {
			t.Errorf("cap 3 and drop new from the file refused %q", got)
		}
		if got := fill("agent:gatherer:a", ""); len(got) != 0 {
			t.Errorf("cap 10 of the agent refused %q", got)
		}
		if got := e.end(t, "agent-gatherer-a-4"); got.text != "0\n1\n2\n3\n4" {
			t.Errorf("mode collect of the agent answered %q", got.text)
		}
		if got := fill("agent:follower:a", ""); len(got) != 0 {
			t.Errorf("drop old of the agent refused %q", got)
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE session_key = 'agent:follower:a' AND outcome = 'dropped'"); n != 2 {
			t.Errorf("drop old of the agent dropped %d", n)
		}
		if got := fill("agent:main:b", "interrupt"); len(got) != 0 {
			t.Errorf("mode interrupt of the call refused %q", got)
		}
		e.end(t, "agent-main-b-4")
		if n := o.Count("SELECT count(*) FROM inbox WHERE session_key = 'agent:main:b' AND outcome = 'superseded'"); n < 1 {
			t.Errorf("mode interrupt of the call superseded %d", n)
		}
		say(t, c, "agent:follower:a", "ask", "/queue")
		if got := e.end(t, "ask"); !strings.Contains(got.text, "Mode followup") {
			t.Errorf("/queue shows %q", got.text)
		}
		o.Check(15 * time.Second)
	})
}
