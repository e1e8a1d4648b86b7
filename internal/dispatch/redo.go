package dispatch

import (
	"context"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/store"
)

// redo settles a command whose record was there already. Usually it was answered then, and nothing happens. But the process may have died, or
// the store's word about the record may have been lost, before that: then whoever delivered it delivers it again, and the command is executed
// under the id of the record. What it does under that id it does once (onceOf), and its answer goes out once. Urgent commands act before they
// are recorded and need none of this.
func (d *Dispatcher) redo(ctx context.Context, m chat.Message, acc store.Accepted, call command.Call, cmd command.Command) (chat.Receipt, error) {
	was := acc.Existing
	receipt := duplicateReceipt(was)
	if was.State != store.StateDone || was.Outcome != chat.OutcomeAnswered || was.RunID != "" {
		return receipt, nil // no command then
	}
	if was.MessageID != m.ID { // delivered anew, it has a new id
		if !d.executing.begin(was.MessageID) {
			return receipt, nil
		}
		defer d.executing.end(was.MessageID)
	}
	m.ID, m.Session = was.MessageID, was.Session
	if done, err := d.wasAnswered(ctx, was); err != nil || done {
		return receipt, err
	}
	d.log.InfoContext(ctx, "a command that was recorded and not answered is executed", "command", cmd.Name, "run_id", m.ID)
	call.Again = true
	return receipt, d.endCommand(ctx, m, cmd, was.Seq, d.execCommand(ctx, m, cmd, call))
}

// wasAnswered reports whether a recorded command has its lines in the transcript. Where nobody can tell (the transcript has been archived since, or
// what was done under the id is forgotten) it counts as answered.
func (d *Dispatcher) wasAnswered(ctx context.Context, was store.Waiting) (bool, error) {
	if time.Since(was.AcceptedAt) >= store.AnswerFor {
		return true, nil
	}
	own, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: was.Session, RunID: was.MessageID, Limit: 1, MaxChars: 1})
	if err != nil || len(own.Entries) > 0 {
		return true, err
	}
	all, err := d.store.Transcript(ctx, store.TranscriptQuery{Session: was.Session, FromStart: true, Limit: 1, MaxChars: 1})
	return err != nil || (len(all.Entries) > 0 && all.Entries[0].At.After(was.AcceptedAt)), err
}

// onceOf is the name of what a command does.
func onceOf(c command.Call) *chat.IdempotencyKey {
	if c.ID == "" {
		return nil
	}
	return &chat.IdempotencyKey{Owner: c.Principal, Method: "command", Key: c.ID, Hash: chat.StateHash(c.Name + " " + c.Args)}
}

// executing is the ids of the commands that this process executes at the moment, so that a repetition does not complete what is not over.
type executing struct {
	mu  sync.Mutex
	ids map[string]bool
}

// begin is false when somebody executes id already.
func (e *executing) begin(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids[id] {
		return false
	}
	if e.ids == nil {
		e.ids = map[string]bool{}
	}
	e.ids[id] = true
	return true
}

func (e *executing) end(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ids, id)
}
