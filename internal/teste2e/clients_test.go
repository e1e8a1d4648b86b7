package teste2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

// TestEachTurnHasAContextOfItsOwn: a WebSocket client that is gone before its turn begins, a hook and an HTTP client speak to one session. All are
// answered, each turn for itself.
func TestEachTurnHasAContextOfItsOwn(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "agents: {main: {runner: echo, script: true}}\nhooks: {ci: {secret: "+hookSecret+", session: \"agent:main:shared\"}}\n")
		g.Start()
		o := OpenOracle(t, g, database)
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		say(t, c, "agent:main:shared", "first", "sleep 1s")
		say(t, c, "agent:main:shared", "gone", "by a socket that is gone")
		c.Close()
		if a := g.Hook("ci", hookSecret, `{"message":"by a hook"}`); a.Status/100 != 2 {
			t.Errorf("the hook got %d %s %v", a.Status, a.Body, a.Err)
		}
		if a := g.Complete("agent:main:shared", "by HTTP"); a.Status != http.StatusOK || !strings.Contains(a.Body, "by HTTP") {
			t.Errorf("the HTTP client got %d %s %v", a.Status, a.Body, a.Err)
		}
		testrun.Eventually(t, "all four are answered", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'") == 4
		})
		if n := o.Count("SELECT count(DISTINCT run_id) FROM inbox"); n != 4 {
			t.Errorf("%d runs for four messages", n)
		}
		got := o.Rows("SELECT content FROM transcript WHERE role = 'assistant' ORDER BY seq")
		if len(got) != 3 || got[0] != "by a socket that is gone" || got[1] != "by a hook" || got[2] != "by HTTP" { // a sleep says nothing
			t.Errorf("answers %q", got)
		}
		if out := g.Output(); strings.Contains(out, "context canceled") {
			t.Errorf("the context of another request ended a turn:\n%s", out)
		}
		o.Check(15 * time.Second)
	})
}

// TestAPanicIsAnOutcome: a runner that panics fails its turn and no other.
func TestAPanicIsAnOutcome(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "lanes: {main: 1}\nagents: {main: {runner: echo, script: true}}\n")
		g.Start()
		e := newEndings()
		c := mustDial(t, g, e.take)
		say(t, c, "main", "breaks", "panic")
		say(t, c, "main", "after", "hello")
		if got := e.end(t, "breaks"); got.state != "error" || got.text == "" || strings.Contains(got.text, "goroutine") {
			t.Errorf("the panic ended as %+v", got)
		}
		if got := e.end(t, "after"); got.state != "final" || got.text != "hello" {
			t.Errorf("the next message ended as %+v", got)
		}
		o := OpenOracle(t, g, database)
		if rows := o.Rows("SELECT outcome, reason FROM inbox WHERE message_id = 'breaks'"); fmt.Sprint(rows) != "[failed|panic]" {
			t.Errorf("the row says %v", rows)
		}
		if out := g.Output(); !strings.Contains(out, "stack=") || !strings.Contains(out, "echo.(*turn).obey") {
			t.Errorf("the log has no stack:\n%s", out)
		}
		o.Check(15 * time.Second)
	})
}

// TestAbortPassesSlowCallsOfItsSocket: dozens of calls of the same socket that cannot be answered yet do not hold up a stop.
func TestAbortPassesSlowCallsOfItsSocket(t *testing.T) {
	NeedsProcesses(t) // a time is measured
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "lanes: {main: 1}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n")
		g.Start()
		e := newEndings()
		c := mustDial(t, g, e.take)
		say(t, c, "main", "long", "sleep 1h")
		var slow sync.WaitGroup
		for i := range 64 { // each is answered at once and then again when its turn has ended
			slow.Go(func() {
				if _, err := c.Call("agent", map[string]any{"sessionKey": fmt.Sprint("agent:main:slow", i), "message": "x", "idempotencyKey": fmt.Sprint("slow", i)}, 20*time.Second); err != nil {
					t.Error(err)
				}
			})
		}
		asked := time.Now()
		var r struct {
			Aborted bool
			RunIDs  []string
		}
		if err := c.Into(&r, "chat.abort", map[string]any{"sessionKey": "main", "runId": "long"}); err != nil || !r.Aborted {
			t.Errorf("abort: %+v, %v", r, err)
		}
		if got := e.end(t, "long"); got.state != "aborted" {
			t.Errorf("the stopped turn ended %+v", got)
		}
		t.Logf("stopped after %s behind 64 calls", time.Since(asked).Round(time.Millisecond))
		if took := time.Since(asked); took > shared*200*time.Millisecond {
			t.Errorf("the stop took %s", took)
		}
		slow.Wait()
	})
}
