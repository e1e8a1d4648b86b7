package teste2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"laneway/internal/testrun"
)

type lanesStatus struct {
	Lanes []struct {
		Name                                 string
		Capacity, Active, Stopping, Waiting  int
		Yielded                              int
		Started, Finished, Failed, Cancelled int64
	}
	Drops struct{ Old, New int64 }
}

func (l lanesStatus) main() (capacity, active int, finished int64) {
	for _, lane := range l.Lanes {
		if lane.Name == "main" {
			return lane.Capacity, lane.Active, lane.Finished
		}
	}
	return 0, 0, 0
}

// A lane of one slot is filled with turns of one second from six sessions through five entry
// points: they take six seconds, and calls that need no slot are answered meanwhile. (Telegram has
// a separate test.)
func TestEverythingUsesLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "lanes: {main: 1}\nagents: {main: {runner: echo, script: true}}\nhooks: {ci: {secret: "+hookSecret+", session: \"agent:main:l4\"}}\n").AtOnce()
		g.Start()
		o := OpenOracle(t, g, database)
		job := addJob(t, connect(t, g), "yearly", map[string]any{"kind": "cron", "expr": "0 0 1 1 *"}, nil)
		began := time.Now()
		var senders sync.WaitGroup
		for i := range 6 {
			senders.Go(func() {
				c, err := Dial(g.URL(), g.Token(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				switch i {
				case 3:
					if a := g.Complete("agent:main:l3", "sleep 1s"); a.Status != http.StatusOK {
						t.Errorf("the completion got %d %s %v", a.Status, a.Body, a.Err)
					}
					return
				case 4:
					if a := g.Hook("ci", hookSecret, `{"message":"sleep 1s"}`); a.Status/100 != 2 {
						t.Errorf("the hook got %d %s %v", a.Status, a.Body, a.Err)
					}
					return
				}
				method, params := "chat.send", map[string]any{"message": "sleep 1s", "idempotencyKey": fmt.Sprintf("lane%d", i), "sessionKey": fmt.Sprintf("agent:main:l%d", i)}
				switch i % 3 {
				case 1:
					method = "agent"
				case 2:
					method, params = "wake", map[string]any{"mode": "now", "text": "sleep 1s", "sessionKey": fmt.Sprintf("agent:main:l%d", i)}
				}
				if _, err := c.Call(method, params, 30*time.Second); err != nil {
					t.Errorf("%s: %v", method, err)
				}
			})
		}
		senders.Wait()
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for method, params := range map[string]any{
			"health": nil, "lanes.status": nil, "chat.abort": map[string]any{"sessionKey": "agent:main:absent"}, "cron.cancel": map[string]any{"id": job.ID},
		} {
			asked := time.Now()
			if _, err := c.Call(method, params, 10*time.Second); err != nil {
				t.Errorf("%s while the lane is full: %v", method, err)
			}
			if took := time.Since(asked); took > time.Second {
				t.Errorf("%s while the lane is full took %s", method, took)
			}
		}
		testrun.Eventually(t, "six turns are answered", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'") == 6
		})
		if took := time.Since(began); took < 6*time.Second {
			t.Errorf("six turns of one second took %s in a lane of one slot", took)
		}
		if n := o.Count("SELECT count(*) FROM runs a JOIN runs b ON a.id < b.id AND a.started_at < b.ended_at AND b.started_at < a.ended_at"); n != 0 {
			t.Errorf("%d pairs of turns overlapped", n)
		}
		o.Check(15 * time.Second)
	})
}
