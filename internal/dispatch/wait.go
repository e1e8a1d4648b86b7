package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// lookAgain is how often a waiter asks the store about a message that another process may be running.
const lookAgain = time.Second

// waiters are callers that wait for the end of a message.
type waiters struct {
	mu   sync.Mutex
	byID map[string][]chan chat.RunEnd
}

func (w *waiters) add(id string) chan chat.RunEnd {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[string][]chan chat.RunEnd{}
	}
	c := make(chan chat.RunEnd, 1)
	w.byID[id] = append(w.byID[id], c)
	return c
}

func (w *waiters) remove(id string, c chan chat.RunEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.byID[id][:0:0]
	for _, o := range w.byID[id] {
		if o != c {
			left = append(left, o)
		}
	}
	w.byID[id] = left
	if len(left) == 0 {
		delete(w.byID, id)
	}
}

func (w *waiters) end(e chat.RunEnd) {
	w.mu.Lock()
	waiting := w.byID[e.RunID]
	delete(w.byID, e.RunID)
	w.mu.Unlock()
	for _, c := range waiting {
		c <- e // capacity 1 and one end per message
	}
}

// Wait returns when the message has ended, or when ctx is over (then with its cause). It holds no slot and no lock.
func (d *Dispatcher) Wait(ctx context.Context, messageID string) (chat.RunEnd, error) {
	c := d.waiters.add(messageID)
	defer d.waiters.remove(messageID, c)
	for {
		end, done, err := d.endOf(ctx, messageID)
		if done || (err != nil && !errors.Is(err, chat.ErrStoreUnavailable)) {
			return end, err
		}
		t := time.NewTimer(lookAgain)
		select {
		case end := <-c:
			t.Stop()
			return end, nil
		case <-ctx.Done():
			t.Stop()
			return chat.RunEnd{}, context.Cause(ctx)
		case <-t.C:
		}
	}
}

// endOf reads from the store how a message ended.
func (d *Dispatcher) endOf(ctx context.Context, messageID string) (chat.RunEnd, bool, error) {
	m, err := d.store.MessageByID(ctx, messageID)
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
		runID = m.MessageID // an executed command: no run, but lines in the transcript
	}
	run, err := d.store.RunByID(ctx, runID)
	switch {
	case err == nil:
		end.Usage, end.Duration, end.Waited = run.Usage, run.EndedAt.Sub(run.StartedAt), run.StartedAt.Sub(m.AcceptedAt)
		if run.Error != "" && end.Message != "" {
			end.Reason, end.Message = run.Cause, run.Error
		}
	case !errors.Is(err, chat.ErrNotFound):
		return end, false, err
	}
	tr, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: m.Session, RunID: runID})
	if err != nil {
		return end, false, err
	}
	for _, e := range tr.Entries {
		if e.Role == chat.RoleAssistant {
			end.Text, end.StopReason = e.Text, e.StopReason
		}
	}
	return end, true, nil
}
