package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/dispatch"
	"laneway/internal/store"
)

// asks is a runner that asks its person with a minute for the answer, and answers with what they chose.
type asks struct{}

func (asks) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	answer := agent.NewAnswer(0, emit)
	text := "no person can be asked"
	if req.Asker != nil {
		bounded, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no answer"))
		defer cancel()
		option, err := req.Asker.Ask(bounded, agent.Question{Text: "May I?", Options: []string{"Yes", "No"}})
		text = map[int]string{0: "yes", 1: "no"}[option]
		if err != nil {
			text = err.Error()
		}
	}
	return agent.Result{Text: text, StopReason: agent.StopNormal}, answer.Append(text)
}

// askerMessage makes a message one of a person in the channel with buttons.
func askerMessage(person string) func(m *chat.Message) {
	return func(m *chat.Message) {
		m.Channel, m.Principal, m.Content.Sender.ID = "asker", "asker:"+person, person
		m.Content.Options.ReplyTo = chat.Target{Channel: "asker", ChatID: "7"}
	}
}

// runBy makes a runner the only agent.
func runBy(runner agent.Runner) option {
	return func(c *dispatch.Config) { c.Agents[0].Runner = runner }
}

// answerTo is what the sender of a command reads.
func (h *harness) answerTo(id string) string { return h.end(id).Text }

// lastLine is the newest line of a conversation.
func (h *harness) lastLine(session string) string {
	h.t.Helper()
	key, err := chat.ParseSessionKey(session, "main")
	if err != nil {
		h.t.Fatal(err)
	}
	tr, err := h.st.Transcript(h.t.Context(), store.TranscriptQuery{Session: key, Limit: 1})
	if err != nil || len(tr.Entries) != 1 {
		h.t.Fatalf("the conversation has %+v, %v", tr.Entries, err)
	}
	return tr.Entries[0].Text
}

const askerChat = "agent:main:asker:direct:7"

// question waits for the question and returns the texts of its buttons.
func (h *harness) question() (q chat.Reply, buttons []string) {
	h.t.Helper()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	h.asker.mu.Lock()
	defer h.asker.mu.Unlock()
	for _, r := range h.asker.sent {
		if r.Choice != nil && strings.HasPrefix(r.Text, "May I?") {
			q = r
		}
	}
	if q.Choice == nil {
		h.t.Fatalf("no question was sent: %+v", h.asker.sent)
	}
	for _, row := range q.Choice.Rows {
		for _, b := range row {
			buttons = append(buttons, b.Text)
		}
	}
	return q, buttons
}

func TestAnAgentAsksItsPersonByButtons(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(), runBy(asks{}))
		id := h.send(askerChat, "go", askerMessage("7"))
		q, buttons := h.question()
		if q.Choice.For != "7" || len(buttons) != 2 || !strings.Contains(q.Choice.Typed, buttons[0]+" (Yes), or "+buttons[1]+" (No) within 1m0s") {
			t.Errorf("asked %+v %+v", q, q.Choice)
		}
		// Another person, another conversation, an option that is not there: the question stays open.
		wrong := []string{
			h.answerTo(h.send(askerChat, buttons[0], askerMessage("8"))),
			h.answerTo(h.send("agent:main:asker:direct:9", buttons[0], askerMessage("7"))),
			h.answerTo(h.send(askerChat, strings.TrimSuffix(buttons[0], "1")+"3", askerMessage("7"))),
			h.answerTo(h.send(askerChat, strings.TrimSuffix(buttons[0], "1"), askerMessage("7"))),
		}
		for _, text := range wrong {
			if !strings.HasPrefix(text, "/answer failed: ") {
				t.Errorf("a wrong answer got %q", text)
			}
		}
		if text := h.answerTo(h.send(askerChat, buttons[0], askerMessage("7"))); text != "The answer is: Yes." {
			t.Errorf("the answer got %q", text)
		}
		if end := h.end(id); end.Text != "yes" {
			t.Errorf("the turn ended with %+v", end)
		}
		if text := h.answerTo(h.send(askerChat, buttons[1], askerMessage("7"))); !strings.Contains(text, "no open question") {
			t.Errorf("a second answer got %q", text)
		}
		h.close()
	})
}

func TestAQuestionThatIsNotAnsweredEndsWithItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(), runBy(asks{}))
		id := h.send(askerChat, "go", askerMessage("7"))
		_, buttons := h.question()
		time.Sleep(time.Minute)
		synctest.Wait()
		if end := h.end(id); end.Text != "no answer" {
			t.Errorf("the turn ended with %+v", end)
		}
		if text := h.answerTo(h.send(askerChat, buttons[0], askerMessage("7"))); !strings.Contains(text, "its time is over") {
			t.Errorf("a late answer got %q", text)
		}
		h.close()
	})
}

// TestOnTheWebAQuestionIsALineOfTheConversation: it is answered by writing the command.
func TestOnTheWebAQuestionIsALineOfTheConversation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(), runBy(asks{}))
		id := h.send("web", "go")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		text := h.lastLine("web")
		_, command, found := strings.Cut(text, "Write ")
		command, _, _ = strings.Cut(command, " (")
		if !found || !strings.HasPrefix(text, "May I?") {
			t.Fatalf("the conversation ends with %q", text)
		}
		h.send("web", command)
		if end := h.end(id); end.Text != "yes" {
			t.Errorf("the turn ended with %+v", end)
		}
		h.close()
	})
}

func TestWhereNoPersonCanBeAskedNothingIsAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := open(t, newStore(), runBy(asks{}))
		for name, change := range map[string]func(m *chat.Message){
			"NoButtons": replyTo("7"),
			"API":       func(m *chat.Message) { m.Channel = "api" },
			"Hook":      func(m *chat.Message) { m.Channel = "hook" },
		} {
			if end := h.end(h.send("agent:main:"+strings.ToLower(name), "go", change)); end.Text != "no person can be asked" {
				t.Errorf("%s: got %+v", name, end)
			}
		}
		h.close()
	})
}
