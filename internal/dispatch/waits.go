package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/events"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// waits are the calls of one turn that wait for sub-turns. While there is at least one, the turn
// has no slot: the first one releases it, the last one acquires it again. The store records the
// release first and the acquisition last, so that it never counts more turns than the lane has
// slots.
type waits struct {
	// yield releases the slot while fn runs and acquires it again; note records that in the store.
	// Both are called on the goroutine of hold and end with the turn, not with a call: a call can
	// end earlier, and the turn then continues with its slot.
	yield func(fn func()) error
	note  func(away bool) error
	// leave ends the turn in a drain, so that the next process runs it again.
	leave func()

	mu    sync.Mutex
	count int
	// last is closed when the last wait has ended, over when the slot is acquired again; nil while
	// the turn has its slot.
	last, over chan struct{}
	holding    sync.WaitGroup
}

// during runs wait without a slot. It returns when wait has returned and, for the last one of
// several, the turn has its slot again or has ended.
func (w *waits) during(ctx context.Context, wait func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	err := wait(ctx)
	w.end()
	return err
}

// begin joins the current waits, or releases the slot. If the earlier waits have just ended, it
// first waits until the slot is acquired again.
func (w *waits) begin(ctx context.Context) error {
	for {
		w.mu.Lock()
		if w.over == nil {
			w.count, w.last, w.over = 1, make(chan struct{}), make(chan struct{})
			w.hold()
			w.mu.Unlock()
			return nil
		}
		if w.count > 0 {
			w.count++
			w.mu.Unlock()
			return nil
		}
		over := w.over
		w.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hold releases the slot until the last wait has ended. Its error is ignored: the turn either ends
// with its context, or continues.
func (w *waits) hold() {
	last, over := w.last, w.over
	w.holding.Go(func() {
		defer func() {
			w.mu.Lock()
			w.last, w.over = nil, nil
			w.mu.Unlock()
			close(over)
		}()
		if w.note(true) != nil { // it keeps its slot: the store must not count fewer turns than hold one
			<-last
			return
		}
		err := w.yield(func() { <-last })
		<-last // also when the slot was not released, because the turn has ended
		if err == nil {
			_ = w.note(false) // when it fails the claim is gone, and so is the turn
		}
	})
}

// end leaves the waits. The last one waits for the slot.
func (w *waits) end() {
	w.mu.Lock()
	w.count--
	if w.count > 0 {
		w.mu.Unlock()
		return
	}
	over := w.over
	close(w.last)
	w.mu.Unlock()
	<-over
}

// wait returns when the goroutine of the waits has ended; every call must have returned.
func (w *waits) wait() { w.holding.Wait() }

// runEntries exceeds the number of transcript entries of a run: one for each message and each call.
const runEntries = 2 * maxProgramCalls

// endEvent reads from the store how a message ended, as an event.
func (p *parts) endEvent(ctx context.Context, messageID string) (chat.Event, bool, error) {
	m, err := p.store.MessageByID(ctx, messageID)
	if err != nil || m.State != store.StateDone {
		return chat.Event{}, false, err
	}
	end, done, err := p.endOf(ctx, messageID)
	if err != nil || !done {
		return chat.Event{}, false, err
	}
	e := chat.Event{
		Kind: endKind(end.Outcome), Session: m.Session, Principal: m.Principal, RunID: m.MessageID, Seq: events.FirstOfTurn, Lane: m.Lane,
		Text: end.Text, Message: end.Message, Detail: end.Detail, Usage: end.Usage, MergedInto: end.MergedInto, Reason: end.Reason,
	}
	switch {
	case end.Outcome == chat.OutcomeMerged:
		e.Text, e.Reason = "", "merged"
	case e.Kind == chat.EventFinal:
		e.Reason = end.StopReason
	case e.Kind == chat.EventAborted:
		e.Reason = abortReason(end.Reason)
	}
	return e, true, nil
}

// endOf reads from the store how a message ended.
func (p *parts) endOf(ctx context.Context, messageID string) (chat.RunEnd, bool, error) {
	m, err := p.store.MessageByID(ctx, messageID)
	if err != nil || m.State != store.StateDone {
		return chat.RunEnd{}, false, err
	}
	end := chat.RunEnd{RunID: m.MessageID, Session: m.Session, Outcome: m.Outcome, Reason: m.Reason}
	if m.Outcome != chat.OutcomeAnswered && m.Outcome != chat.OutcomeMerged {
		end.Message = sentence(m.Outcome, m.Reason)
	}
	if m.Outcome == chat.OutcomeMerged {
		end.MergedInto = m.RunID
	}
	runID := m.RunID
	if runID == "" {
		runID = m.MessageID // an executed command has no run, but transcript entries
	}
	run, err := p.store.RunByID(ctx, runID)
	switch {
	case err == nil:
		end.Foreign = run.Outside
		end.Usage, end.Duration, end.Waited = run.Usage, run.EndedAt.Sub(run.StartedAt), run.StartedAt.Sub(m.AcceptedAt)
		if run.Error != "" && end.Message != "" {
			end.Reason, end.Message, end.Detail = run.Cause, run.Error, run.Detail
		}
	case !errors.Is(err, chat.ErrNotFound):
		return end, false, err
	}
	tr, err := p.store.Transcript(ctx, store.TranscriptQuery{Session: m.Session, RunID: runID, Limit: runEntries})
	if err != nil {
		return end, false, err
	}
	for _, e := range tr.Entries {
		switch {
		case e.Role == chat.RoleAssistant:
			end.Text, end.StopReason = e.Text, e.StopReason
		case e.Role == chat.RoleSystem && e.StopReason == chat.StopCalls:
			end.StopReason = chat.StopCalls
			if err := json.Unmarshal([]byte(e.Text), &end.Calls); err != nil {
				return end, false, fmt.Errorf("reading the calls of a run: %w", err)
			}
		case e.StopReason == chat.StopForeign:
			end.Foreign = true
		case e.Role == chat.RoleSystem && e.Text == chat.EmptyAnswer(e.StopReason):
			end.Message, end.StopReason = e.Text, e.StopReason
		}
	}
	return end, true, nil
}

// Turns lists turns, see [store.Turns]. The map has, by id, what those without an outcome wait for;
// a running turn is in it only when it waits for something other than its agent. The first page of
// a list with waiting turns also has runs of jobs between two attempts, which have no message:
// their id is the id of the run in the ledger, which the message of the first attempt had.
func (c conversations) Turns(ctx context.Context, f store.TurnFilter) ([]store.Turn, map[string]chat.Waiting, error) {
	list, err := c.store.Turns(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	waits := c.waits(list)
	retries, err := c.retries(ctx, &f)
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
func (c conversations) retries(ctx context.Context, f *store.TurnFilter) ([]cron.Run, error) {
	if f.One() || f.Parent != "" || f.After != nil || !f.Before.IsZero() || f.Which == store.TurnsRunning || f.Which == store.TurnsEnded {
		return nil, nil
	}
	page, err := c.store.Runs(ctx, cron.RunFilter{Visible: f.Visible, States: []cron.RunState{cron.RunRetrying}, Limit: f.Most()})
	if err != nil {
		return nil, fmt.Errorf("reading runs between two attempts: %w", err)
	}
	return page.Runs, nil
}

// turnOf returns a run between two attempts in the form of a turn.
func turnOf(r *cron.Run) store.Turn {
	key, _ := chat.ParseSessionKey(r.SessionKey, r.Agent) // it was checked before it was stored
	return store.Turn{
		ID: r.ID, Session: key, Lane: r.Lane, Channel: cron.Channel, Text: r.JobName, Principal: r.Owner, State: store.StateWaiting, Error: r.Error, Node: r.Node,
		Attempt: r.Attempt, AcceptedAt: r.ClaimedAt, StartedAt: r.StartedAt, Usage: chat.Usage{InputTokens: int(r.InputTokens), OutputTokens: int(r.OutputTokens), Model: r.Model, Provider: r.Provider},
	}
}

// waits returns what turns wait for. This process knows the positions in its own lanes; for turns
// of other processes it uses only the list.
func (c conversations) waits(list []store.Turn) map[string]chat.Waiting {
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
	here := c.sched.Waits(keys)
	asked := c.questions.askedBy()
	waits := map[string]chat.Waiting{}
	for i := range list {
		t := &list[i]
		switch w, ok := here[t.Session.String()]; {
		case t.State == store.StateDone:
		case asked[t.ID]:
			waits[t.ID] = chat.Waiting{Cause: chat.WaitQuestion}
		case t.State == store.RunYielded:
			waits[t.ID] = chat.Waiting{Cause: chat.WaitTasks}
		case t.State != store.StateWaiting:
		case ok:
			waits[t.ID] = waitingOf(w, t.Ahead)
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

// waitingOf returns what a message waits for whose session waits for w, with so many messages
// ahead.
func waitingOf(w scheduler.Wait, ahead int) chat.Waiting {
	switch {
	case w.Cause == scheduler.WaitDebounce:
		return chat.Waiting{Cause: chat.WaitDebounce, Until: time.Now().Add(w.Left)}
	case w.Cause == scheduler.WaitSession || ahead > 0:
		return chat.Waiting{Cause: chat.WaitSession, Position: ahead + 1, BlockedBy: w.BlockedBy}
	}
	return chat.Waiting{Cause: chat.WaitCause(w.Cause), Position: w.Position}
}
