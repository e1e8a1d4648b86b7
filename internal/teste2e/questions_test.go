package teste2e

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"laneway/internal/testrun"
	"laneway/internal/wire"
)

// questionsOf returns the questions that a connection sees.
func questionsOf(t *testing.T, c *Client) []wire.Question {
	t.Helper()
	var out wire.QuestionsListResult
	if err := c.Into(&out, "questions.list", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	return out.Questions
}

// The question of the SDK's example agent is listed and answered over the protocol: by its person, not by others, once, and not after its
// timeout.
func TestAQuestionIsAnsweredOverTheProtocol(t *testing.T) {
	NeedsProcesses(t)
	onBothStores(t, func(t *testing.T, database string) {
		program := buildExample(t, "github.com/coder/acp-go-sdk/example/agent")
		g := Install(t, database, "agents: {main: {runner: acp, command: ["+program+"], question_timeout: 8s}}\n")
		g.Start()
		const session = "agent:main:asked"
		w := watch(t, g)
		var changes atomic.Int64
		c := mustDial(t, g, func(e Event) {
			if e.Name == "questions.changed" {
				changes.Add(1)
			}
		})
		bob := dialWhenKnown(t, g, g.named(t, "bob"), nil)
		asked := func(run string) (q wire.Question) {
			t.Helper()
			say(t, c, session, run, "change the configuration")
			testrun.Eventually(t, "the question is listed", func() bool {
				list := questionsOf(t, c)
				if len(list) == 1 {
					q = list[0]
				}
				return len(list) == 1
			})
			return q
		}
		answer := func(c *Client, q wire.Question, option int) (string, error) {
			var out wire.QuestionsAnswerResult
			err := c.Into(&out, "questions.answer", map[string]any{"id": q.ID, "option": option})
			return out.Text, err
		}
		refused := func(what string, err error) {
			t.Helper()
			if refusal, ok := errors.AsType[*WireError](err); !ok || refusal.Details["code"] != "NOT_FOUND" || !strings.Contains(refusal.Message, "no open question like this; it was answered, it is too old") {
				t.Errorf("%s: %v", what, err)
			}
		}

		q := asked("answered")
		if !q.Mine || q.SessionKey != session || q.RunID != "answered" || len(q.Options) != 2 || q.Options[0] != (wire.QuestionOption{Label: "Allow: this change", Allow: true}) ||
			!strings.HasPrefix(q.Act, "change the file “/home/user/project/config.json” in the directory “") || !strings.HasPrefix(q.Text, q.Act) || q.ExpiresAtMs-q.AskedAtMs > 8000 {
			t.Errorf("the question is %+v", q)
		}
		if list := questionsOf(t, bob); len(list) != 0 {
			t.Errorf("another principal sees %+v", list)
		}
		_, err := answer(bob, q, 1)
		refused("an answer of another principal", err)
		two := mustDial(t, g, nil)
		results := make(chan error, 2)
		for option, c := range map[int]*Client{1: c, 2: two} {
			go func() { _, err := answer(c, q, option); results <- err }()
		}
		errs := []error{<-results, <-results}
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("of two answers at once: %v", errs)
		}
		refused("the later of two answers", errors.Join(errs...))
		if end := w.await(t, "answered"); end.state != "final" {
			t.Errorf("after the answer: %v", end)
		}
		if list := questionsOf(t, c); len(list) != 0 {
			t.Errorf("after the answer: %+v", list)
		}

		q = asked("expired")
		w.await(t, "expired")
		_, err = answer(c, q, 1)
		refused("an answer after its time", err)
		testrun.Eventually(t, "four changes are published: asked and answered, asked and closed", func() bool { return changes.Load() >= 4 })

		say(t, c, session, "pressed", "change it again")
		testrun.Eventually(t, "laneway questions answers the question", func() bool {
			list := questionsOf(t, c)
			if len(list) == 0 {
				return false
			}
			out, _, code := g.CLI(t.Context(), "", "questions", "answer", list[0].ID, "1")
			return code == 0 && out == "The answer is: Allow: this change.\n"
		})
		if end := w.await(t, "pressed"); !strings.HasSuffix(end.text, "The changes have been applied.") {
			t.Errorf("after the answer of the command line: %v", end)
		}
	})
}
