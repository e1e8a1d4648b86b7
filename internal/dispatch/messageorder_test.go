package dispatch_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

func messageCall(text string) chat.ToolCall {
	return chat.ToolCall{ID: text, Name: "message", Args: `{"text":"` + text + `"}`}
}

// The order depends on this: the answer of the turn is also added to the transcript.
func TestAMessageToTheWebIsInTheTranscriptWhenItsCallReturns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		st := newStore(t)
		var seen []string
		h := open(t, st, withRunner(runnerFunc(func(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
			for range 2 { // a call that is repeated with its key adds nothing
				if got := req.Tools.Call(ctx, req.IdempotencyKey+"/1/1", messageCall("on my way")); got.IsError {
					t.Errorf("the call failed: %s", got.Text)
				}
			}
			tr, err := st.Transcript(ctx, store.TranscriptQuery{Session: req.Session, Limit: 10})
			for _, e := range tr.Entries {
				seen = append(seen, e.Role+" "+e.Text)
			}
			return agent.Result{Text: "here"}, err
		}), dispatch.Tools{Default: true}))
		defer h.close()
		h.end(h.send("agent:main:main", "come"))
		wantList(t, "transcript after the call", seen, []string{"user come", "assistant on my way"})
		wantTranscript(t, h, "user come", "assistant on my way", "assistant here")
	})
}

// slowFirst needs a second to put the text "first" into the outbox.
type slowFirst struct{ dispatch.Store }

func (s slowFirst) Enqueue(ctx context.Context, rows []store.Outgoing) error {
	if rows[0].Text == "first" {
		time.Sleep(time.Second)
	}
	return s.Store.Enqueue(ctx, rows)
}

// The program makes its second call while the first one is running.
func TestMessagesOfAProgramArriveInTheOrderOfItsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := &program{opened: make(chan agent.Toolbox, 1)}
		h := open(t, slowFirst{newStore(t)}, withRunner(runnerFunc(func(ctx context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
			_, end := req.OpenTools(ctx)
			defer end()
			box := <-p.opened
			var calls sync.WaitGroup
			for _, text := range []string{"first", "second", "third"} {
				calls.Go(func() {
					if got := box.Call(ctx, "", messageCall(text)); got.IsError {
						t.Errorf("%s: %s", text, got.Text)
					}
				})
				time.Sleep(time.Millisecond) // the call is recorded
			}
			calls.Wait()
			return agent.Result{Text: "done"}, nil
		}), dispatch.Tools{Default: true}), func(c *dispatch.Config) { c.Access, c.Agents[0].Program = p, true })
		defer h.close()
		h.end(h.send("agent:main:own", "go", replyTo("7")))
		time.Sleep(10 * time.Second)
		want(t, "messages", strings.Join(h.box.texts("7"), " "), "first second third done")
	})
}
