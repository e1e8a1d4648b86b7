package teste2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStartsOfAGroupAreInTheOrderOfAcceptance sends nine messages to each of fifteen groups, each after the answer to the one before, of which three may run
// at once and end together: the transcript has them in the order in which they were sent, and so have the runs.
func TestStartsOfAGroupAreInTheOrderOfAcceptance(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "lanes: {main: 60}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n").AtOnce()
		g.Start()
		const groups, messages = 15, 9
		w := watch(t, g)
		var senders sync.WaitGroup
		for i := range groups {
			c := mustDial(t, g, nil)
			senders.Go(func() {
				for k := range messages {
					p := map[string]any{"sessionKey": fmt.Sprintf("agent:main:web:group:%d", i), "message": fmt.Sprintf("sleep %dms", 150+k), "idempotencyKey": fmt.Sprintf("g%d-%d", i, k)}
					if _, err := c.Call("chat.send", p, 30*time.Second); err != nil {
						t.Errorf("g%d-%d: %v", i, k, err)
					}
				}
			})
		}
		senders.Wait()
		for i := range groups {
			for k := range messages {
				w.await(t, fmt.Sprintf("g%d-%d", i, k))
			}
		}
		o := OpenOracle(t, g, database)
		broken := 0
		for i := range groups {
			key := fmt.Sprintf("agent:main:web:group:%d", i)
			rows := o.Rows("SELECT content FROM transcript WHERE role = 'user' AND session_key = '" + key + "' ORDER BY seq")
			want := make([]string, 0, messages)
			for k := range messages {
				want = append(want, fmt.Sprintf("sleep %dms", 150+k))
			}
			if strings.Join(rows, " ") != strings.Join(want, " ") {
				broken++
				t.Logf("%s: user rows %q", key, rows)
			}
		}
		if broken > 0 {
			t.Errorf("%d of %d groups have user rows out of order", broken, groups)
		}
		o.Check(15 * time.Second)
	})
}
