package teste2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testpg"
	"laneway/internal/testrun"
)

const chaosConfig = `
cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}
agents:
  main: {runner: echo, script: true}
limits: {chat: 0, requests: 0}
drain_timeout: 2s
`

// sender sends numbered texts to one session, each with its own key, and repeats a text with the
// same key until a gateway has accepted it. It keeps at most three unanswered, so that no queue
// overflows, and continues until enough is true.
type sender struct {
	name     string
	atLeast  int64
	enough   *atomic.Bool
	url      *atomic.Value
	token    string
	accepted atomic.Int64 // texts 0 to accepted-1
	busy     atomic.Int64 // responses of a gateway that show unfinished work of the session
	refused  atomic.Pointer[WireError]
	doubtful bool // the last call had no answer: repeating it shows whether its text was accepted
}

// text returns one text of a session and the answer of the echo agent. Every other turn takes a
// while, so that others wait for it and a kill at any moment affects both. it and a kill at any
// moment meets both.
func (s *sender) text(i int64) (text, answer string) {
	answer = fmt.Sprintf("text %d", i)
	if i%2 == 0 {
		return answer, answer
	}
	return fmt.Sprintf("sleep %dms\n%s", 50+50*(i/2%6), answer), answer
}

// more reports whether there are texts left to send.
func (s *sender) more() bool { return s.doubtful || s.accepted.Load() < s.atLeast || !s.enough.Load() }

// key returns the idempotency key of one text.
func (s *sender) key(i int64) string {
	return strings.TrimPrefix(s.name, "agent:main:") + "-" + strconv.FormatInt(i, 10)
}

func (s *sender) run(stop <-chan struct{}) {
	for s.more() {
		c, err := Dial(s.url.Load().(string), s.token, nil)
		if err != nil {
			if !s.goOn(stop) {
				return
			}
			continue
		}
		for s.more() && s.say(c, s.accepted.Load()) && s.goOn(stop) {
		}
		c.Close()
		if s.refused.Load() != nil || !s.goOn(stop) {
			return
		}
	}
}

// say waits until few messages of the session are unanswered, and then sends a text until it is
// accepted; false when the connection is lost or the text is refused permanently.
func (s *sender) say(c *Client, i int64) bool {
	for {
		var r struct{ Session *struct{ QueueDepth int } }
		if err := c.Into(&r, "sessions.describe", map[string]any{"key": s.name}); err != nil {
			return false
		}
		if r.Session == nil || r.Session.QueueDepth < 3 {
			break
		}
		s.busy.Add(1)
		pauseABit()
	}
	text, _ := s.text(i)
	for {
		_, err := c.Call("chat.send", map[string]any{"sessionKey": s.name, "message": text, "idempotencyKey": s.key(i)}, 5*time.Second)
		var refusal *WireError
		switch {
		case err == nil:
			s.doubtful = false
			s.accepted.Add(1)
			s.busy.Add(1)
			return true
		case !errors.As(err, &refusal):
			s.doubtful = true
			return false
		case !refusal.Retryable:
			s.refused.Store(refusal)
			return false
		}
		pauseABit()
	}
}

// goOn waits a moment and reports whether the test still needs the sender.
func (s *sender) goOn(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
		pauseABit()
		return true
	}
}

// pauseABit gives real processes time to work; there is no signal to wait for when no gateway
// answers.
func pauseABit() { pauseFor(10 * time.Millisecond) }

func pauseFor(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// met counts what kills interrupted: how often some work was unfinished, and how often messages
// were in each state.
type met struct {
	unfinished int
	states     map[string]int
}

// look counts the work that a killed gateway left. It closes the database at once, because the next
// process has to find it unused and recover it itself.
func (m *met) look(t *testing.T, g *Gateway, database string) {
	t.Helper()
	o := OpenOracle(t, g, database)
	defer o.Close()
	states := o.Rows("SELECT DISTINCT state FROM inbox WHERE state <> 'done'")
	if len(states) > 0 {
		m.unfinished++
	}
	for _, state := range states {
		m.states[state]++
	}
}

// check fails a test whose kills hit an idle gateway, which proves nothing.
func (m *met) check(t *testing.T, kills int) {
	t.Helper()
	t.Logf("of %d kills %d met unfinished work: %v", kills, m.unfinished, m.states)
	if m.unfinished*5 < kills*4 {
		t.Errorf("%d of %d kills met unfinished work, want 80 %%", m.unfinished, kills)
	}
	for _, state := range []string{"running", "waiting"} {
		if m.states[state] == 0 {
			t.Errorf("no kill met a message that was %s", state)
		}
	}
}

// The gateway is killed repeatedly while hundreds of messages are in all stages.
func TestKillAtAnyPointLosesNothingAndKeepsTheOrder(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		kills, sessions, texts := testrun.Size(15, 200), 20, 40
		g := Install(t, database, chaosConfig).AtOnce()
		g.Start()
		token := g.Token()
		url, enough := &atomic.Value{}, &atomic.Bool{}
		url.Store(g.URL())
		stop := make(chan struct{})
		var senders []*sender
		var wg sync.WaitGroup
		for i := range sessions {
			s := &sender{name: fmt.Sprintf("agent:main:chaos-%d", i), atLeast: int64(texts), enough: enough, url: url, token: token}
			senders = append(senders, s)
			wg.Go(func() { s.run(stop) })
		}
		total := func() (n int64) {
			for _, s := range senders {
				n += s.accepted.Load()
			}
			return n
		}
		busy := func() (n int64) {
			for _, s := range senders {
				n += s.busy.Load()
			}
			return n
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 1))
		found := met{states: map[string]int{}}
		for i := range kills {
			if i%10 != 9 { // each tenth kill may hit a start, the others a gateway with work, however slow the machine is
				before := busy()
				testrun.Eventually(t, "the gateway has work", func() bool { return busy() >= before+3 })
			}
			pauseFor(time.Duration(dice.IntN(550)) * time.Millisecond)
			g.Kill()
			found.look(t, g, database)
			g.Start()
			url.Store(g.URL())
		}
		enough.Store(true)
		found.check(t, kills)
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Minute):
			close(stop)
			wg.Wait()
			t.Fatalf("only %d messages were accepted, want %d and more\n%s", total(), sessions*texts, g.Output())
		}
		o := OpenOracle(t, g, database)
		testrun.Eventually(t, "every message has an outcome", func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0
		})
		o.Check(3 * time.Second)
		if n := o.Count("SELECT count(*) FROM inbox"); int64(n) != total() || n < sessions*texts {
			t.Errorf("%d messages in the inbox, want the %d that were accepted, and at least %d", n, total(), sessions*texts)
		}
		bad := o.Rows("SELECT message_id, outcome FROM inbox WHERE outcome NOT IN ('answered', 'dead')")
		if len(bad) > 0 {
			t.Errorf("%d messages have another outcome, such as %s", len(bad), bad[0])
		}
		for _, s := range senders {
			if r := s.refused.Load(); r != nil {
				t.Errorf("%s was refused for good: %v", s.name, r)
			}
			checkOrder(t, o, s)
		}
		t.Logf("%d kills, %d messages, %d answered, %d dead, %d second attempts, %d crashes survived", kills, total(),
			o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"), o.Count("SELECT count(*) FROM inbox WHERE outcome = 'dead'"),
			o.Count("SELECT count(*) FROM runs WHERE attempt > 1"), o.Count("SELECT coalesce(sum(crashes), 0) FROM runs"))
	})
}

// checkOrder compares what a session sent with its transcript: each text once, in order, each
// followed by its own answer, or by the note that it has none.
func checkOrder(t *testing.T, o *Oracle, s *sender) {
	t.Helper()
	lines := o.Rows("SELECT role, content FROM transcript WHERE session_key = '" + s.name + "' ORDER BY seq")
	dead := map[string]bool{}
	for _, id := range o.Rows("SELECT message_id FROM inbox WHERE session_key = '" + s.name + "' AND outcome = 'dead'") {
		dead[id] = true
	}
	var want []string
	for i := range s.accepted.Load() {
		text, answer := s.text(i)
		want = append(want, "user|"+text)
		if dead[s.key(i)] {
			want = append(want, "system|Failed before its answer was complete: "+strconv.Quote(chat.Printable(text))+
				"\ninterrupted: answering this ended the gateway three times; it will not be tried again")
		} else {
			want = append(want, "assistant|"+answer)
		}
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("transcript of %s:\n%s", s.name, got)
	}
}

// The server crashes repeatedly while messages are accepted, started, run and ended. Each client
// repeats unaccepted messages with the same key. Every message is answered and every started job
// succeeds at its first attempt, because an unavailable database must not end a turn.
func TestADatabaseThatCrashesAtAnyPointFailsNoTurn(t *testing.T) {
	t.Parallel()
	server := testpg.Private(t, testpg.ServerConfig{})
	g := Install(t, server.URL(), "cluster: {lease: 10s, heartbeat: 500ms, sweep: 200ms}\nqueue: {cap: 50}\nagents: {main: {runner: echo, script: true}}\n").AtOnce()
	g.Start()
	c := connect(t, g)
	for i := range 5 {
		addJob(t, c, fmt.Sprintf("tick-%d", i), every(time.Second), saying("sleep 20ms"))
	}
	rounds, people := testrun.Size(6, 200), 12
	for round := range rounds {
		var talks sync.WaitGroup
		for person := range people {
			talks.Go(func() {
				key := fmt.Sprintf("m-%d-%d", round, person)
				params := map[string]any{"sessionKey": fmt.Sprintf("agent:main:p%d", person), "message": "sleep 20ms", "idempotencyKey": key}
				for {
					if _, err := c.Call("chat.send", params, 20*time.Second); err == nil {
						return
					}
					if t.Context().Err() != nil {
						return
					}
				}
			})
		}
		pause(time.Duration(rand.IntN(80)) * time.Millisecond)
		if err := server.Restart(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		talks.Wait()
	}
	o := OpenOracle(t, g, server.URL())
	testrun.Eventually(t, "every message has an outcome", func() bool {
		return o.Count("SELECT count(*) FROM inbox WHERE outcome IS NOT NULL AND message_id LIKE 'm-%'") == rounds*people
	})
	if bad := o.Rows("SELECT message_id, outcome, reason FROM inbox WHERE outcome <> 'answered' AND message_id LIKE 'm-%'"); len(bad) > 0 {
		t.Errorf("%d of %d messages were not answered: %s", len(bad), rounds*people, strings.Join(bad, "; "))
	}
	testrun.Eventually(t, "a job has run", func() bool { return o.Count("SELECT count(*) FROM cron_run_logs WHERE state = 'ok'") > 0 })
	if bad := o.Rows("SELECT id, state, attempt, error FROM cron_run_logs WHERE state IN ('error', 'interrupted', 'retrying') OR attempt > 1"); len(bad) > 0 {
		t.Errorf("runs of jobs failed: %s", strings.Join(bad, "; "))
	}
	o.Check(10 * time.Second)
}

// failover is a gateway whose database has a standby.
type failover struct {
	t                 *testing.T
	g                 *Gateway
	primary, standby  *testpg.Server
	line, replication *cutLine
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{t: t}
	var err error
	f.primary, err = testpg.StartServer(t.Context(), testpg.ServerConfig{NoFsync: true, MaxConnections: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.primary.Stop() })
	f.replication = cuttable(t, f.primary.URL())
	f.standby, err = f.primary.StartStandby(t.Context(), f.replication.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.standby.Stop() })
	f.line = cuttable(t, f.primary.URL())
	f.g = Install(t, f.line.url, "cluster: {lease: 10s, heartbeat: 500ms, sweep: 200ms}\nagents: {main: {runner: echo, script: true}}\ndrain_timeout: 2s\n", "--metrics-listen", "main")
	f.g.env = append(f.g.env, "LANEWAY_DATABASE_URL="+f.line.url)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.g.Output())
		}
	})
	f.g.Start()
	return f
}

// promote ends the primary and makes the standby the next one, which the gateway does not reach
// yet.
func (f *failover) promote() {
	f.t.Helper()
	f.line.cut()
	if err := f.primary.Halt(true); err != nil {
		f.t.Fatal(err)
	}
	if err := f.standby.Promote(context.WithoutCancel(f.t.Context())); err != nil {
		f.t.Fatal(err)
	}
}

// follow leads the gateway to the new primary.
func (f *failover) follow() {
	f.t.Helper()
	f.line.lead(f.t, f.standby.URL())
	f.line.mend()
}

// A standby that has everything becomes the primary: no message is missing, and none is reported.
func TestFailoverWithoutLossReportsNone(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	f := newFailover(t)
	c, events := mustDial(t, f.g, nil), watch(t, f.g)
	say(t, c, "agent:main:one", "first", "hello")
	if end := events.await(t, "first"); end.state != "final" {
		t.Fatalf("the turn ended %s", end)
	}
	behind := OpenOracle(t, f.g, f.standby.URL())
	testrun.Eventually(t, "the standby has the end of the turn", func() bool {
		return behind.Count("SELECT count(*) FROM runs WHERE id = 'first' AND ended_at IS NOT NULL") == 1
	})
	f.promote()
	f.follow()
	testrun.Eventually(t, "the gateway says that nothing is missing", func() bool {
		return strings.Contains(f.g.Output(), "nothing acknowledged by this gateway is missing")
	})
	if strings.Contains(f.g.Output(), "lost commits") {
		t.Errorf("the log reports a loss:\n%s", f.g.Output())
	}
	if out, _, _ := f.g.CLI(t.Context(), "", "doctor", "--config", f.g.config); strings.Contains(out, "lost commits") {
		t.Errorf("doctor reports a loss:\n%s", out)
	}
}

// A standby that lacks the ends of two turns becomes the primary. The gateway detects that, the two
// run again, a stop works, and the loss is reported in the log, in the metrics and by doctor.
func TestAFailoverThatLosesCommitsLeavesNoTurnStuck(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	f := newFailover(t)
	g, replication := f.g, f.replication
	c, events := mustDial(t, g, nil), watch(t, g)
	say(t, c, "agent:main:one", "first", "sleep 2s")
	say(t, c, "agent:main:two", "second", "sleep 2s")
	behind := OpenOracle(t, g, f.standby.URL())
	testrun.Eventually(t, "the standby has the starts of both turns", func() bool {
		return behind.Count("SELECT count(*) FROM runs WHERE state = 'running'") == 2
	})
	replication.cut()
	for _, run := range []string{"first", "second"} {
		if end := events.await(t, run); end.state != "final" {
			t.Fatalf("%s ended %s before the failover", run, end)
		}
	}
	f.promote()
	if n := behind.Count("SELECT count(*) FROM runs WHERE state = 'running'"); n != 2 {
		t.Fatalf("the promoted standby has %d turns that run, want the 2 whose ends it never received", n)
	}
	f.follow()
	testrun.Eventually(t, "the turns whose ends were lost have ended again", func() bool {
		return behind.Count("SELECT count(*) FROM inbox WHERE state = 'done' AND outcome = 'answered' AND message_id IN ('first', 'second')") == 2 &&
			behind.Count("SELECT count(*) FROM runs WHERE state IN ('running', 'stopping')") == 0
	})
	c = mustDial(t, g, nil)
	say(t, c, "agent:main:one", "third", "sleep 1h")
	testrun.Eventually(t, "a turn runs", func() bool {
		return behind.Count("SELECT count(*) FROM runs WHERE id = 'third' AND state = 'running'") == 1
	})
	if out, errs, code := g.CLI(t.Context(), "", "sessions", "stop", "agent:main:one"); code != 0 {
		t.Errorf("sessions stop: %d\n%s%s", code, out, errs)
	}
	testrun.Eventually(t, "the stop has its effect", func() bool {
		return behind.Count("SELECT count(*) FROM inbox WHERE message_id = 'third' AND outcome = 'stopped'") == 1
	})
	said := g.Output()
	if !strings.Contains(said, "the database has lost commits") || !strings.Contains(said, "the end of run second") || !strings.Contains(said, "timeline 00000001") || !strings.Contains(said, "timeline 00000002") {
		t.Errorf("the log does not name the loss with both timelines:\n%s", said)
	}
	if n := g.metric(t, g.Token(), `laneway_database_rollbacks_total{reason="history"}`); n != 1 {
		t.Errorf("the loss was counted %v times, want once", n)
	}
	out, _, _ := g.CLI(t.Context(), "", "doctor", "--config", g.config)
	if !strings.Contains(out, "the database lost commits before ") {
		t.Errorf("the doctor does not report the loss:\n%s", out)
	}
}

const hookSecret = "hook-secret-0123456789-abcdefghijk"

func entry(answer map[string]any) string {
	e, _ := answer["entry"].(map[string]any)
	id, _ := e["sessionId"].(string)
	return id
}

// answeredOnce waits until the only message of a session has its only answer.
func (g *Gateway) answeredOnce(t *testing.T, session string) {
	t.Helper()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var h struct {
		Messages      []struct{ Role string }
		PendingInputs struct{ Total int }
	}
	testrun.Eventually(t, "the answer in "+session, func() bool {
		return c.Into(&h, "chat.history", map[string]any{"sessionKey": session}) == nil && len(h.Messages) >= 2
	})
	if len(h.Messages) != 2 || h.PendingInputs.Total != 0 {
		t.Errorf("%s has %+v, want one question and one answer", session, h)
	}
}

// After kill -9, everything that was acknowledged exists, and the same call again has no second
// effect.
func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, "cluster: {lease: 3s, heartbeat: 500ms}\nhooks: {deploy: {secret: "+hookSecret+"}}\n"+
			"agents: {main: {runner: echo, delay: 300ms}}\n").AtOnce()
		g.Start()
		for _, method := range []string{"chat.send", "agent"} {
			session := "kept-by-" + method
			first, second := killedAfter(t, g, method, map[string]any{"sessionKey": session, "message": "kept", "idempotencyKey": "key-" + method})
			if first["runId"] != "key-"+method || second["runId"] != first["runId"] {
				t.Errorf("%s: %v, then %v", method, first, second)
			}
			g.answeredOnce(t, session)
		}
		job := map[string]any{
			"name": "kept", "schedule": json.RawMessage(yearlyJob), "sessionTarget": "isolated",
			"payload": map[string]any{"kind": "agentTurn", "message": "kept"}, "idempotencyKey": "key-add",
		}
		first, second := killedAfter(t, g, "cron.add", job)
		if first["id"] == nil || second["id"] != first["id"] {
			t.Errorf("cron.add: %v, then %v", first, second)
		}
		reset := map[string]any{"key": "kept-by-reset", "idempotencyKey": "key-reset"}
		first, second = killedAfter(t, g, "sessions.reset", reset)
		if entry(first) == "" || entry(second) != entry(first) {
			t.Errorf("sessions.reset: %v, then %v", first, second)
		}
		g.hookTwice(t)
		g.runOnce(t, job)
		OpenOracle(t, g, database).Check(3 * time.Second)
	})
}

// killedAfter makes one call, kills the gateway after the answer, starts it again, repeats the same
// call and returns both answers.
func killedAfter(t *testing.T, g *Gateway, method string, params map[string]any) (first, second map[string]any) {
	t.Helper()
	answers := make([]map[string]any, 2)
	for i := range answers {
		c, err := Dial(g.URL(), g.Token(), nil)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, method+" is answered", func() bool { // shortly after the start it is not yet registered in its store
			var raw json.RawMessage
			if raw, err = c.Call(method, params, 30*time.Second); err != nil {
				return false
			}
			return json.Unmarshal(raw, &answers[i]) == nil
		})
		if i == 0 {
			g.Kill()
			c.Close()
			g.Start()
			continue
		}
		c.Close()
	}
	return answers[0], answers[1]
}

// hookTwice calls a hook, kills the gateway, and calls it again with the same signature.
func (g *Gateway) hookTwice(t *testing.T) {
	t.Helper()
	const body = "version 1.2 is out"
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(hookSecret))
	_, _ = mac.Write([]byte(at + "." + body))
	call := func() (out struct {
		RunID     string
		Duplicate bool
	},
	) {
		t.Helper()
		testrun.Eventually(t, "the hook is answered", func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL()+"/hooks/deploy", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Laneway-Signature", "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
			status, text := roundTrip(t, req)
			return status == http.StatusAccepted && json.Unmarshal([]byte(text), &out) == nil
		})
		return out
	}
	first := call()
	g.Kill()
	g.Start()
	if again := call(); first.Duplicate || !again.Duplicate || again.RunID != first.RunID {
		t.Errorf("hook: %+v, then %+v", first, again)
	}
}

// runOnce kills the gateway after cron.run was answered: the run exists once.
func (g *Gateway) runOnce(t *testing.T, job map[string]any) {
	t.Helper()
	c, err := Dial(g.URL(), g.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var added struct{ ID string }
	var run struct{ RunID string }
	if err := c.Into(&added, "cron.add", job); err != nil {
		t.Fatal(err)
	}
	if err := c.Into(&run, "cron.run", map[string]any{"id": added.ID}); err != nil {
		t.Fatal(err)
	}
	g.Kill()
	c.Close()
	g.Start()
	if c, err = Dial(g.URL(), g.Token(), nil); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var runs struct {
		Entries []struct{ RunID, Status string }
	}
	testrun.Eventually(t, "the run that was asked for", func() bool {
		return c.Into(&runs, "cron.runs", map[string]any{"id": added.ID}) == nil && len(runs.Entries) > 0
	})
	if len(runs.Entries) != 1 || runs.Entries[0].RunID != run.RunID || runs.Entries[0].Status != "ok" {
		t.Errorf("runs %+v, want one ok: %s", runs.Entries, run.RunID)
	}
}
