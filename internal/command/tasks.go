package command

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// TaskActions are the operations of commands on tasks: turns that running turns of a conversation requested.
type TaskActions interface {
	// Tasks lists the open tasks of the conversation, oldest first.
	Tasks(ctx context.Context, c Call) ([]Task, error)
	// StopTask stops a task and its sub-tasks. chat.CodeNotFound: no such task exists that the caller may stop.
	StopTask(ctx context.Context, c Call, id string) error
	// ExplainTurn says where the answer to a message of the caller in this conversation is; id "" = the newest one. chat.CodeNotFound: there is no such
	// message among the newest.
	ExplainTurn(ctx context.Context, c Call, id string) (store.TurnExplanation, error)
}

// Task is a task as /tasks shows it.
type Task struct{ ID, Agent, State, Text string }

func taskCommands() []Command {
	return []Command{{
		Name: "why", Args: "[run]", Common: true, Category: "status", Method: "runs.get",
		Description: "Say where the answer to your newest message is, or to the one that you reply to.", Run: textOnly(runWhy),
	}, {
		Name: "tasks", Args: "[stop NUMBER]", Category: "session", Method: "tasks.list", Verbs: map[string]string{"stop": "tasks.stop"},
		Description: "Show what agents work on for this conversation, or stop one of these tasks.", Run: textOnly(runTasks),
	}}
}

func runWhy(ctx context.Context, a Actions, c Call) (string, error) {
	x, err := a.ExplainTurn(ctx, c, cmp.Or(c.Args, c.Answered))
	return x.Text, err
}

// shownTask is how many characters of a task are shown.
const shownTask = 80

func runTasks(ctx context.Context, a Actions, c Call) (string, error) {
	verb, rest, _ := cutWord(c.Args)
	switch {
	case c.Args == "":
		return showTasks(ctx, a, c)
	case !strings.EqualFold(verb, "stop") || rest == "":
		return "", chat.Errorf(chat.CodeInvalid, "write /tasks, or /tasks stop NUMBER with a number of that list")
	}
	list, err := a.Tasks(ctx, c)
	if err != nil {
		return "", err
	}
	for i, t := range list {
		if rest == strconv.Itoa(i+1) || rest == t.ID {
			return "Stopped: " + t.line(), a.StopTask(ctx, c, t.ID)
		}
	}
	return "", chat.Errorf(chat.CodeInvalid, "there is no task %s; /tasks lists them", chat.Cut(chat.Printable(rest), 40))
}

func showTasks(ctx context.Context, a Actions, c Call) (string, error) {
	list, err := a.Tasks(ctx, c)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "There are no tasks at work.", nil
	}
	var b strings.Builder
	for i, t := range list {
		fmt.Fprintf(&b, "%d. %s (%s)\n", i+1, t.line(), t.State)
	}
	return strings.TrimRight(b.String(), "\n"), nil
}

func (t Task) line() string {
	return t.Agent + ": " + cutRunes(chat.Printable(strings.Join(strings.Fields(t.Text), " ")), shownTask)
}
