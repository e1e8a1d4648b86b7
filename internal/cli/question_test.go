package cli

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"laneway/internal/wire"
)

func TestAQuestionIsAMenu(t *testing.T) {
	t.Parallel()
	q := wire.Question{AgentID: "main", Text: "run the command “ls”", Options: []wire.QuestionOption{{Label: "Allow: once", Allow: true}, {Label: "Allow always", Allow: true}, {Label: "Deny"}}}
	if got := menu(q); got != "The agent main wants to do this for you: run the command “ls”\nAllow it?\n  1  Allow: once\n  2  Allow always\n  3  Deny" {
		t.Errorf("menu %q", got)
	}
	for line, want := range map[string]string{
		"2": "2 <nil>", "3": "3 <nil>", "allow always": "2 <nil>", "no": "3 <nil>", "Deny": "3 <nil>", "why?": "0 <nil>",
		"0": "0 the question has the answers 1 to 3", "4": "0 the question has the answers 1 to 3", "yes": "0 yes fits several answers; write the number of one",
	} {
		option, err := choose(q, line)
		if got := fmt.Sprint(option, " ", err); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// Before, send showed no question: nothing told it that one was open.
func TestSendShowsQuestionsAndReadsTheirAnswers(t *testing.T) {
	t.Parallel()
	const asks = "The agent main wants to do this for you: run \\u001b[31mls\nAllow it?\n  1  Allow\n  2  Deny\n"
	for name, row := range map[string]struct {
		typed    string
		args     []string
		terminal bool
		by       func(*fakeGateway) // another client
		code     int
		says     string
		answers  []string
	}{
		"a number":        {typed: "what?\n1\n", terminal: true, says: asks + "Write the number of an answer.\nlaneway: write the number of an answer, 1 to 2\nThe answer is: \\u001b[31mAllow.\n", answers: []string{"q-1 1"}},
		"a word":          {typed: "no\n", terminal: true, says: asks + "Write the number of an answer.\nThe answer is: \\u001b[31mAllow.\n", answers: []string{"q-1 2"}},
		"no terminal":     {typed: "1\n", by: func(g *fakeGateway) { g.ask("answered") }, says: asks + "Answer it in laneway chat, on the dashboard, or with: laneway questions answer q-1 1\nlaneway: The question was answered elsewhere.\n"},
		"another client":  {terminal: true, by: func(g *fakeGateway) { g.ask("answered") }, says: asks + "Write the number of an answer.\nlaneway: The question was answered elsewhere.\n"},
		"without waiting": {args: []string{"--no-wait"}, code: exitFailure, says: "laneway: the agent asks for a permission, and --no-wait was given; it was stopped. The agent main wants to do this for you: run \\u001b[31mls\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(row.typed)
				b.env.fromTerminal = row.terminal
				b.gateway.questions = nil
				ended := make(chan int, 1)
				go func() { ended <- run(t.Context(), append([]string{"send", "hang"}, row.args...), b.env) }()
				synctest.Wait()
				b.gateway.ask("asked", mayIRun("q-1"))
				synctest.Wait()
				if row.by != nil {
					row.by(b.gateway)
					synctest.Wait()
				}
				b.gateway.release()
				if code := <-ended; code != row.code || b.stderr.String() != row.says {
					t.Errorf("ended with %d, said %q, want %q", code, b.stderr.String(), row.says)
				}
				if got := strings.Join(b.gateway.answers, ", "); got != strings.Join(row.answers, ", ") {
					t.Errorf("answers %q, want %q", got, row.answers)
				}
			})
		})
	}
}
