package dispatch

import (
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// bursts predicts whether a typed message will share the turn of the one before it. It only guesses what the scheduler's debounce window
// will do, because the store needs the answer before the scheduler is called. A wrong guess uses or saves one place in a queue.
type bursts struct {
	mu   sync.Mutex
	open map[chat.SessionKey]typing // a session has at most one window
}

// typing is the current burst of one person in one thread.
type typing struct {
	sender, thread string
	since, last    time.Time
	debounce       time.Duration
}

// tidyAt is how many bursts are kept before old ones are removed.
const tidyAt = 512

// cut ends the debounce window of a session: messages before and after a command are not combined.
func (q *queue) cut(key chat.SessionKey) {
	q.bursts.cut(key)
	q.sched.Cut(key.String())
}

// joins records a message and reports whether it falls into the window that an earlier one opened.
func (b *bursts) joins(m chat.Message, s scheduler.Settings) bool {
	if !m.Content.Options.Typed || s.Debounce <= 0 || m.Content.Options.NoMerge || len(m.Content.Attachments) > 0 {
		b.cut(m.Session)
		return false
	}
	hold := s.DebounceMax
	if hold == 0 {
		hold = 3 * s.Debounce
	}
	now := time.Now()
	next := typing{sender: m.Content.Sender.ID, thread: m.Content.Thread, since: now, last: now, debounce: s.Debounce}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy(now)
	open, ok := b.open[m.Session]
	ok = ok && open.sender == next.sender && open.thread == next.thread && now.Sub(open.last) < s.Debounce && now.Sub(open.since) < hold
	if ok {
		next.since = open.since
	}
	if b.open == nil {
		b.open = map[chat.SessionKey]typing{}
	}
	b.open[m.Session] = next
	return ok
}

// cut ends the burst of a session.
func (b *bursts) cut(key chat.SessionKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, key)
}

func (b *bursts) tidy(now time.Time) {
	if len(b.open) < tidyAt {
		return
	}
	for k, s := range b.open {
		if now.Sub(s.last) >= s.debounce {
			delete(b.open, k)
		}
	}
}
