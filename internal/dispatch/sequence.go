package dispatch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// order submits accepted messages to the scheduler in the order of their sequence numbers. Two
// calls that accept messages of one session, or a call and the sweep, may get the responses to
// their commits at the same time. A batching store even commits them together. The goroutine that
// is scheduled first must not take the place of the other.
//
// A message is submitted at once when no message waits before it. Otherwise it is parked until its
// predecessor is submitted. If another process accepted the predecessor, or the response to its
// commit was lost, the next sweep reads it from the store, in order with the messages after it.
// Only a predecessor that has an outcome is passed. The scheduler is called under the mutex: Submit
// changes only memory and does not block.
type order struct {
	// current reports whether a claim is that of the current incarnation. Work under an older claim
	// is left to the takeover, because the scheduler would keep it instead of the work that the
	// takeover submits.
	current func(c store.Claim) bool

	mu    sync.Mutex
	lines map[chat.SessionKey]*line
}

// line is the order of one session during one ownership.
type line struct {
	epoch     int64
	submitted int64 // all messages up to here were submitted or have an outcome
	parked    []parkedItem
}

// parkedItem is a message, or with passed the number of a command, which needs no place.
type parkedItem struct {
	seq    int64
	item   scheduler.Item[work]
	passed bool
	since  time.Time
}

// parkLimit is longer than [store.HintedAfter]: a sweep returns each waiting message that has been
// parked for as long.
const parkLimit = 2 * store.HintedAfter

// submitted is the response of the scheduler to an item.
type submitted struct {
	item scheduler.Item[work]
	res  scheduler.Submitted[work]
	err  error
}

// line returns the line of a claim; nil when the claim is not current any more.
func (h *order) line(c store.Claim) *line {
	if !h.current(c) {
		return nil
	}
	if h.lines == nil {
		h.lines = map[chat.SessionKey]*line{}
	}
	l := h.lines[c.Session]
	if l == nil || l.epoch < c.Epoch {
		l = &line{epoch: c.Epoch}
		h.lines[c.Session] = l
	}
	if l.epoch > c.Epoch {
		return nil
	}
	return l
}

// offer submits a message and the messages that waited for it; first is true when no message waited
// before it. The result is empty when the message is parked, or not taken: a sweep has submitted it,
// or the next one will.
func (h *order) offer(s *scheduler.Scheduler[work], it scheduler.Item[work], first bool) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line(it.Payload.claim)
	switch {
	case l == nil || it.Seq <= l.submitted:
		return nil
	case !first && l.submitted < it.Seq-1:
		l.parked = append(l.parked, parkedItem{seq: it.Seq, item: it, since: time.Now()})
		return nil
	}
	return append([]submitted{submitTo(s, it)}, l.advance(s, it.Seq)...)
}

// pass reports that a sequence number belongs to a command, which needs no place.
func (h *order) pass(s *scheduler.Scheduler[work], key chat.SessionKey, seq int64) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lines[key]
	switch {
	case l == nil:
		return nil
	case l.submitted < seq-1:
		l.parked = append(l.parked, parkedItem{seq: seq, passed: true, since: time.Now()})
		return nil
	}
	return l.advance(s, seq)
}

// known returns the number up to which all messages of a session were submitted or have an outcome.
func (h *order) known(key chat.SessionKey) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[key]; l != nil {
		return l.submitted
	}
	return 0
}

// resume submits the messages that a sweep found, in order and with the parked ones at their
// places. The items contain every message up to last that has no outcome, except known ones.
func (h *order) resume(s *scheduler.Scheduler[work], c store.Claim, items []scheduler.Item[work], last int64) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line(c)
	if l == nil {
		return nil
	}
	known := l.submitted
	var out []submitted
	for _, it := range items {
		if it.Seq <= known {
			continue
		}
		out = append(out, l.unpark(s, it.Seq)...)
		if len(l.parked) > 0 && l.parked[0].seq == it.Seq && len(it.Payload.rows) == 1 {
			it, l.parked = l.parked[0].item, l.parked[1:] // it knows more of the message, such as whether its person may still be typing
		}
		out = append(out, submitTo(s, it))
	}
	return append(out, l.advance(s, last)...)
}

// overdue submits messages that were parked for [parkLimit] when a complete read of what waits
// began. It did not return their predecessors, which therefore have outcomes.
func (h *order) overdue(s *scheduler.Scheduler[work], read time.Time) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []submitted
	for _, l := range h.lines {
		for len(l.parked) > 0 {
			first := slices.MinFunc(l.parked, bySeq)
			if read.Sub(first.since) < parkLimit {
				break
			}
			out = append(out, l.advance(s, first.seq-1)...)
		}
	}
	return out
}

// lost reports that the scheduler has given up a message without an outcome. If this process still
// owns the session, a sweep finds it.
func (h *order) lost(key chat.SessionKey, seq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[key]; l != nil {
		l.submitted = min(l.submitted, seq-1)
	}
}

// release removes a session whose ownership has ended.
func (h *order) release(key chat.SessionKey, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[key]; l != nil && l.epoch == epoch && len(l.parked) == 0 {
		delete(h.lines, key)
	}
}

// clear removes every session, here and in the scheduler. The messages are in the store, and a new
// incarnation takes them over. It is called when the claims of the old one are not current any
// more, so that none of its messages is submitted afterwards.
func (h *order) clear(s *scheduler.Scheduler[work]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.ResetAll()
	h.lines = nil
}

// advance moves the line to seq and submits the messages that were parked after it.
func (l *line) advance(s *scheduler.Scheduler[work], seq int64) []submitted {
	l.submitted = max(l.submitted, seq)
	var out []submitted
	for {
		i := slices.IndexFunc(l.parked, func(p parkedItem) bool { return p.seq <= l.submitted+1 })
		if i < 0 {
			return out
		}
		p := l.parked[i]
		l.parked = slices.Delete(l.parked, i, i+1)
		l.submitted = max(l.submitted, p.seq)
		out = append(out, p.submit(s)...)
	}
}

// unpark submits the messages that are parked before seq and sorts those that remain: the caller
// has seen every number up to seq.
func (l *line) unpark(s *scheduler.Scheduler[work], seq int64) []submitted {
	var out []submitted
	slices.SortFunc(l.parked, bySeq)
	for len(l.parked) > 0 && l.parked[0].seq < seq {
		out = append(out, l.parked[0].submit(s)...)
		l.parked = slices.Delete(l.parked, 0, 1)
	}
	return out
}

func bySeq(a, b parkedItem) int { return cmp.Compare(a.seq, b.seq) }

// submit submits the message; the number of a command needs nothing.
func (p *parkedItem) submit(s *scheduler.Scheduler[work]) []submitted {
	if p.passed {
		return nil
	}
	return []submitted{submitTo(s, p.item)}
}

func submitTo(s *scheduler.Scheduler[work], it scheduler.Item[work]) submitted {
	res, err := s.Submit(it)
	return submitted{item: it, res: res, err: err}
}

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

// resume submits the unfinished messages of a session: each run that had started as one item, the
// others in their order.
func (q *queue) resume(ctx context.Context, t store.Taken) {
	var items []scheduler.Item[work]
	for _, rows := range q.batches(t) {
		lead := rows[len(rows)-1]
		it := q.item(q.fromInbox(t.Claim, rows...), t.Mode)
		if lead.RunID != "" {
			it.ID, it.RunID, it.NoMerge = lead.RunID, lead.RunID, true
		}
		items = append(items, it)
	}
	for _, s := range q.order.resume(q.sched, t.Claim, items, t.LastSeq) {
		q.settle(ctx, s)
	}
}

// batches groups the unfinished messages of a session by their turns.
func (q *queue) batches(t store.Taken) [][]store.Waiting {
	if len(t.Messages) == 0 {
		return nil
	}
	rows, bySeq := make([]scheduler.Row, len(t.Messages)), make(map[int64]store.Waiting, len(t.Messages))
	for i := range t.Messages {
		m := &t.Messages[i]
		rows[i], bySeq[m.Seq] = m.Row(), *m
	}
	last := &t.Messages[len(t.Messages)-1]
	var out [][]store.Waiting
	for _, u := range scheduler.Units(rows, q.configured(last.Session, last.Channel, &last.Content), scheduler.SessionState{Mode: scheduler.QueueMode(t.Mode)}) {
		batch := make([]store.Waiting, len(u.Rows))
		for i := range u.Rows {
			batch[i] = bySeq[u.Rows[i].Seq]
		}
		out = append(out, batch)
	}
	return out
}
