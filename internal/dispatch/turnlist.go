package dispatch

import (
	"context"
	"fmt"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// turnList lists turns with what they wait for. [Dispatcher] embeds it.
type turnList struct {
	parts     *parts
	questions *questions
}

// Turns lists turns, see [store.Turns]. The map has, by id, what those without an outcome wait for; a running turn is in it only when it
// waits for something other than its agent. The first page of a list with waiting turns also has runs of jobs between two attempts, which
// have no message: their id is the id of the run in the ledger, which the message of the first attempt had.
func (l turnList) Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	list, err := l.parts.store.Turns(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	waits := l.waits(list)
	retries, err := l.retries(ctx, &f)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range retries {
		t := turnOf(&r)
		if len(list) < f.Most() && (f.Lane == "" || f.Lane == t.Lane) && (f.Session.IsZero() || f.Session == t.Session) {
			list, waits[t.ID] = append(list, t), chat.Waiting{Cause: chat.WaitRetry, Until: r.NextAttempt}
		}
	}
	return list, waits, nil
}

// retries returns the runs of jobs between two attempts that belong to a list of turns.
func (l turnList) retries(ctx context.Context, f *store.TurnFilter) ([]cron.Run, error) {
	if f.One() || f.Parent != "" || f.After != nil || !f.Before.IsZero() || f.Which == store.TurnsRunning || f.Which == store.TurnsEnded {
		return nil, nil
	}
	page, err := l.parts.store.Runs(ctx, cron.RunFilter{Visible: f.Visible, States: []cron.RunState{cron.RunRetrying}, Limit: f.Most()})
	if err != nil {
		return nil, fmt.Errorf("reading runs between two attempts: %w", err)
	}
	return page.Runs, nil
}

// turnOf returns a run between two attempts in the form of a turn.
func turnOf(r *cron.Run) store.Turn {
	key, _ := chat.ParseSessionKey(r.SessionKey, r.Agent) //nolint:errcheck // it was checked before it was stored
	return store.Turn{
		ID: r.ID, Session: key, Lane: r.Lane, Channel: cron.Channel, Text: r.JobName, Principal: r.Owner, State: store.StateWaiting, Error: r.Error, Node: r.Node,
		Attempt: r.Attempt, AcceptedAt: r.ClaimedAt, StartedAt: r.StartedAt, Usage: chat.Usage{InputTokens: int(r.InputTokens), OutputTokens: int(r.OutputTokens), Model: r.Model, Provider: r.Provider},
	}
}

// waits returns what turns wait for. This process knows the positions in its own lanes; for turns of other processes it uses only the list.
func (l turnList) waits(list []store.Turn) map[string]chat.Waiting {
	var keys []string
	running := map[chat.SessionKey]string{}
	for i := range list {
		t := &list[i]
		switch {
		case t.State == store.StateDone:
		case t.State == store.StateWaiting:
			keys = append(keys, t.Session.String())
		case running[t.Session] == "":
			running[t.Session] = t.ID
		}
	}
	here := map[string]scheduler.Wait{}
	for _, queue := range l.parts.sched.Waits(keys) {
		for _, w := range queue {
			here[w.ID] = w
		}
	}
	asked := l.questions.askedBy()
	waits := map[string]chat.Waiting{}
	for i := range list {
		t := &list[i]
		switch w, ok := here[t.ID]; {
		case t.State == store.StateDone:
		case asked[t.ID]:
			waits[t.ID] = chat.Waiting{Cause: chat.WaitQuestion}
		case t.State == store.RunYielded:
			waits[t.ID] = chat.Waiting{Cause: chat.WaitTasks}
		case t.State != store.StateWaiting:
		case ok:
			waits[t.ID] = waitingOf(w)
		case running[t.Session] != "":
			waits[t.ID] = chat.Waiting{Cause: chat.WaitSession, BlockedBy: running[t.Session]}
		case t.Node == "":
			waits[t.ID] = chat.Waiting{Cause: chat.WaitGateway}
		default:
			waits[t.ID] = chat.Waiting{Cause: chat.WaitLane}
		}
	}
	return waits
}

// waitingOf returns the scheduler's state of a waiting message.
func waitingOf(w scheduler.Wait) chat.Waiting {
	out := chat.Waiting{Cause: chat.WaitCause(w.Cause), Position: w.Position, BlockedBy: w.BlockedBy}
	if w.Cause == scheduler.WaitDebounce {
		out.Until = time.Now().Add(w.Left)
	}
	return out
}
