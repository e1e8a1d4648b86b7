package telegram

import (
	"context"
	"sync"
	"time"

	"laneway/internal/channel"
)

// What Telegram allows: 30 messages in a second for a bot, one a second in a chat, 20 a minute in a group.
const (
	botLimit   = 30
	groupLimit = 20
	// patience is how long a message waits here; one that would wait longer goes back to the outbox with the time.
	patience = 4 * time.Second
	// botReserve and groupReserve are how much of the limits previews and signs leave for messages.
	botReserve   = 5
	groupReserve = 3
	maxChats     = 10_000
)

// window allows so many events in any span of time, wherever it begins. It remembers the events themselves, so it is exact.
type window struct {
	span  time.Duration
	times []time.Time // the last ones, a ring
	at    int
}

func newWindow(limit int, span time.Duration) *window {
	return &window{span: span, times: make([]time.Time, limit)}
}

// free is when the next event may be if further ones are to fit as well; a time in the past means now.
func (w *window) free(further int) time.Time { return w.times[(w.at+further)%len(w.times)].Add(w.span) }

func (w *window) note(now time.Time) {
	w.times[w.at] = now
	w.at = (w.at + 1) % len(w.times)
}

// limiter keeps the bot below Telegram's limits and out of the windows in which it was told to be quiet.
type limiter struct {
	mu    sync.Mutex
	bot   *window
	quiet time.Time // until then no call at all
	chats map[int64]*chatLimit
}

type chatLimit struct {
	second, minute *window // minute is nil in private chats
	quiet          time.Time
	used           time.Time
}

func newLimiter() *limiter {
	return &limiter{bot: newWindow(botLimit, time.Second), chats: map[int64]*chatLimit{}}
}

// chat is a chat's windows. The mutex is held.
func (l *limiter) chat(id int64, now time.Time) *chatLimit {
	c := l.chats[id]
	if c == nil {
		if len(l.chats) >= maxChats {
			l.forget(now)
		}
		c = &chatLimit{second: newWindow(1, time.Second)}
		if id < 0 {
			c.minute = newWindow(groupLimit, time.Minute)
		}
		l.chats[id] = c
	}
	c.used = now
	return c
}

// forget drops the chats that nothing is to be remembered of; if all are in use, whichever come first.
func (l *limiter) forget(now time.Time) {
	for id, c := range l.chats {
		if now.Sub(c.used) > time.Minute && now.After(c.quiet) {
			delete(l.chats, id)
		}
	}
	for id := range l.chats {
		if len(l.chats) < maxChats {
			return
		}
		delete(l.chats, id)
	}
}

// silence obeys a retry_after: for one chat, or for all of them when the answer was about no chat (0).
func (l *limiter) silence(chat int64, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(d)
	if chat == 0 {
		l.quiet = later(l.quiet, until)
		return
	}
	c := l.chat(chat, time.Now())
	c.quiet = later(c.quiet, until)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wait blocks until a message may go to a chat, and counts it. When that takes longer than patience it returns with the time that is left.
func (l *limiter) wait(ctx context.Context, chat int64) *channel.SendError {
	began := time.Now()
	for {
		delay, global := l.try(chat)
		switch {
		case delay <= 0:
			return nil
		case time.Since(began)+delay > patience:
			return &channel.SendError{Reason: reasonRateLimited, RetryAfter: max(delay, time.Second), Global: global, Uncounted: true}
		case !pause(ctx, delay):
			return &channel.SendError{Reason: reasonCanceled, Uncounted: true, Cause: context.Cause(ctx)}
		}
	}
}

// try counts a message if it may go now; else it says how long that will take, and whether every chat has to wait.
func (l *limiter) try(chat int64) (delay time.Duration, global bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	at := later(later(l.quiet, c.quiet), later(l.bot.free(0), c.second.free(0)))
	if c.minute != nil {
		at = later(at, c.minute.free(0))
	}
	if at.After(now) {
		return at.Sub(now), at.Equal(l.quiet)
	}
	l.bot.note(now)
	c.note(now)
	return 0, false
}

func (c *chatLimit) note(now time.Time) {
	c.second.note(now)
	if c.minute != nil {
		c.minute.note(now)
	}
}

// spare counts a call that is only nice to have, if it may go now and leaves room for messages. Signs that are no messages (typing,
// drafts) cost the chat nothing.
func (l *limiter) spare(chat int64, message bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	at := later(later(l.quiet, c.quiet), l.bot.free(botReserve))
	if message {
		at = later(at, c.second.free(0))
		if c.minute != nil {
			at = later(at, c.minute.free(groupReserve))
		}
	}
	if at.After(now) {
		return false
	}
	l.bot.note(now)
	if message {
		c.note(now)
	}
	return true
}

// pause waits; false when ctx was over first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
