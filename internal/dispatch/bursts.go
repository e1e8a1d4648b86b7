package dispatch

import (
	"maps"
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

// answerBursts are the answers of urgent commands that chats have received. A burst of such commands is executed, and answered once for each text: otherwise the
// answers would use up what the chat network accepts, and no other message would reach the chat for minutes.
type answerBursts struct {
	mu   sync.Mutex
	last map[chatAnswer]answerTimes
}

// answerTimes are when an answer was sent, and when a command had it last.
type answerTimes struct{ sent, last time.Time }

// chatAnswer is the text of an answer for a chat.
type chatAnswer struct {
	to   chat.Target
	text string
}

// answerBurst is the pause that ends a burst, so that a chat gets at most twenty such answers a minute; a burst without a pause is answered once each answerAgain.
const (
	answerBurst = 3 * time.Second
	answerAgain = time.Minute
)

// repeats reports whether the answer of a command repeats the one before it in a burst.
func (a *answerBursts) repeats(m chat.Message, text string) bool {
	one, now := chatAnswer{m.Content.Options.ReplyTo, text}, time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.last) >= tidyAt {
		maps.DeleteFunc(a.last, func(_ chatAnswer, b answerTimes) bool { return now.Sub(b.last) >= answerBurst })
	}
	before, ok := a.last[one]
	if ok = ok && now.Sub(before.last) < answerBurst && now.Sub(before.sent) < answerAgain; !ok {
		before.sent = now
	}
	if a.last == nil {
		a.last = map[chatAnswer]answerTimes{}
	}
	a.last[one] = answerTimes{before.sent, now}
	return ok
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
