package teste2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// cronEvents collects the cron events of one connection, by their subject.
type cronEvents struct {
	mu   sync.Mutex
	seen map[string][]map[string]any
}

func (e *cronEvents) take(ev Event) {
	if ev.Name != "cron" {
		return
	}
	var p map[string]any
	if json.Unmarshal(ev.Payload, &p) != nil {
		return
	}
	key := fmt.Sprint(p["action"])
	if run, ok := p["runId"].(string); ok {
		key += " " + run
	} else if job, ok := p["job"].(map[string]any); ok {
		key += fmt.Sprint(" ", p["jobId"], " ", job["configRevision"])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[string][]map[string]any{}
	}
	e.seen[key] = append(e.seen[key], p)
}

func (e *cronEvents) keys() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.seen))
}

func (e *cronEvents) of(key string) []map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen[key])
}

func (e *cronEvents) has(prefix string, n int) bool {
	count := 0
	for _, key := range e.keys() {
		if strings.HasPrefix(key, prefix) {
			count++
		}
	}
	return count >= n
}

// Jobs are changed on one replica, and runs execute on either: clients of both receive the same events, each once.
func TestCronEventsReachClientsOfEveryReplica(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	all := []*Gateway{Install(t, database, cronConfig), Install(t, database, cronConfig)}
	heard := []*cronEvents{{}, {}}
	var clients []*Client
	for i, g := range all {
		g.Start()
		c, err := Dial(g.URL(), g.Token(), heard[i].take)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	c := clients[0]
	warm := addJob(t, c, "warm", map[string]any{"kind": "cron", "expr": "0 0 1 1 *"}, nil)
	testrun.Eventually(t, "both replicas listen", func() bool {
		toggle(t, c, warm.ID)
		return heard[1].has("updated "+warm.ID, 1)
	})
	before := []int{len(heard[0].keys()), len(heard[1].keys())}
	tick := addJob(t, c, "tick", every(time.Second), nil)
	failing := addJob(t, c, "failing", at(time.Now().Add(3*time.Second)), map[string]any{ // later than the time that a busy machine needs for the call
		"payload": map[string]any{"kind": "agentTurn", "message": "fail overloaded"}, "retry": map[string]any{"maxRetries": 1, "baseMs": 200, "maxMs": 200},
	})
	reminder := addJob(t, c, "reminder", at(time.Now().Add(3*time.Second)), nil)
	for i, h := range heard {
		testrun.Eventually(t, fmt.Sprintf("replica %d heard of every run", i), func() bool {
			return h.has("finished schedule:"+tick.ID, 3) && h.has("scheduled schedule:"+failing.ID, 1) && h.has("finished schedule:"+failing.ID, 1) &&
				h.has("started schedule:"+failing.ID, 1) && h.has("finished schedule:"+reminder.ID, 1)
		})
	}
	if _, err := c.Call("cron.remove", map[string]any{"id": tick.ID}, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	testrun.Eventually(t, "the other replica heard of the removal", func() bool { return heard[1].has("removed "+tick.ID, 1) })
	if d := time.Since(asked); d > 2*time.Second {
		t.Logf("the removal was heard after %s", d)
	}
	for _, k := range []int{0, 1} { // events before both subscribed may be missing on one of them
		if len(heard[k].keys()) <= before[k] {
			t.Fatalf("replica %d heard nothing new", k)
		}
	}
	same := func(a, b string) bool { return a == b }
	mine := func(h *cronEvents) []string {
		return slices.DeleteFunc(h.keys(), func(key string) bool { return strings.Contains(key, warm.ID) })
	}
	testrun.Eventually(t, "both heard the same", func() bool { return slices.EqualFunc(mine(heard[0]), mine(heard[1]), same) })
	for _, key := range mine(heard[0]) {
		a, b := heard[0].of(key), heard[1].of(key)
		if len(a) != 1 || len(b) != 1 {
			t.Errorf("%s was told %d and %d times", key, len(a), len(b))
			continue
		}
		delete(a[0], "job") // its plan continues while the other one reads it
		delete(b[0], "job")
		delete(a[0], "nextRunAtMs")
		delete(b[0], "nextRunAtMs")
		if got, want := asJSON(t, b[0]), asJSON(t, a[0]); got != want {
			t.Errorf("%s: one heard %s, the other %s", key, want, got)
		}
	}
}

func toggle(t *testing.T, c *Client, job string) {
	t.Helper()
	for _, enabled := range []bool{false, true} {
		if _, err := c.Call("cron.toggle", map[string]any{"jobId": job, "enabled": enabled}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}
