package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/wire"
)

type questionsCmd struct {
	List   questionsList   `cmd:"" default:"withargs" help:"List the questions of agents that wait for an answer, the oldest first."`
	Answer questionsAnswer `cmd:"" help:"Answer a question."`
}

type questionsList struct {
	clientFlags
	JSON bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*questionsList) Help() string {
	return "An administrator sees the questions of all persons; each is answered by the person whom the agent asks.\n\nExample:\n\n    laneway questions list"
}

// Run lists questions.
func (c *questionsList) Run(ctx context.Context, env *environment) error {
	var out wire.QuestionsListResult
	if err := c.call(ctx, env, "questions.list", wire.QuestionsListParams{}, &out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	if len(out.Questions) == 0 {
		_, err := fmt.Fprintln(env.stdout, "no questions")
		return err
	}
	rows := [][]string{{"ID", "AGENT", "SESSION", "ASKED", "LEFT", "ANSWERS", "WANTS TO"}}
	for i := range out.Questions {
		q := &out.Questions[i]
		rows = append(rows, []string{
			cell(q.ID, 20), cell(q.AgentID, 20), cell(q.SessionKey, 40), ago(env.now(), q.AskedAtMs), short(time.UnixMilli(q.ExpiresAtMs).Sub(env.now())),
			cell(answersOf(q), 200), env.cell(q.Text, 60),
		})
	}
	return table(env.stdout, rows)
}

// answersOf returns the options with their numbers, or whose answer counts.
func answersOf(q *wire.Question) string {
	if !q.Mine {
		return "of " + q.Principal
	}
	var options []string
	for i, o := range q.Options {
		options = append(options, strconv.Itoa(i+1)+" "+o.Label)
	}
	return strings.Join(options, ", ")
}

type questionsAnswer struct {
	clientFlags
	ID     string `arg:"" help:"Question, as laneway questions shows it."`
	Number int64  `arg:"" help:"The number of the answer, as laneway questions shows it."`
	JSON   bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*questionsAnswer) Help() string {
	return "The first answer counts.\n\nExample:\n\n    laneway questions answer 0b6c1f7e90a1 1"
}

// Run answers a question.
func (c *questionsAnswer) Run(ctx context.Context, env *environment) error {
	var out wire.QuestionsAnswerResult
	if err := c.call(ctx, env, "questions.answer", wire.QuestionsAnswerParams{ID: c.ID, Option: c.Number}, &out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	_, err := fmt.Fprintln(env.stdout, plain(out.Text))
	return err
}
