package dispatch

import (
	"context"
	"errors"

	"laneway/internal/agent"
	"laneway/internal/command"
)

// openQuestions shows the questions that wait for a person, and takes answers. [Dispatcher] embeds it.
type openQuestions struct{ questions *questions }

// OpenQuestions lists the questions that a person (owner "" = any person) can answer, the oldest first, at most limit of them.
func (o openQuestions) OpenQuestions(ctx context.Context, owner string, limit int) ([]agent.OpenQuestion, error) {
	return o.questions.open(ctx, owner, limit)
}

// AnswerQuestion does the same as /answer and returns the reply for the person. option counts from 1.
func (o openQuestions) AnswerQuestion(ctx context.Context, by, id string, option int) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, errors.New("the answer took too long"))
	defer cancel()
	return o.questions.answer(ctx, by, command.QuestionAnswer{ID: id, Option: option})
}
