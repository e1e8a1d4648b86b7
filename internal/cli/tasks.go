package cli

import (
	"context"
	"fmt"
	"strings"

	"laneway/internal/wire"
)

type tasksCmd struct {
	List tasksList `cmd:"" help:"List tasks, the newest first: turns that agents have requested."`
	Show tasksShow `cmd:"" help:"Show one task."`
	Stop tasksStop `cmd:"" help:"Stop a task and its sub-tasks."`
}

type tasksList struct {
	clientFlags
	Session string `help:"Only those of trees that began in this session." placeholder:"KEY" complete:"sessions"`
	All     bool   `help:"Those that have ended, too."`
	Limit   int    `help:"How many, 1 to 200." default:"50"`
	JSON    bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*tasksList) Help() string { return "Example:\n\n    laneway tasks list --all --limit 10" }

// Run lists tasks.
func (c *tasksList) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 200 {
		return usageError("--limit must be between 1 and 200")
	}
	var out wire.TasksListResult
	if err := c.call(ctx, env, "tasks.list", wire.TasksListParams{SessionKey: c.Session, Open: !c.All, Limit: new(int64(c.Limit))}, &out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	rows := [][]string{{"ID", "AGENT", "LANE", "STATE", "BEGAN", "TASK"}}
	for _, t := range out.Tasks {
		rows = append(rows, []string{cell(t.ID, 36), cell(t.AgentID, 20), cell(t.Lane, 10), cell(stateOfTask(t), 12), ago(env.now(), t.StartedAt), env.cell(t.Text, 50)})
	}
	return table(env.stdout, rows)
}

// stateOfTask returns the outcome of a task that has ended, or its state.
func stateOfTask(t wire.Task) string {
	if t.Outcome != "" {
		return t.Outcome
	}
	return t.State
}

type tasksShow struct {
	clientFlags
	ID   string `arg:"" help:"Task." complete:"tasks"`
	JSON bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*tasksShow) Help() string {
	return "Its conversation: laneway sessions show with the session of the task.\n\nExample:\n\n    laneway tasks show 0b6c1f7e-90a1-5c55-8a0e-1f2d3c4b5a69"
}

// Run shows a task.
func (c *tasksShow) Run(ctx context.Context, env *environment) error {
	var out wire.TasksGetResult
	if err := c.call(ctx, env, "tasks.get", wire.TaskParams{ID: c.ID}, &out); err != nil {
		return err
	}
	if out.Task == nil {
		return fmt.Errorf("there is no task %s; see laneway tasks list --all", oneLine(c.ID))
	}
	if c.JSON {
		return printJSON(env.stdout, out.Task)
	}
	t := out.Task
	return table(env.stdout, [][]string{
		{"id", cell(t.ID, 128)},
		{"session", cell(t.SessionKey, 512)},
		{"state", cell(stateOfTask(*t), 20) + ", lane " + cell(t.Lane, 20)},
		{"asked by run", cell(t.ParentRunID, 128)},
		{"root", cell(t.RootRunID, 128)},
		{"began", ago(env.now(), t.StartedAt)},
		{"error", cell(t.Error, 200)},
		{"task", env.cell(t.Text, 200)},
	})
}

type tasksStop struct {
	clientFlags
	ID   string `arg:"" help:"Task." complete:"tasks"`
	JSON bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*tasksStop) Help() string {
	return "Works while every lane is full.\n\nExample:\n\n    laneway tasks stop 0b6c1f7e-90a1-5c55-8a0e-1f2d3c4b5a69"
}

// Run stops a task.
func (c *tasksStop) Run(ctx context.Context, env *environment) error {
	var out wire.TasksStopResult
	if err := c.call(ctx, env, "tasks.stop", wire.TaskParams{ID: c.ID}, &out); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	if !out.Stopped {
		_, err := fmt.Fprintf(env.stdout, "nothing to stop in task %s\n", oneLine(c.ID))
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "stopped %s\n", cell(strings.Join(out.RunIDs, " "), 400))
	return err
}
