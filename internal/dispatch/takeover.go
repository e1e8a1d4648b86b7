package dispatch

import (
	"context"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// takeover applies decisions of ownership to the queue; it implements [ownership.Handler].
type takeover struct {
	q       *queue
	running *runningTurns
}

// Resume submits the unfinished messages of sessions that this process owns.
func (t takeover) Resume(ctx context.Context, sessions []store.Taken) {
	for _, s := range sessions {
		t.q.resume(ctx, s)
	}
}

// Known returns up to which number this process has the messages of a session.
func (t takeover) Known(key chat.SessionKey) int64 { return t.q.order.known(key) }

// AllRead submits the messages that still wait for a predecessor: it has an outcome.
func (t takeover) AllRead(ctx context.Context, since time.Time) {
	for _, s := range t.q.order.overdue(t.q.sched, since) {
		t.q.settle(ctx, s)
	}
}

// Stop cancels a turn of this process. A turn that was already cancelled keeps its cause.
func (t takeover) Stop(r store.StopRequest) { t.q.sched.StopRun(r.Session.String(), r.RunID, r.By) }

// LeaseLost cancels every turn and clears the queues in memory; the messages are in the store.
func (t takeover) LeaseLost() {
	t.q.sched.Cancel(scheduler.ErrLeaseLost)
	t.q.order.clear(t.q.sched)
}

// Running returns the ids of the running turns.
func (t takeover) Running() map[string]bool { return t.running.ids() }

// resume submits the unfinished messages of a session: each run that had started as one item, the others in their order.
func (q *queue) resume(ctx context.Context, t store.Taken) {
	var items []scheduler.Item[work]
	for _, rows := range batches(t.Messages) {
		lead := rows[len(rows)-1]
		m := chat.Message{Session: lead.Session, Channel: lead.Channel, Content: lead.Content}
		it := q.item(q.fromInbox(t.Claim, rows...), q.settings(m, t.Mode))
		if lead.RunID != "" {
			it.ID, it.RunID, it.NoMerge = lead.RunID, lead.RunID, true
		}
		items = append(items, it)
	}
	for _, s := range q.order.resume(q.sched, t.Claim, items, t.LastSeq) {
		q.settle(ctx, s)
	}
}

// batches groups messages. Those of one run stay together under its id. A held message that is not yet in a turn joins the one right before
// it, as in the debounce window. A missing number belongs to a command, or to a message that is already on its way to the scheduler and
// must not be overtaken.
func batches(rows []store.Waiting) [][]store.Waiting {
	var out [][]store.Waiting
	runAt := map[string]int{}
	for _, r := range rows {
		if i, ok := runAt[r.RunID]; ok && r.RunID != "" {
			out[i] = append(out[i], r)
			continue
		}
		if n := len(out); n > 0 && joins(out[n-1], r) {
			out[n-1] = append(out[n-1], r)
			continue
		}
		if r.RunID != "" {
			runAt[r.RunID] = len(out)
		}
		out = append(out, []store.Waiting{r})
	}
	return out
}

func joins(batch []store.Waiting, r store.Waiting) bool {
	last := batch[len(batch)-1]
	return r.State == store.StateHeld && r.RunID == "" && last.RunID == "" && r.Seq == last.Seq+1 &&
		last.Content.Sender.ID == r.Content.Sender.ID && last.Content.Thread == r.Content.Thread &&
		len(last.Content.Attachments)+len(r.Content.Attachments) == 0 &&
		!last.Content.Options.NoMerge && !r.Content.Options.NoMerge && len(batch) < 12
}
