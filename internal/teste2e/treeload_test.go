package teste2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

// The load of trees. The lanes have different numbers of slots, so that the turns of loadRoots roots, their sub-turns and the plain
// messages between them fill each of them for about the same time: 200 roots for a minute.
const (
	loadTurn    = 220 * time.Millisecond // of each request to a model
	loadSpawned = 4                      // children of a root in the lane subagent, and as many in the lane team
	loadPlain   = 5                      // plain messages for each root, in the lane main
	loadRoots   = 200
)

func loadLanes() map[string]int { return map[string]int{"main": 5, "subagent": 3, "team": 3} }

// Roots with eight sub-turns each run while the lanes are full, and the same turns without trees, in one gateway. The trees need at most a
// tenth more time. Meanwhile no lane shows more turns than it has slots, doctor finds nothing, and all slots are free at the end. A short
// run has a lower limit, because the first root and the last one, which fill no lane, have more weight.
func TestTreesKeepTheThroughputOfTheirTurns(t *testing.T) {
	NeedsProcesses(t)
	roots := testrun.Size(20, loadRoots)
	least := 0.5
	if roots >= loadRoots && len(raceFlag()) == 0 { // the detector slows down the gateway
		least = 0.9
	}
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		model.Answer(loadedModel)
		var lanes strings.Builder
		for lane, slots := range loadLanes() {
			fmt.Fprintf(&lanes, "%s: %d, ", lane, slots)
		}
		g := Install(t, database, strings.Replace(toolsConfig(model), "limits: {", "limits: {waiting: 0, ", 1)+"lanes: {"+lanes.String()+"}\n").AtOnce()
		g.Start()
		l := &treeLoad{t: t, g: g, o: OpenOracle(t, g, database), c: mustDial(t, g, nil)}
		alone := l.measure(func() { l.each(roots, l.sendAlone) })
		trees := l.measure(func() { l.each(roots, l.sendTree) })
		ratio := alone.Seconds() / trees.Seconds()
		t.Logf("%d roots with %d sub-turns: %s, the same turns without trees: %s, throughput %.1f %%",
			roots, 2*loadSpawned, trees.Round(time.Millisecond), alone.Round(time.Millisecond), 100*ratio)
		if ratio < least {
			t.Errorf("the throughput of trees is %.1f %% of that of the same turns, want %.0f", 100*ratio, 100*least)
		}
		if n := l.o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered' AND parent IS NOT NULL"); n != 2*loadSpawned*roots {
			t.Errorf("%d sub-turns were answered, want %d", n, 2*loadSpawned*roots)
		}
		if n := l.o.Count("SELECT count(*) FROM inbox WHERE outcome <> 'answered'"); n != 0 {
			t.Errorf("%d messages were not answered", n)
		}
		wantFreeLanes(t, l.c)
		l.o.Check(15 * time.Second)
	})
}

// loadedModel answers `tree` with calls for eight tasks, `long` after the time of two requests, and any other message after that of one.
func loadedModel(call testmodel.Call) testmodel.Reply {
	switch {
	case len(call.Results()) > 0:
		return testmodel.Reply{Delay: loadTurn, Pieces: []string{"done"}}
	case call.Last() == "long":
		return testmodel.Reply{Delay: 2 * loadTurn, Pieces: []string{"done"}}
	case call.Last() == "tree":
		reply := testmodel.Reply{Delay: loadTurn}
		for i := range loadSpawned {
			reply.Calls = append(reply.Calls, taskCall(fmt.Sprint("a", i), "", "short", true), taskCall(fmt.Sprint("b", i), "sister", "short", true))
		}
		return reply
	default:
		return testmodel.Reply{Delay: loadTurn, Pieces: []string{"short"}}
	}
}

// wantFreeLanes reports lanes with running or waiting work.
func wantFreeLanes(t *testing.T, c *Client) {
	t.Helper()
	var lanes lanesStatus
	if err := c.Into(&lanes, "lanes.status", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	for _, lane := range lanes.Lanes {
		if lane.Active != 0 || lane.Waiting != 0 || lane.Yielded != 0 {
			t.Errorf("lane %s at the end: %+v", lane.Name, lane)
		}
	}
}

// treeLoad measures how long a gateway works on a load.
type treeLoad struct {
	t *testing.T
	g *Gateway
	o *Oracle
	c *Client
}

// each calls f with the numbers below n, several concurrently.
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

// send sends a message into a separate session.
func (l *treeLoad) send(agent, lane, id, text string) {
	params := map[string]any{"sessionKey": "agent:" + agent + ":" + id, "message": text, "idempotencyKey": id, "lane": lane}
	if _, err := l.c.Call("agent", params, time.Minute); err != nil {
		l.t.Errorf("%s: %v", id, err)
	}
}

func (l *treeLoad) sendPlain(kind string, i int) {
	for j := range loadPlain {
		l.send("main", "main", fmt.Sprintf("%s-plain-%d-%d", kind, i, j), "short")
	}
}

// sendAlone sends the work of a root and its sub-turns as separate messages.
func (l *treeLoad) sendAlone(i int) {
	l.send("main", "main", fmt.Sprintf("alone-%d", i), "long")
	for j := range loadSpawned {
		l.send("main", "subagent", fmt.Sprintf("alone-%d-a%d", i, j), "short")
		l.send("sister", "team", fmt.Sprintf("alone-%d-b%d", i, j), "short")
	}
	l.sendPlain("alone", i)
}

func (l *treeLoad) sendTree(i int) {
	l.send("main", "main", fmt.Sprintf("tree-%d", i), "tree")
	l.sendPlain("tree", i)
}

// measure returns the time until no work is left. Meanwhile it checks that the table shows no more running turns than a lane has slots, and
// runs doctor.
func (l *treeLoad) measure(send func()) time.Duration {
	l.t.Helper()
	begin := time.Now()
	sent, asked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		send()
	}()
	go func() {
		defer close(asked)
		<-sent
		if out, errs, code := l.g.CLI(l.t.Context(), "", "doctor", "--config", l.g.config); code != 0 {
			l.t.Errorf("doctor ended with %d:\n%s%s", code, out, errs)
		}
	}()
	testrun.Eventually(l.t, "everything is answered", func() bool {
		for lane, slots := range loadLanes() {
			full := "SELECT id FROM runs WHERE state IN ('running', 'stopping') AND lane = '" + lane + "'"
			if bad := l.o.Rows(full); len(bad) > slots {
				l.t.Errorf("%d turns run in lane %s, which has %d slots: %v", len(bad), lane, slots, bad)
			}
		}
		select {
		case <-sent:
			return l.o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0
		default:
			return false
		}
	})
	took := time.Since(begin)
	<-asked
	return took
}
