package command

import (
	"context"
	"strconv"

	"laneway/internal/chat"
)

// Answers is the name of the command that answers a question of an agent. Buttons send it.
const Answers = "answer"

func answerCommand() Command {
	return Command{
		Name: Answers, Args: "ID NUMBER", Category: "session", Method: "chat.send",
		Description: "Answer a question of the agent.", Run: textOnly(runAnswer),
	}
}

func runAnswer(ctx context.Context, a Actions, c Call) (string, error) {
	id, number, _ := cutWord(c.Args)
	option, err := strconv.Atoi(number)
	if id == "" || err != nil {
		return "", chat.Errorf(chat.CodeInvalid, "write the id of the question and the number of an option, as the question shows them")
	}
	return a.AnswerAgent(ctx, c, id, option)
}
