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
)

const chaosConfig = `
cluster: {lease: 3s, heartbeat: 500ms, sweep: 200ms}
agents:
  main: {runner: echo, script: true}
limits: {chat: 0, requests: 0}
drain_timeout: 2s
`

// sender says numbered texts to one session, each with its own key, and says a text again under the same key until somebody has
// accepted it. It keeps at most three unanswered, so that no queue overflows.
type sender struct {
	name     string
	texts    int
	url      *atomic.Value
	token    string
	accepted atomic.Int64
	refused  atomic.Pointer[WireError]
}

// key is the idempotency key of one text.
func (s *sender) key(i int) string {
	return strings.TrimPrefix(s.name, "agent:main:") + "-" + strconv.Itoa(i)
}

func (s *sender) run(stop <-chan struct{}) {
	for i := 0; i < s.texts; {
		c, err := Dial(s.url.Load().(string), s.token, nil)
		if err != nil {
			if !s.goOn(stop) {
				return
			}
			continue
		}
		for i < s.texts && s.say(c, i) && s.goOn(stop) {
			i++
		}
		c.Close()
		if s.refused.Load() != nil || !s.goOn(stop) {
			return
		}
	}
}

// say waits until few messages of the session are unanswered, and then offers a text until it is accepted; false when the connection is
// lost or the text is refused for good.
func (s *sender) say(c *Client, i int) bool {
	for {
		var r struct{ Session *struct{ QueueDepth int } }
		if err := c.Into(&r, "sessions.describe", map[string]any{"key": s.name}); err != nil {
			return false
		}
		if r.Session == nil || r.Session.QueueDepth < 3 {
			break
		}
		pauseABit()
	}
	for {
		_, err := c.Call("chat.send", map[string]any{"sessionKey": s.name, "message": fmt.Sprintf("text %d", i), "idempotencyKey": s.key(i)}, 5*time.Second)
		var refusal *WireError
		switch {
		case err == nil:
			s.accepted.Add(1)
			return true
		case !errors.As(err, &refusal):
			return false
		case !refusal.Retryable:
			s.refused.Store(refusal)
			return false
		}
		pauseABit()
	}
}

// goOn waits a moment and reports whether the test still wants the sender.
func (s *sender) goOn(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	default:
		pauseABit()
		return true
	}
}

// pauseABit lets real processes work; there is nothing to wait for but time when nobody answers.
func pauseABit() { pauseFor(10 * time.Millisecond) }

func pauseFor(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

// TestKillAtAnyPointLosesNothingAndKeepsTheOrder kills the gateway again and again while a thousand messages are in all stages.
func TestKillAtAnyPointLosesNothingAndKeepsTheOrder(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		kills, sessions, texts := number(t, "LANEWAY_TEST_KILLS", 50), 20, 50
		g := Install(t, database, chaosConfig)
		g.Start()
		token := g.Token()
		url := &atomic.Value{}
		url.Store(g.URL())
		stop := make(chan struct{})
		var senders []*sender
		var wg sync.WaitGroup
		for i := range sessions {
			s := &sender{name: fmt.Sprintf("agent:main:chaos-%d", i), texts: texts, url: url, token: token}
			senders = append(senders, s)
			wg.Go(func() { s.run(stop) })
		}
		total := func() (n int64) {
			for _, s := range senders {
				n += s.accepted.Load()
			}
			return n
		}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 1))
		for range kills {
			wait := time.NewTimer(time.Duration(50+dice.IntN(550)) * time.Millisecond)
			<-wait.C
			g.Kill()
			g.Start()
			url.Store(g.URL())
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Minute):
			close(stop)
			wg.Wait()
			t.Fatalf("only %d of %d messages were accepted\n%s", total(), sessions*texts, g.Output())
		}
		o := OpenOracle(t, g, database)
		eventually(t, "every message has an outcome", time.Minute, func() bool {
			return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0
		})
		o.Check(3 * time.Second)
		if n := o.Count("SELECT count(*) FROM inbox"); n != sessions*texts {
			t.Errorf("%d messages in the inbox, want %d", n, sessions*texts)
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
		t.Logf("%d kills, %d messages, %d answered, %d dead, %d second attempts, %d crashes survived", kills, sessions*texts,
			o.Count("SELECT count(*) FROM inbox WHERE outcome = 'answered'"), o.Count("SELECT count(*) FROM inbox WHERE outcome = 'dead'"),
			o.Count("SELECT count(*) FROM runs WHERE attempt > 1"), o.Count("SELECT coalesce(sum(crashes), 0) FROM runs"))
	})
}

// checkOrder compares what a session said with its transcript: each text once, in order, each followed by its own answer.
func checkOrder(t *testing.T, o *Oracle, s *sender) {
	t.Helper()
	lines := o.Rows("SELECT role, content FROM transcript WHERE session_key = '" + s.name + "' ORDER BY seq")
	dead := map[string]bool{}
	for _, id := range o.Rows("SELECT message_id FROM inbox WHERE session_key = '" + s.name + "' AND outcome = 'dead'") {
		dead[id] = true
	}
	var want []string
	for i := range s.texts {
		want = append(want, fmt.Sprintf("user|text %d", i))
		if !dead[s.key(i)] {
			want = append(want, fmt.Sprintf("assistant|text %d", i))
		}
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("transcript of %s:\n%s", s.name, got)
	}
}
