package teste2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"laneway/internal/testpg"
)

// TestAnInterruptIsNeverRefusedForAFullQueue fills a queue behind a running turn and interrupts: everything that waited and ran ends superseded, whatever
// the drop policy, and the interrupting message is answered.
func TestAnInterruptIsNeverRefusedForAFullQueue(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		for _, drop := range []string{"old", "new"} {
			t.Run(drop, func(t *testing.T) {
				if database != "" {
					database = testpg.DB(t)
				}
				g := Install(t, database, "queue: {cap: 2, drop: "+drop+"}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n")
				g.Start()
				w, c := watch(t, g), mustDial(t, g, nil)
				for i, text := range []string{"sleep 1h", "one", "two"} {
					say(t, c, "agent:main:main", strconv.Itoa(i), text)
				}
				p := map[string]any{"sessionKey": "agent:main:main", "message": "now", "idempotencyKey": "now", "queueMode": "interrupt"}
				if _, err := c.Call("chat.send", p, 30*time.Second); err != nil {
					t.Fatalf("the interrupt was refused: %v", err)
				}
				if end := w.await(t, "now"); end.state != "final" || end.text != "now" {
					t.Errorf("the interrupt ended %s", end)
				}
				for i := range 3 {
					if end := w.await(t, strconv.Itoa(i)); end.state != "aborted" || end.reason != "superseded" {
						t.Errorf("message %d ended %s %q", i, end, end.text)
					}
				}
				for _, run := range []string{"0", "1", "2", "now"} {
					checkRunEvents(t, run, w.of(run))
				}
				o := OpenOracle(t, g, database)
				if got := strings.Join(o.Rows("SELECT message_id, outcome FROM inbox ORDER BY seq"), " "); got != "0|superseded 1|superseded 2|superseded now|answered" {
					t.Errorf("outcomes %s", got)
				}
				o.Check(15 * time.Second)
			})
		}
	})
}
