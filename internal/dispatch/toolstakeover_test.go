package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"laneway/internal/agent/openai"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/testmodel"
)

// A process is disconnected from the store after its model has called the reminder tool, received the result and a message that joined the
// turn. The next process first publishes the recorded text, then calls the model after the recorded round, with the message in its place.
func TestATurnThatIsTakenOverContinuesBehindItsRounds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		model, end := testmodel.StartInMemory(t)
		defer end()
		model.Answer(func(call testmodel.Call) testmodel.Reply {
			switch {
			case len(call.Results()) == 0 && call.Number > 1:
				return testmodel.Reply{Pieces: []string{"Other words."}, Calls: []testmodel.ToolCall{{ID: "z", Name: "remind", Args: `{"when":"in 9h","text":"other"}`}}}
			case len(call.Results()) == 0:
				return testmodel.Reply{Delay: 10 * time.Second, Pieces: []string{"First words."}, Calls: []testmodel.ToolCall{{ID: "a", Name: "remind", Args: `{"when":"in 5h","text":"tea"}`}}}
			case call.Number == 2:
				return testmodel.Reply{HangFirst: true}
			default:
				return testmodel.Reply{Pieces: []string{"Last words."}}
			}
		})
		withModel := func(c *dispatch.Config) {
			runner, err := openai.New(openai.Config{BaseURL: model.URL() + "/v1", Model: "m", FirstByte: time.Hour}, model.Transport(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Agents[0].Runner, c.Agents[0].Tools = runner, dispatch.Tools{Default: true}
		}
		st := newStore(t)
		c, off := cord(st)
		h := open(t, c, withModel)
		id := h.send("agent:main:own", "remind me of the tea")
		time.Sleep(5 * time.Second)
		joined := h.send("agent:main:own", "and hurry", mode(chat.ModeSteer))
		time.Sleep(7 * time.Second) // the first result is recorded, and the model has the second request
		want(t, "questions before the process is cut off", len(model.Calls()), 2)
		off.Store(true)

		next := open(t, st, withModel)
		defer next.close()
		e := next.end(id)
		want(t, "outcome", e.Outcome, chat.OutcomeAnswered)
		want(t, "text", e.Text, "First words.\n\nLast words.")
		want(t, "questions", len(model.Calls()), 3)
		jobs := 0
		last := model.Calls()[2]
		for _, r := range last.Results() {
			if strings.Contains(r.Text, "is set at") {
				jobs++
			}
		}
		want(t, "results that the model gets", jobs, 1)
		want(t, "the message that joined is after the round", last.Last(), "and hurry")
		want(t, "the first message is without it", last.Messages[0].Content, "remind me of the tea")
		want(t, "outcome of the message that joined", next.end(joined).Outcome, chat.OutcomeMerged)
		next.mu.Lock()
		var deltas []chat.Event
		for _, event := range next.events {
			if event.Kind == chat.EventDelta && event.RunID == id {
				deltas = append(deltas, event)
			}
		}
		next.mu.Unlock()
		if len(deltas) == 0 || !deltas[0].Replace || deltas[0].Delta != "First words." || deltas[1].Replace {
			t.Errorf("deltas of the second attempt: got %+v, want the recorded text first, as a replacement", deltas)
		}
		rounds, err := st.Rounds(t.Context(), id)
		want(t, "rounds that are left", len(rounds), 0)
		want(t, "reading them", err, nil)
		h.abandon()
	})
}
