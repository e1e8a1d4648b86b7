package teste2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

// endings collects how runs ended, from the events of one connection.
type endings struct {
	mu    sync.Mutex
	ends  map[string]ending // by run id
	of    map[string]int    // ends per session and state
	fresh chan struct{}     // closed and replaced with each end
}

type ending struct {
	state string // final, aborted, error
	text  string
	at    time.Time
}

func newEndings() *endings {
	return &endings{ends: map[string]ending{}, of: map[string]int{}, fresh: make(chan struct{})}
}

// take is the onEvent of a connection.
func (e *endings) take(event Event) {
	at := time.Now()
	var p struct {
		RunID, SessionKey, State, ErrorMessage string
		Message                                struct {
			Content []struct{ Text string }
		}
	}
	if event.Name != "chat" || json.Unmarshal(event.Payload, &p) != nil || p.State == "delta" {
		return
	}
	text := p.ErrorMessage
	if len(p.Message.Content) > 0 {
		text = p.Message.Content[0].Text
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ends[p.RunID] = ending{p.State, text, at}
	e.of[p.SessionKey+" "+p.State]++
	close(e.fresh)
	e.fresh = make(chan struct{})
}

// count returns how many runs of a session ended like this.
func (e *endings) count(session, state string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of[session+" "+state]
}

// until waits until ok holds; it is called under the mutex and again after each end.
func (e *endings) until(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		e.mu.Lock()
		done, fresh := ok(), e.fresh
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-fresh:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// ended reports whether a run has ended.
func (e *endings) ended(run string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ends[run].state != ""
}

// end waits for the end of a run.
func (e *endings) end(t testing.TB, run string) ending {
	t.Helper()
	var got ending
	e.until(t, "the end of "+run, 30*time.Second, func() bool { got = e.ends[run]; return got.state != "" })
	return got
}

// mustDial connects, and closes at the end of the test.
func mustDial(t testing.TB, g *Gateway, onEvent func(Event)) *Client {
	t.Helper()
	c, err := Dial(g.URL(), g.Token(), onEvent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// say sends a text with its own key, which is the run id.
func say(t testing.TB, c *Client, session, id, text string) {
	t.Helper()
	_, err := c.Call("chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": id}, 30*time.Second)
	if err != nil {
		t.Fatalf("%s to %s: %v", text, session, err)
	}
}

// fillLanes fills every lane with turns that do not end and lets messages wait for them: thirty
// sessions share them in the lane main.
func fillLanes(t testing.TB, g *Gateway, waiting int) {
	t.Helper()
	c := mustDial(t, g, nil)
	for _, lane := range []string{"subagent", "team", "cron"} {
		for i := range 2 {
			key := fmt.Sprint(lane, i)
			if _, err := c.Call("agent", map[string]any{"sessionKey": "agent:main:" + key, "message": "sleep 1h", "idempotencyKey": key, "lane": lane}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for s := range 30 {
		wg.Go(func() {
			for i := range waiting/30 + 1 {
				key := fmt.Sprintf("w%d-%d", s, i)
				_, err := c.Call("chat.send", map[string]any{"sessionKey": "agent:main:crowd" + strconv.Itoa(s), "message": "sleep 1h", "idempotencyKey": key}, 60*time.Second)
				if err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

const fullLanesConfig = `
lanes: {main: 30, subagent: 2, team: 2, cron: 2}
queue: {cap: 1000}
agents: {main: {runner: echo, script: true}}
limits: {chat: 0, requests: 0}
drain_timeout: 1s
`

// stops sends /stop n times, to one session after the other, and returns how long each took to
// reach the running turn and to be answered.
func stops(t testing.TB, g *Gateway, n int) (signals, answers []time.Duration) {
	t.Helper()
	e := newEndings()
	c := mustDial(t, g, e.take)
	if _, err := c.Call("sessions.subscribe", nil, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		session, id := "agent:main:crowd"+strconv.Itoa(i%30), fmt.Sprintf("stop%d", i)
		before := e.count(session, "aborted")
		said := time.Now()
		say(t, c, session, id, "/stop")
		var stopped time.Time
		e.until(t, "the abort of a turn of "+session, 30*time.Second, func() bool {
			stopped = time.Now()
			return e.of[session+" aborted"] > before
		})
		answer := e.end(t, id)
		if answer.text != "Stopped the running turn." {
			t.Errorf("stop %d was answered %q", i, answer.text)
		}
		signals, answers = append(signals, stopped.Sub(said)), append(answers, answer.at.Sub(said))
	}
	return signals, answers
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}

// Every lane is full and ten thousand messages wait, and a stop is as fast as without them.
func TestStopReachesItsTurnWithTenThousandWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, fullLanesConfig).AtOnce()
		g.Start()
		fillLanes(t, g, 10_000)
		o := OpenOracle(t, g, database)
		waiting := o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'")
		signals, answers := stops(t, g, 200)
		// The median: a machine that does other work delays some of two hundred, and the figure itself is
		// a row of the benchmarks.
		signal, answer := quantile(signals, 0.5), quantile(answers, 0.5)
		t.Logf("%d waiting: signal p50 %s, p99 %s; answer p50 %s", waiting, signal.Round(time.Microsecond), quantile(signals, 0.99).Round(time.Microsecond), answer.Round(time.Microsecond))
		if signal > time.Second {
			t.Errorf("the median of the signal is %s, want a second at most", signal)
		}
		if answer > 2*time.Second {
			t.Errorf("the median of the answer is %s, want two seconds at most", answer)
		}
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome = 'stopped'"); n != 200 {
			t.Errorf("%d messages were stopped, want 200", n)
		}
		var l lanesStatus
		if err := mustDial(t, g, nil).Into(&l, "lanes.status", nil); err != nil {
			t.Fatal(err)
		}
		for _, lane := range l.Lanes {
			if lane.Active != lane.Capacity {
				t.Errorf("lane %s has %d active of %d", lane.Name, lane.Active, lane.Capacity)
			}
		}
	})
}

// A message is sent and stopped a thousand times, at every moment of a turn. What a stop has
// reported as stopped ends as stopped and is never started again, no turns overlap, and all slots
// are free at the end.
func TestStopStormOnOneSession(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	onBothStores(t, func(t *testing.T, database string) {
		rounds := testrun.Size(150, 1000)
		g := Install(t, database, "lanes: {main: 4}\nqueue: {cap: 100}\nagents: {main: {runner: echo, script: true, delay: 3ms}}\nlimits: {chat: 0, requests: 0}\ndrain_timeout: 1s\n").AtOnce()
		g.Start()
		e := newEndings()
		c := mustDial(t, g, e.take)
		var (
			took    []time.Duration
			stopped []string
		)
		for i := range rounds {
			text := []string{"hello", "sleep 5ms", "sleep 1h"}[i%3]
			say(t, c, "main", fmt.Sprint("m", i), text)
			pauseFor(time.Duration(i%20) * time.Millisecond) // before the start, at it, in the turn, at its end, after it
			id := fmt.Sprint("m", i)
			for n := 0; n == 0 || !e.ended(id); n++ {
				said, stop := time.Now(), fmt.Sprintf("s%d-%d", i, n)
				say(t, c, "main", stop, "/stop")
				answer := e.end(t, stop).text
				took = append(took, time.Since(said))
				if answer != "There's nothing to stop." { // as when the answer of this message or of the previous one is being written
					stopped = append(stopped, id)
					break
				}
			}
			if text == "sleep 1h" { // the others end after the next ones
				e.end(t, id)
			}
		}
		for _, id := range stopped {
			if got := e.end(t, id); got.state != "aborted" {
				t.Errorf("%s was stopped and ended %s", id, got.state)
			}
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "every message has an outcome", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
		t.Logf("stop answered: p50 %s, p99 %s, worst %s; outcomes %s", quantile(took, 0.5).Round(time.Microsecond), quantile(took, 0.99).Round(time.Microsecond),
			quantile(took, 1).Round(time.Microsecond), strings.Join(o.Rows("SELECT outcome, count(*) FROM inbox WHERE reason IS NULL OR reason <> 'command' GROUP BY outcome ORDER BY outcome"), ", "))
		if n := o.Count("SELECT count(*) FROM inbox WHERE outcome NOT IN ('answered', 'stopped')"); n != 0 {
			t.Errorf("%d messages have another outcome", n)
		}
		if n := o.Count("SELECT count(*) FROM runs WHERE attempt > 1"); n != 0 {
			t.Errorf("%d runs were tried again", n)
		}
		if n := o.Count("SELECT count(*) FROM runs a JOIN runs b ON a.id < b.id AND a.started_at < b.ended_at AND b.started_at < a.ended_at"); n != 0 {
			t.Errorf("%d pairs of turns overlapped", n)
		}
		var l lanesStatus
		if err := c.Into(&l, "lanes.status", nil); err != nil {
			t.Fatal(err)
		}
		for _, lane := range l.Lanes {
			if lane.Active != 0 || lane.Waiting != 0 || lane.Started != lane.Finished {
				t.Errorf("at rest: %+v", lane)
			}
		}
		o.Check(15 * time.Second)
	})
}

// A run of one replica is stopped through another one, in every possible way: the call is cancelled
// within a second and its end has the reason of the stop.
func TestAStopReachesAnotherReplicaWithinASecond(t *testing.T) {
	t.Parallel()
	database := testpg.DB(t)
	config := "cluster: {lease: 15s}\nagents: {main: {runner: echo, script: true}}\nlimits: {chat: 0, requests: 0}\n"
	a, b := Install(t, database, config), Install(t, database, config)
	a.Start()
	b.Start()
	onA, onB := watch(t, a), watch(t, b)
	ca, cb := mustDial(t, a, nil), mustDial(t, b, nil)
	ways := []struct {
		name, reason string
		stop         func(session, id string) error
	}{
		{"chat.abort", "stop", func(session, _ string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session}, 10*time.Second)
			return err
		}},
		{"chat.abort of a run", "stop", func(session, id string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session, "runId": id}, 10*time.Second)
			return err
		}},
		{"chat.abort of all", "stopall", func(session, _ string) error {
			_, err := cb.Call("chat.abort", map[string]any{"sessionKey": session, "all": true}, 10*time.Second)
			return err
		}},
		{"/stop", "stop", func(session, id string) error { say(t, cb, session, id+"-stop", "/stop"); return nil }},
		{"/stopall", "stopall", func(session, id string) error { say(t, cb, session, id+"-stop", "/stopall"); return nil }},
	}
	var took []time.Duration
	for round := range 4 {
		for i, way := range ways {
			session, id := fmt.Sprintf("agent:main:s%d", i), fmt.Sprintf("s%d-%d", i, round)
			if round%2 == 1 {
				session = fmt.Sprintf("agent:main:web:group:%d", i)
			}
			say(t, ca, session, id, "sleep 1h")
			testrun.Eventually(t, id+" runs", func() bool {
				for _, e := range onA.of(id) {
					if e.state == "start" {
						return true
					}
				}
				return false
			})
			asked := time.Now()
			if err := way.stop(session, id); err != nil {
				t.Fatalf("%s: %v", way.name, err)
			}
			end := onA.await(t, id)
			took = append(took, end.at.Sub(asked))
			if end.state != "aborted" || end.reason != way.reason {
				t.Errorf("%s: the run ended %s, want stopReason %s", way.name, end, way.reason)
			}
			if limit := 3 * time.Second; end.at.Sub(asked) > limit { // a heartbeat, which brings stops too, comes each five seconds
				t.Errorf("%s: the turn on the other replica was stopped after %s, want %s", way.name, end.at.Sub(asked).Round(time.Millisecond), limit)
			}
			if end := onB.await(t, id); end.state != "aborted" || end.reason != way.reason {
				t.Errorf("%s: a client of the stopping replica received %s, want stopReason %s", way.name, end, way.reason)
			}
		}
	}
	t.Logf("stops from another replica: p50 %s, worst %s", quantile(took, 0.5).Round(time.Millisecond), quantile(took, 1).Round(time.Millisecond))
	OpenOracle(t, a, database).Check(15 * time.Second)
}

// resetter is a connection that tries to reset sessions, by method and by command.
type resetter struct {
	*Client

	mu   sync.Mutex
	ends map[string]string // of runs, by id
}

func newResetter(t *testing.T, g *Gateway, token string, scopes ...string) *resetter {
	t.Helper()
	r := &resetter{ends: map[string]string{}}
	hear := func(e Event) {
		var p struct {
			RunID, State string
			Message      json.RawMessage
		}
		if json.Unmarshal(e.Payload, &p) == nil && e.Name == "chat" && p.State == "final" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends[p.RunID] = string(p.Message)
		}
	}
	testrun.Eventually(t, "the gateway takes the token", func() bool {
		c, err := DialAs(g.URL(), token, scopes, hear)
		r.Client = c
		return err == nil
	})
	t.Cleanup(r.Close)
	return r
}

// say sends a message and waits for the end of its run.
func (r *resetter) say(t *testing.T, session, text, run string) (string, error) {
	t.Helper()
	if _, err := r.Call("chat.send", map[string]any{"sessionKey": session, "message": text, "idempotencyKey": run}, 30*time.Second); err != nil {
		return "", err
	}
	answer := ""
	testrun.Eventually(t, "the end of "+run, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		answer = r.ends[run]
		return answer != ""
	})
	return answer, nil
}
