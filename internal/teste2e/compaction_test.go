package teste2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/testmodel"
	"laneway/internal/testrun"
)

const (
	compactWindow = 2048
	compactAnswer = 200
	countSums     = "SELECT count(*) FROM transcript WHERE to_seq > 0"
)

// TestALongConversationIsCompactedThroughKills lets a conversation outgrow the window of its model again and again. The process is killed while a summary is
// written and right behind its row. No request is larger than the window, no message waits for a summary, each summary is there once, and nothing is deleted.
func TestALongConversationIsCompactedThroughKills(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		model := testmodel.Start(t)
		var hang atomic.Bool
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch {
			case !ofSummary(call):
				return testmodel.Reply{Pieces: []string{"Noted. " + strings.Repeat("yes ", 40)}}
			case hang.Load():
				return testmodel.Reply{HangFirst: true}
			default:
				return testmodel.Reply{Pieces: []string{"They spoke of the blue house."}}
			}
		})
		g := Install(t, database, fmt.Sprintf(`
agents:
  main: {runner: openai, model: test, base_url: "%s/v1", context_window: %d, max_tokens: %d, tools: "off"}
limits: {chat: 0, requests: 0}
cluster: {lease: 3s, heartbeat: 500ms}
`, model.URL(), compactWindow, compactAnswer))
		g.Start()
		o, talk := OpenOracle(t, g, database), &talker{t: t, g: g}
		sums := func(n int) func() bool { return func() bool { return o.Count(countSums) == n } }
		summing := func() int {
			n := 0
			for _, call := range model.Calls() {
				if ofSummary(call) {
					n++
				}
			}
			return n
		}

		talk.until("the first summary is there", sums(1))
		hang.Store(true)
		asked := summing()
		talk.until("the model writes the second summary", func() bool { return summing() > asked })
		began := time.Now()
		talk.turn()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a message beside a compaction took %s", took)
		}
		g.Kill()
		hang.Store(false)
		g.Start()
		testrun.Eventually(t, "the second summary is there", sums(2))
		talk.until("the third summary is there", sums(3))
		g.Kill()
		g.Start()
		testrun.Eventually(t, "nothing is left to do", func() bool { return o.Count("SELECT count(*) FROM inbox WHERE state <> 'done'") == 0 })
		talk.until("the fourth summary is there", sums(4))

		if twice := o.Rows("SELECT session_id, to_seq FROM transcript WHERE to_seq > 0 GROUP BY session_id, to_seq HAVING count(*) > 1"); len(twice) > 0 {
			t.Errorf("summaries that are there twice: %v", twice)
		}
		rows := o.Count("SELECT count(*) FROM transcript WHERE session_key = 'agent:main:long'")
		if want := 2*talk.n + 4; rows != want {
			t.Errorf("%d rows in the transcript, want %d: a message and an answer for each of %d turns, and four summaries", rows, want, talk.n)
		}
		largest := 0
		for _, call := range model.Calls() {
			n := agent.EstimateTokens(call.System) + compactAnswer
			for _, m := range call.Messages {
				n += agent.EstimateTokens(m.Content) + 6
			}
			if largest = max(largest, n); n > compactWindow {
				t.Errorf("a request of %d tokens, the window has %d", n, compactWindow)
			}
		}
		if last := model.Calls()[len(model.Calls())-1]; !ofSummary(last) && !strings.Contains(last.Messages[0].Content, "the blue house") {
			t.Errorf("the last request begins with %q", chat.Cut(last.Messages[0].Content, 200))
		}
		if text := historyOf(t, mustDial(t, g, nil), "agent:main:long"); !strings.Contains(text, "user: message 0 ") || !strings.Contains(text, "system: Summary of the conversation so far") {
			t.Errorf("the history does not show all rows:\n%s", chat.Cut(text, 2000))
		}
		t.Logf("%d turns, 4 summaries, %d requests, the largest with its answer of %d tokens", talk.n, len(model.Calls()), largest)
	})
}

func ofSummary(call testmodel.Call) bool { return strings.HasPrefix(call.System, "You keep the notes") }

// talker is a person in one conversation.
type talker struct {
	t *testing.T
	g *Gateway
	n int
}

// turn says something and waits for the answer.
func (p *talker) turn() {
	p.t.Helper()
	id := fmt.Sprintf("t%d", p.n)
	w, c := watch(p.t, p.g), mustDial(p.t, p.g, nil)
	say(p.t, c, "agent:main:long", id, fmt.Sprintf("message %d ", p.n)+strings.Repeat("of a long conversation ", 10))
	p.n++
	if end := w.await(p.t, id); end.state != "final" {
		p.t.Fatalf("%s ended %s", id, end)
	}
}

// until goes on with the conversation until something has happened, which may take a moment behind a turn.
func (p *talker) until(what string, done func() bool) {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 40 {
		p.turn()
		for range 10 {
			if done() {
				return
			}
			<-tick.C
		}
	}
	p.t.Fatalf("not in 40 turns: %s", what)
}
