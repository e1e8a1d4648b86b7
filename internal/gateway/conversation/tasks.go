package conversation

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/wire"
)

func (h handlers) tasks() []*rpc.Method {
	return []*rpc.Method{
		rpc.Define("tasks.list", chat.ScopeRead, h.tasksList, rpc.Lists),
		rpc.Define("tasks.get", chat.ScopeRead, h.tasksGet),
		rpc.Define("tasks.stop", chat.ScopeWrite, h.tasksStop, rpc.Control),
	}
}

// tasksList lists the tasks of the caller, or of all principals for a caller that sees everything.
func (h handlers) tasksList(ctx context.Context, c *rpc.Call, p wire.TasksListParams) (wire.TasksListResult, error) {
	out := wire.TasksListResult{TS: time.Now().UnixMilli(), Tasks: []wire.Task{}}
	f := store.TaskFilter{Visible: c.Visible(), Open: p.Open, Limit: int(orElse(p.Limit, store.DefaultTasks))}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, h.backend.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.RootSession = key
	}
	list, err := h.backend.Tasks(ctx, f)
	for _, t := range list {
		out.Tasks = append(out.Tasks, taskRow(t))
	}
	return out, err
}

func (h handlers) tasksGet(ctx context.Context, c *rpc.Call, p wire.TaskParams) (wire.TasksGetResult, error) {
	list, err := h.backend.Tasks(ctx, store.TaskFilter{ID: p.ID, Visible: c.Visible(), Limit: 1})
	if err != nil || len(list) == 0 {
		return wire.TasksGetResult{}, err
	}
	row := taskRow(list[0])
	return wire.TasksGetResult{Task: &row}, nil
}

// tasksStop stops a task and its sub-tasks.
func (h handlers) tasksStop(ctx context.Context, c *rpc.Call, p wire.TaskParams) (wire.TasksStopResult, error) {
	out := wire.TasksStopResult{OK: true, RunIDs: []string{}}
	list, err := h.backend.Tasks(ctx, store.TaskFilter{ID: p.ID, Visible: c.Visible(), Limit: 1})
	if err != nil || len(list) == 0 {
		return out, err
	}
	ids, err := h.backend.Stop(ctx, store.StopParams{Session: list[0].Session, Scope: store.StopRun, MessageID: list[0].ID, By: c.Principal(), Reason: "stop"})
	out.Stopped, out.RunIDs = len(ids) > 0, append(out.RunIDs, shownRuns(ids)...)
	return out, err
}

func taskRow(t store.Task) wire.Task {
	return wire.Task{
		ID: t.ID, SessionKey: t.Session.String(), AgentID: t.Agent, Lane: t.Lane, ParentRunID: chat.ShownRunID(t.Parent), RootRunID: chat.ShownRunID(t.Root),
		Text: t.Text, State: t.State, Outcome: string(t.Outcome), Reason: t.Reason, Error: t.Error, Background: t.Announce,
		CreatedAt: rpc.Millis(t.AcceptedAt), StartedAt: rpc.Millis(t.StartedAt), EndedAt: rpc.Millis(t.EndedAt),
	}
}
