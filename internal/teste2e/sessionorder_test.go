package teste2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// Many sessions get many messages through every replica, the next one of a session as soon as the
// last one is accepted: far more than replicas tell each other about at once.
func TestReplicasKeepTheOrderOfEachSession(t *testing.T) {
	NeedsProcesses(t)
	t.Parallel()
	for _, replicas := range []int{2, 3} {
		for _, limit := range []int{10, 10_000} {
			for _, kills := range []int{0, testrun.Size(4, 40)} {
				if !testrun.Long() && (replicas == 3) != (limit == 10) {
					continue // the long run has every combination
				}
				t.Run(fmt.Sprintf("%d replicas, cap %d, %d kills", replicas, limit, kills), func(t *testing.T) {
					crowd{t: t, replicas: replicas, limit: limit, kills: kills}.run()
				})
			}
		}
	}
}

// crowd is the people who write at once, and the replicas that they write to.
type crowd struct {
	t                      *testing.T
	replicas, limit, kills int
}

func (c crowd) run() {
	t, database := c.t, testpg.DB(c.t)
	sessions, each := testrun.Size(60, 500), 20
	var gateways []*Gateway
	for range c.replicas {
		g := Install(t, database, fmt.Sprintf("cluster: {lease: 3s, heartbeat: 500ms}\nqueue: {cap: %d, debounce_ms: 0}\nlimits: {chat: 0, requests: 0}\nagents: {main: {runner: echo}}\n", c.limit))
		g.Start()
		gateways = append(gateways, g)
	}
	oracle := OpenOracle(t, gateways[0], database)
	var accepted atomic.Int64
	var writers, killer sync.WaitGroup
	done := make(chan struct{})
	killer.Go(func() {
		for range c.kills {
			select {
			case <-done:
				return
			case <-time.After(300 * time.Millisecond):
			}
			g := gateways[rand.IntN(len(gateways))]
			g.Kill()
			if err := g.TryStart(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	next := make(chan int)
	for range 24 {
		writers.Go(func() {
			w := writer{gateways: gateways, conns: make([]*Client, len(gateways))}
			defer w.close()
			for n := range next {
				for i := range each {
					if err := w.send(n, i); err != nil {
						t.Errorf("message %d of session %d: %v", i, n, err)
						return
					}
					accepted.Add(1)
				}
			}
		})
	}
	for n := range sessions {
		next <- n
	}
	close(next)
	writers.Wait()
	close(done)
	killer.Wait()
	c.drained(oracle)
	c.inOrder(oracle)
	if got := oracle.Count(`SELECT count(*) FROM inbox`); got != sessions*each || int(accepted.Load()) != got {
		t.Errorf("%d messages are stored, %d were accepted, want %d", got, accepted.Load(), sessions*each)
	}
	oracle.Check(3 * time.Second)
}

// drained waits for the end of all messages. While any waits, one ends every five seconds, or every
// lease and five seconds after a kill.
func (c crowd) drained(oracle *Oracle) {
	c.t.Helper()
	still, last, since := 5*time.Second, -1, time.Now()
	if c.kills > 0 {
		still += 3 * time.Second
	}
	for {
		left := oracle.Count(`SELECT count(*) FROM inbox WHERE state <> 'done'`)
		if left == 0 {
			return
		}
		if left != last {
			last, since = left, time.Now()
		}
		if time.Since(since) > still {
			c.t.Fatalf("%d messages wait, and none has ended for %s:\n%s", left, still,
				strings.Join(oracle.Rows(`SELECT session_key, count(*) FROM inbox WHERE state <> 'done' GROUP BY session_key LIMIT 10`), "\n"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// inOrder checks that the turns of each session began in the order in which its messages were
// accepted, each once, and that every message has an outcome. Of many kills some meet a turn three
// times, and its message is parked.
func (c crowd) inOrder(oracle *Oracle) {
	c.t.Helper()
	ends := `'answered'`
	if c.kills >= 3 {
		ends += `, 'dead'`
	}
	for _, row := range oracle.Rows(`SELECT outcome, count(*) FROM inbox WHERE outcome NOT IN ('dropped', ` + ends + `) GROUP BY outcome`) {
		c.t.Errorf("outcome %s", row)
	}
	begun := oracle.Count(`SELECT count(*) FROM inbox WHERE outcome IN (` + ends + `)`)
	texts := oracle.Rows(`SELECT content FROM transcript WHERE role = 'user' ORDER BY session_key, seq`)
	if len(texts) != begun {
		c.t.Errorf("%d messages are in transcripts, %d were answered or parked", len(texts), begun)
	}
	if !slices.IsSorted(texts) {
		wrong := 0
		for i := 1; i < len(texts); i++ {
			if texts[i] < texts[i-1] {
				wrong++
			}
		}
		c.t.Errorf("%d of %d messages began before an earlier one", wrong, len(texts))
	}
	if len(slices.Compact(texts)) != begun {
		c.t.Error("a message began twice")
	}
}

// writer sends messages through one replica after another.
type writer struct {
	gateways []*Gateway
	conns    []*Client
	turn     int
}

func (w *writer) close() {
	for _, c := range w.conns {
		if c != nil {
			c.Close()
		}
	}
}

// send sends a message until a replica has accepted it. Each message goes to another replica.
func (w *writer) send(session, i int) (err error) {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
		w.turn++
		at := w.turn % len(w.gateways)
		if g := w.gateways[at]; w.conns[at] == nil {
			if w.conns[at], err = Dial(g.URL(), g.Token(), nil); err != nil {
				w.conns[at] = nil
				continue
			}
		}
		_, err = w.conns[at].Call("chat.send", map[string]any{
			"sessionKey": fmt.Sprintf("agent:main:s%03d", session), "message": fmt.Sprintf("s%03d message %02d", session, i), "idempotencyKey": fmt.Sprintf("s%d-%d", session, i),
		}, 10*time.Second)
		if err == nil {
			return nil
		}
		w.conns[at].Close()
		w.conns[at] = nil
	}
	return err
}
