package dispatch

import (
	"slices"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// order submits accepted messages to the scheduler in the order of their sequence numbers. Two calls that accept messages of one session,
// or a call and the sweep, may get the responses to their commits at the same time. A batching store even commits them together. The
// goroutine that is scheduled first must not take the place of the other.
//
// A message is submitted at once when no message waits before it. Otherwise it is parked until its predecessor is submitted. The scheduler
// is called under the mutex: Submit changes only memory and does not block.
type order struct {
	mu    sync.Mutex
	lines map[chat.SessionKey]*line
}

// line is the order of one session during one ownership.
type line struct {
	epoch     int64
	submitted int64 // all messages up to here were submitted or have an outcome
	parked    []parkedItem
}

type parkedItem struct {
	seq   int64
	item  scheduler.Item[work]
	since time.Time
}

// parkLimit is how long a message waits for a missing predecessor. If another process accepted the predecessor and its hint was lost, the
// next sweep finds it.
const parkLimit = 2 * time.Second

// submitted is the response of the scheduler to an item.
type submitted struct {
	item scheduler.Item[work]
	res  scheduler.Submitted[work]
	err  error
}

func (h *order) line(key chat.SessionKey, epoch int64) *line {
	if h.lines == nil {
		h.lines = map[chat.SessionKey]*line{}
	}
	l := h.lines[key]
	if l == nil || l.epoch < epoch {
		l = &line{epoch: epoch}
		h.lines[key] = l
	}
	return l
}

// offer submits a message and the messages that waited for it; first is true when no message waited before it. With an empty result, the
// message is parked.
func (h *order) offer(s *scheduler.Scheduler[work], it scheduler.Item[work], first bool) []submitted {
	w := it.Payload
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line(w.claim.Session, w.claim.Epoch)
	if !first && l.submitted < it.Seq-1 {
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
	if l == nil || l.submitted < seq-1 {
		return nil
	}
	return l.advance(s, seq)
}

// resume submits the messages that a takeover or a check of hints found, in order and each after the messages that are parked before it.
// Then it submits what was accepted meanwhile. last is the newest number that the check knew.
func (h *order) resume(s *scheduler.Scheduler[work], key chat.SessionKey, epoch int64, items []scheduler.Item[work], last int64) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.line(key, epoch)
	var out []submitted
	for _, it := range items {
		out = append(out, l.unpark(s, it.Seq)...)
		out = append(out, submitTo(s, it))
	}
	return append(out, l.advance(s, last)...)
}

// overdue submits messages that have waited too long for a predecessor.
func (h *order) overdue(s *scheduler.Scheduler[work]) []submitted {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []submitted
	for _, l := range h.lines {
		for len(l.parked) > 0 {
			first := slices.MinFunc(l.parked, func(a, b parkedItem) int { return int(a.seq - b.seq) })
			if time.Since(first.since) < parkLimit {
				break
			}
			out = append(out, l.advance(s, first.seq-1)...)
		}
	}
	return out
}

// release removes a session whose ownership has ended.
func (h *order) release(key chat.SessionKey, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[key]; l != nil && l.epoch == epoch && len(l.parked) == 0 {
		delete(h.lines, key)
	}
}

// clear removes every session. The messages are in the store, and a new incarnation takes them over.
func (h *order) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
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
		out = append(out, submitTo(s, p.item))
	}
}

// unpark submits the messages that are parked before seq: the caller has seen every number up to it.
func (l *line) unpark(s *scheduler.Scheduler[work], seq int64) []submitted {
	var out []submitted
	slices.SortFunc(l.parked, func(a, b parkedItem) int { return int(a.seq - b.seq) })
	for len(l.parked) > 0 && l.parked[0].seq < seq {
		out = append(out, submitTo(s, l.parked[0].item))
		l.parked = slices.Delete(l.parked, 0, 1)
	}
	return out
}

func submitTo(s *scheduler.Scheduler[work], it scheduler.Item[work]) submitted {
	res, err := s.Submit(it)
	return submitted{item: it, res: res, err: err}
}
