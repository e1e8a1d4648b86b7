package teste2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testmodel"
)

// The load of trees: every lane has loadSlots slots, and each turn takes loadTurn for each request to its model.
const (
	loadSlots = 5
	loadTurn  = 200 * time.Millisecond
)

// TestTreesKeepTheThroughputOfTheirTurns runs roots with eight sub-turns each while the lanes are full, and the same turns without trees, in one gateway. The trees
// need at most a tenth more time. Meanwhile no lane shows more turns than it has slots, doctor finds nothing, and all slots are free at the end.
func TestTreesKeepTheThroughputOfTheirTurns(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		roots := number(t, "LANEWAY_TEST_TREES", 40)
		model := testmodel.Start(t)
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch {
			case len(call.Results()) > 0:
				return testmodel.Reply{Delay: loadTurn, Pieces: []string{"done"}}
			case call.Last() == "long":
				return testmodel.Reply{Delay: 2 * loadTurn, Pieces: []string{"done"}}
			case call.Last() == "tree":
				reply := testmodel.Reply{Delay: loadTurn}
				for i := range 8 {
					reply.Calls = append(reply.Calls, taskCall(fmt.Sprint("c", i), "", "short", true))
				}
				return reply
			default:
				return testmodel.Reply{Delay: loadTurn, Pieces: []string{"short"}}
			}
		})
		slots := fmt.Sprintf("lanes: {main: %[1]d, subagent: %[1]d, team: %[1]d, cron: %[1]d}\n", loadSlots)
		g := Install(t, database, strings.Replace(toolsConfig(model), "limits: {", "limits: {waiting: 0, ", 1)+slots)
		g.Start()
		l := &treeLoad{t: t, g: g, o: OpenOracle(t, g, database), c: mustDial(t, g, nil)}
		alone := l.measure(func() {
			l.each(roots, func(i int) {
				say(t, l.c, fmt.Sprintf("agent:main:alone-%d", i), fmt.Sprintf("alone-%d", i), "long")
				for j := range 8 {
					id := fmt.Sprintf("alone-%d-%d", i, j)
					if _, err := l.c.Call("agent", map[string]any{"sessionKey": "agent:main:" + id, "message": "short", "idempotencyKey": id, "lane": "subagent"}, 30*time.Second); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		})
		trees := l.measure(func() {
			l.each(roots, func(i int) {
				say(t, l.c, fmt.Sprintf("agent:main:root-%d", i), fmt.Sprintf("root-%d", i), "tree")
			})
		})
		ratio := alone.Seconds() / trees.Seconds()
		t.Logf("%d roots with 8 sub-turns: %s, the same turns without trees: %s, throughput %.0f %%", roots, trees.Round(time.Millisecond), alone.Round(time.Millisecond), 100*ratio)
		if ratio < 0.9 {
			t.Errorf("the throughput of trees is %.0f %% of that of the same turns, want 90", 100*ratio)
		}
		if n := l.o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered' AND parent IS NOT NULL"); n != 8*roots {
			t.Errorf("%d sub-turns were answered, want %d", n, 8*roots)
		}
		if n := l.o.Count("SELECT count(*) FROM inbox WHERE outcome <> 'answered'"); n != 0 {
			t.Errorf("%d messages were not answered", n)
		}
		var lanes lanesStatus
		if err := l.c.Into(&lanes, "lanes.status", map[string]any{}); err != nil {
			t.Fatal(err)
		}
		for _, lane := range lanes.Lanes {
			if lane.Active != 0 || lane.Waiting != 0 || lane.Capacity != loadSlots {
				t.Errorf("lane %s at the end: %+v", lane.Name, lane)
			}
		}
		l.o.Check(15 * time.Second)
	})
}

// treeLoad measures how long a gateway works on something.
type treeLoad struct {
	t *testing.T
	g *Gateway
	o *Oracle
	c *Client
}

// each calls f with the numbers below n, several at once.
func (l *treeLoad) each(n int, f func(i int)) {
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < n; i += 8 {
				f(i)
			}
		})
	}
	all.Wait()
}

// measure is the time until nothing is left to do. It looks meanwhile whether the table shows more running turns than a lane has slots, and asks doctor once.
func (l *treeLoad) measure(send func()) time.Duration {
	l.t.Helper()
	begin, asked := time.Now(), false
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send()
	}()
	eventually(l.t, "everything is answered", 10*time.Minute, func() bool {
		full := fmt.Sprintf("SELECT lane, count(*) FROM runs WHERE state IN ('running', 'stopping') GROUP BY owner, lane HAVING count(*) > %d", loadSlots)
		if bad := l.o.Rows(full); len(bad) > 0 {
			l.t.Errorf("more turns run than there are slots: %v", bad)
		}
		if !asked && time.Since(begin) > 3*time.Second {
			asked = true
			if out, errs, code := l.g.CLI(l.t.Context(), "", "doctor", "--config", l.g.config); code != 0 {
				l.t.Errorf("doctor ended with %d:\n%s%s", code, out, errs)
			}
		}
		select {
		case <-sent:
			return l.o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0
		default:
			return false
		}
	})
	return time.Since(begin)
}
