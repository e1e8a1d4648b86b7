package dispatch

import (
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// bursts tells whether a typed message will share the turn of the one before it. It only guesses what the scheduler's debounce window will
// do, because the store has to be told before the scheduler is asked; a wrong guess costs or spares one place in a queue.
type bursts struct {
	mu   sync.Mutex
	open map[burstKey]burstSpan
}

type burstKey struct {
	session        chat.SessionKey
	sender, thread string
}

type burstSpan struct {
	since, last time.Time
	debounce    time.Duration
}

// tidyAt is how many bursts are remembered before old ones are looked for.
const tidyAt = 512

// joins notes a typed message and reports whether it falls into the window that an earlier one has opened.
func (b *bursts) joins(m chat.Message, s scheduler.Settings) bool {
	if m.Content.Options.NoMerge || len(m.Content.Attachments) > 0 {
		return false
	}
	hold := s.DebounceMax
	if hold == 0 {
		hold = 3 * s.Debounce
	}
	key := burstKey{session: m.Session, sender: m.Content.Sender.ID, thread: m.Content.Thread}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tidy(now)
	span, ok := b.open[key]
	if ok && now.Sub(span.last) < s.Debounce && now.Sub(span.since) < hold {
		span.last = now
		b.open[key] = span
		return true
	}
	if b.open == nil {
		b.open = map[burstKey]burstSpan{}
	}
	b.open[key] = burstSpan{since: now, last: now, debounce: s.Debounce}
	return false
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
