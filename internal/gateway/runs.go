package gateway

import (
	"context"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/jobs"
	"laneway/internal/gateway/rpc"
	"laneway/internal/store"
	"laneway/internal/wire"
)

// runsList lists the turns of the caller, or of all principals for a caller that sees everything.
func (o overview) runsList(ctx context.Context, c *rpc.Call, p wire.RunsListParams) (wire.RunsListResult, error) {
	out := wire.RunsListResult{TS: time.Now().UnixMilli(), Runs: []wire.Run{}}
	f := store.TurnFilter{Which: p.State, Lane: p.Lane, Visible: c.Visible(), Limit: store.DefaultTasks}
	if p.Limit != nil {
		f.Limit = int(*p.Limit)
	}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, o.srv.backend.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.Session = key
	}
	if p.Cursor != "" {
		at, id, ok := strings.Cut(p.Cursor, ".")
		ms, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return out, c.BadParam("/cursor", "it is not a nextCursor of runs.list")
		}
		f.After = &store.TurnMark{At: time.UnixMilli(ms), ID: id}
	}
	list, waits, err := o.srv.backend.Turns(ctx, f)
	if err != nil {
		return out, err
	}
	for i := range list {
		out.Runs = append(out.Runs, runView(c, &list[i], waits))
	}
	if n := len(list); n == f.Limit && waits[list[n-1].ID].Cause != chat.WaitRetry { // runs between two attempts follow after the last page of the others
		last := &list[n-1]
		at := last.AcceptedAt
		if f.Which == store.TurnsEnded {
			at = last.EndedAt
		}
		out.NextCursor = strconv.FormatInt(at.UnixMilli(), 10) + "." + last.ID
	}
	return out, nil
}

// runsGet returns one run with its tasks, its messages and, for a run of a job, its attempts.
func (o overview) runsGet(ctx context.Context, c *rpc.Call, p wire.RunsGetParams) (wire.RunsGetResult, error) {
	out := wire.RunsGetResult{Tasks: []wire.Run{}, Deliveries: []wire.RunDelivery{}}
	b := o.srv.backend
	f := store.TurnFilter{Message: p.ID, Visible: c.Visible()}
	if p.SessionKey != "" {
		key, err := chat.ParseSessionKey(p.SessionKey, b.DefaultAgent())
		if err != nil {
			return out, c.BadParam("/sessionKey", err.Error())
		}
		f.Session = key
	}
	list, waits, err := b.Turns(ctx, f)
	if err == nil && len(list) == 0 { // a caller names its runs by their keys
		f.Message = chat.RunIDOf(c.Principal(), p.ID)
		list, waits, err = b.Turns(ctx, f)
	}
	if err != nil || len(list) == 0 {
		return out, err
	}
	t := &list[0]
	run := runView(c, t, waits)
	out.Run = &run
	x := store.ExplainTurn(t, shownWait(c, t.ID, waits), time.Now())
	out.Answer = &wire.RunAnswer{Why: x.Why, Text: x.Text}
	for _, s := range t.Sent {
		out.Deliveries = append(out.Deliveries, wire.RunDelivery{
			Channel: s.Target.Channel, To: s.Target.ChatID, Kind: s.Kind, State: s.State, Attempts: s.Attempts, Error: s.Error, AtMs: rpc.Millis(s.DoneAt),
		})
	}
	tasks, waits, err := b.Turns(ctx, store.TurnFilter{Parent: t.ID, Visible: c.Visible()})
	if err != nil {
		return out, err
	}
	for i := range tasks {
		out.Tasks = append(out.Tasks, runView(c, &tasks[i], waits))
	}
	if run.JobID == "" {
		return out, nil
	}
	if keeper, ok := b.(CronBackend); ok {
		page, err := keeper.CronRuns(ctx, cron.RunFilter{RunID: ledgerID(t.ID), IncludeActive: true, Limit: 1}, c.Caller())
		if err != nil {
			return out, err
		}
		if len(page.Runs) > 0 {
			entry := jobs.EntryView(page.Runs[0], nil, true)
			out.Job = &entry
		}
	}
	return out, nil
}

// ledgerID returns the ledger's id of the run to whose attempt a message belongs.
func ledgerID(message string) string {
	id, _, _ := strings.Cut(message, "/")
	return id
}

// kindOf returns the kind of origin of a turn.
func kindOf(t *store.Turn) string {
	switch t.Channel {
	case cron.Channel, "api", "hook", chat.ChannelTask:
		return t.Channel
	default:
		return "chat"
	}
}

// shownWait returns what a turn waits for, in a form that the caller may see; nil = nothing.
func shownWait(c *rpc.Call, id string, waits map[string]chat.Waiting) *chat.Waiting {
	w, ok := waits[id]
	if !ok {
		return nil
	}
	if w.Cause == chat.WaitLane && c.Visible() != "" {
		w.Position = 0 // it would reveal how much work of others waits
	}
	return &w
}

func runView(c *rpc.Call, t *store.Turn, waits map[string]chat.Waiting) wire.Run {
	out := wire.Run{
		ID: t.ID, RunID: chat.ShownRunID(t.ID), Kind: kindOf(t), SessionKey: t.Session.String(), AgentID: t.Session.Agent, Principal: t.Principal, Channel: t.Channel,
		Lane: t.Lane, ParentRunID: chat.ShownRunID(t.Parent), RootRunID: chat.ShownRunID(t.Root), Text: t.Text, State: t.State, Outcome: string(t.Outcome),
		Reason: t.Reason, Error: t.Error, StopBy: t.StopBy, NodeID: t.Node, Attempt: t.Attempt, AcceptedAt: rpc.Millis(t.AcceptedAt), StartedAt: rpc.Millis(t.StartedAt),
		EndedAt: rpc.Millis(t.EndedAt), Model: t.Usage.Model, Provider: t.Usage.Provider,
	}
	if c.Cred.Administers(c.Scopes) {
		out.Detail = t.Detail
	}
	if t.Usage.InputTokens+t.Usage.OutputTokens > 0 {
		out.Usage = &wire.RunUsage{InputTokens: t.Usage.InputTokens, OutputTokens: t.Usage.OutputTokens}
	}
	if t.Channel == cron.Channel {
		if _, job, _, err := cron.ParseRunID(ledgerID(t.ID)); err == nil {
			out.JobID = job
		}
	}
	if w := shownWait(c, t.ID, waits); w != nil {
		out.WaitingFor = &wire.RunWaiting{Cause: string(w.Cause), Text: w.Text(), Position: w.Position, UntilMs: rpc.Millis(w.Until), BlockedBy: chat.ShownRunID(w.BlockedBy)}
	}
	return out
}
