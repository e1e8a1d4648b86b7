package dispatch

import (
	"context"
	"slices"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

// Tasks lists sub-turns of turns, newest first, see [store.Tasks].
func (d *Dispatcher) Tasks(ctx context.Context, f store.TaskFilter) ([]store.Task, error) {
	return d.store.Tasks(ctx, f)
}

// tasksOf returns the open tasks of the conversation of a command, oldest first. For a caller who may stop only their own work, it returns
// only their tasks.
func (a actions) tasksOf(ctx context.Context, c command.Call) ([]store.Task, error) {
	f := store.TaskFilter{RootSession: c.Session, Open: true}
	if c.Own || c.OwnOnly {
		f.Visible = c.Principal
	}
	list, err := a.d.store.Tasks(ctx, f)
	slices.Reverse(list)
	return list, err
}

// Tasks implements /tasks.
func (a actions) Tasks(ctx context.Context, c command.Call) ([]command.Task, error) {
	list, err := a.tasksOf(ctx, c)
	tasks := make([]command.Task, 0, len(list))
	for _, t := range list {
		tasks = append(tasks, command.Task{ID: t.ID, Agent: t.Agent, State: t.State, Text: t.Text})
	}
	return tasks, err
}

// StopTask implements /tasks stop.
func (a actions) StopTask(ctx context.Context, c command.Call, id string) error {
	list, err := a.tasksOf(ctx, c)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(t store.Task) bool { return t.ID == id })
	if i < 0 {
		return chat.Errorf(chat.CodeNotFound, "this task has ended")
	}
	_, err = a.d.stops.stop(ctx, store.StopParams{Session: list[i].Session, Scope: store.StopRun, MessageID: id, By: c.Principal})
	return err
}
