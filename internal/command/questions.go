package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"laneway/internal/chat"
)

// Names of the commands that answer a question of an agent. Buttons send them.
const (
	Allow  = "allow"
	Deny   = "deny"
	Choose = "answer"
)

// Approvals is the command that lists what such answers allow for all turns of the conversation.
const Approvals = "approvals"

// QuestionAnswer is the answer of a person to a question of an agent.
type QuestionAnswer struct {
	// ID of the question.
	ID string
	// Option is the number of the chosen option, from 1. With 0, Allow selects the option that allows or the one that refuses.
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
		{
			Name: Approvals, Args: "[revoke ID | revoke all]", Category: "session", Method: "sessions.describe", Verbs: map[string]string{"*": "chat.send"},
			Description: "Show or revoke what agents may always do in this conversation.", Run: textOnly(runApprovals),
		},
	}
}

func runAllow(allow bool) func(ctx context.Context, a Actions, c Call) (string, error) {
	return func(ctx context.Context, a Actions, c Call) (string, error) {
		if c.Args == "" {
			return "", chat.Errorf(chat.CodeInvalid, "write the id of the question after the command, as the question shows it")
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

func runApprovals(ctx context.Context, a Actions, c Call) (string, error) {
	verb, id, _ := cutWord(c.Args)
	id = strings.TrimSpace(id)
	switch {
	case verb == "":
		return shownApprovals(ctx, a, c)
	case !strings.EqualFold(verb, "revoke") || id == "":
		return "", chat.Errorf(chat.CodeInvalid, "write /%s revoke and an id of the list, or all", Approvals)
	case strings.EqualFold(id, "all"):
		id = ""
	}
	n, err := a.RevokeApprovals(ctx, c, id)
	switch {
	case err != nil:
		return "", err
	case n == 0 && id != "":
		return "", chat.Errorf(chat.CodeInvalid, "no approval has this id; /%s lists them", Approvals)
	}
	return fmt.Sprintf("Revoked: %d. The agent asks again, unless it remembers the answer itself: /new ends that.", n), nil
}

func shownApprovals(ctx context.Context, a Actions, c Call) (string, error) {
	list, err := a.Approvals(ctx, c)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "No agent may do anything here without a question.", nil
	}
	_, zone, err := a.Clock(ctx, c)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("Allowed in this conversation until /new:")
	for _, one := range list {
		fmt.Fprintf(&b, "\n%s: %s may %s (%s, %s)", one.ID, one.Agent, one.Act, one.Label, ShownTime(one.At, zone))
	}
	fmt.Fprintf(&b, "\n/%s revoke %s revokes one, /%s revoke all revokes all.", Approvals, list[0].ID, Approvals)
	return b.String(), nil
}
