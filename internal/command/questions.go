package command

import (
	"context"
	"strconv"

	"laneway/internal/chat"
)

// Names of the commands that answer a question of an agent. Buttons send them.
const (
	Allow  = "allow"
	Deny   = "deny"
	Choose = "answer"
)

// QuestionAnswer is what a person answers to a question of an agent.
type QuestionAnswer struct {
	// ID of the question.
	ID string
	// Option is the number of the chosen option, from 1. 0: the one that allows, or the one that does not, as Allow has it.
	Option int
	Allow  bool
}

func questionCommands() []Command {
	return []Command{
		{
			Name: Allow, Args: "ID", Category: "session", Method: "chat.send",
			Description: "Let the agent do what it has asked about.", Run: textOnly(runAllow(true)),
		},
		{
			Name: Deny, Args: "ID", Category: "session", Method: "chat.send",
			Description: "Refuse what the agent has asked about.", Run: textOnly(runAllow(false)),
		},
		{
			Name: Choose, Args: "ID NUMBER", Category: "session", Method: "chat.send",
			Description: "Choose one of several answers to a question of the agent.", Run: textOnly(runChoose),
		},
	}
}

func runAllow(allow bool) func(ctx context.Context, a Actions, c Call) (string, error) {
	return func(ctx context.Context, a Actions, c Call) (string, error) {
		if c.Args == "" {
			return "", chat.Errorf(chat.CodeInvalid, "write the id of the question behind the command, as the question shows it")
		}
		return a.AnswerQuestion(ctx, c, QuestionAnswer{ID: c.Args, Allow: allow})
	}
}

func runChoose(ctx context.Context, a Actions, c Call) (string, error) {
	id, number, _ := cutWord(c.Args)
	option, err := strconv.Atoi(number)
	if id == "" || err != nil || option < 1 {
		return "", chat.Errorf(chat.CodeInvalid, "write the id of the question and the number of an option, as the question shows them")
	}
	return a.AnswerQuestion(ctx, c, QuestionAnswer{ID: id, Option: option})
}
