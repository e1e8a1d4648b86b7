package teste2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/testrun"
)

const chaosConfig = `
cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}
agents:
  main: {runner: echo, script: true}
limits: {chat: 0, requests: 0}
drain_timeout: 2s
`

// sender sends numbered texts to one session, each with its own key, and repeats a text with the same key until a gateway has accepted it.
// It keeps at most three unanswered, so that no queue overflows, and continues until enough is true.
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

// text returns one text of a session and the answer of the echo agent. Every other turn takes a while, so that others wait for it and a
// kill at any moment affects both.
// it and a kill at any moment meets both.
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

// say waits until few messages of the session are unanswered, and then sends a text until it is accepted; false when the connection is lost
// or the text is refused permanently.
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

// pauseABit gives real processes time to work; there is no signal to wait for when no gateway answers.
func pauseABit() { pauseFor(10 * time.Millisecond) }

func pauseFor(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// met counts what kills interrupted: how often some work was unfinished, and how often messages were in each state.
type met struct {
	unfinished int
	states     map[string]int
}

// look counts the work that a killed gateway left. It closes the database at once, because the next process has to find it unused and
// recover it itself.
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

// checkOrder compares what a session sent with its transcript: each text once, in order, each followed by its own answer, or by the note
// that it has none.
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
