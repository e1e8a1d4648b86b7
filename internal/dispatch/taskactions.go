package dispatch

import (
	"context"
	"slices"
	"time"

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

// ExplainTurn implements /why.
func (a actions) ExplainTurn(ctx context.Context, c command.Call, id string) (store.TurnExplanation, error) {
	list, waits, err := a.ownTurns(ctx, c, id)
	if err != nil {
		return store.TurnExplanation{}, err
	}
	for i := range list {
		t := &list[i]
		if t.State == store.StateDone && t.Outcome == chat.OutcomeAnswered && t.StartedAt.IsZero() { // a command
			continue
		}
		var wait *chat.Waiting
		if w, waits := waits[t.ID]; waits {
			wait = &w
		}
		return store.ExplainTurn(t, wait, time.Now()), nil
	}
	return store.TurnExplanation{}, chat.Errorf(chat.CodeNotFound, "there is no such message of yours among the newest here; write /why as a reply to your own message")
}

// ownTurns returns the turn of a message of the caller, or without an id the newest turns of the caller in the conversation.
func (a actions) ownTurns(ctx context.Context, c command.Call, id string) ([]store.Turn, map[string]chat.Waiting, error) {
	f := store.TurnFilter{Message: id, Session: c.Session, Visible: c.Principal}
	list, waits, err := a.d.Turns(ctx, f)
	if err != nil || id != "" || len(list) > 0 {
		slices.Reverse(list)
		return list, waits, err
	}
	f.Which, f.Limit = store.TurnsEnded, store.RecentMessages
	list, waits, err = a.d.Turns(ctx, f)
	if err == nil && len(list) > 0 { // with what it has sent
		newest := slices.IndexFunc(list, func(t store.Turn) bool { return !t.StartedAt.IsZero() || t.Outcome != chat.OutcomeAnswered })
		if newest >= 0 {
			return a.d.Turns(ctx, store.TurnFilter{ID: list[newest].ID, Visible: c.Principal})
		}
	}
	return list, waits, err
}
