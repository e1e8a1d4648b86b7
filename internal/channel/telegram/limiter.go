package telegram

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/channel"
)

// What Telegram allows: 30 messages in a second for a bot, one a second in a chat, 20 a minute in a group. The buckets are cut so that no
// window of that length ever has more, wherever it begins.
const (
	botRate, botBurst     = 25, 5
	chatRate, chatBurst   = 1, 1
	groupRate, groupBurst = 15.0 / 60, 5
	// patience is how long a message waits here; one that would wait longer goes back to the outbox with the time.
	patience = 4 * time.Second
	// previewReserve is how many of a group's tokens previews leave for messages.
	previewReserve = 3
	maxChats       = 10_000
)

// limiter keeps the bot below Telegram's limits and out of the windows in which it was told to be quiet.
type limiter struct {
	bot *rate.Limiter

	mu    sync.Mutex
	quiet time.Time // until then no call at all
	chats map[int64]*chatLimit
}

type chatLimit struct {
	second, minute *rate.Limiter // minute is nil in private chats
	quiet          time.Time
	used           time.Time
}

func newLimiter() *limiter {
	return &limiter{bot: rate.NewLimiter(botRate, botBurst), chats: map[int64]*chatLimit{}}
}

// chat is a chat's buckets. The mutex is held.
func (l *limiter) chat(id int64, now time.Time) *chatLimit {
	c := l.chats[id]
	if c == nil {
		if len(l.chats) >= maxChats {
			l.forget(now)
		}
		c = &chatLimit{second: rate.NewLimiter(chatRate, chatBurst)}
		if id < 0 {
			c.minute = rate.NewLimiter(groupRate, groupBurst)
		}
		l.chats[id] = c
	}
	c.used = now
	return c
}

// forget drops the chats whose buckets are full again; if all are in use, whichever come first: they begin with full buckets.
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

// wait blocks until a message may go to a chat. When that takes longer than patience it returns at once with the time.
func (l *limiter) wait(ctx context.Context, chat int64) *channel.SendError {
	delay, global, giveBack := l.reserve(chat)
	if delay > patience {
		giveBack()
		return &channel.SendError{Reason: reasonRateLimited, RetryAfter: delay, Global: global}
	}
	if !pause(ctx, delay) {
		giveBack()
		return &channel.SendError{Reason: reasonCanceled, Cause: context.Cause(ctx)}
	}
	return nil
}

// reserve takes a token of each bucket and says when they are good.
func (l *limiter) reserve(chat int64) (delay time.Duration, global bool, giveBack func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	if quiet := later(l.quiet, c.quiet); quiet.After(now) {
		return max(quiet.Sub(now), patience+1), l.quiet.After(c.quiet), func() {}
	}
	taken := []*rate.Reservation{c.second.ReserveN(now, 1), l.bot.ReserveN(now, 1)}
	if c.minute != nil {
		taken = append(taken, c.minute.ReserveN(now, 1))
	}
	for _, r := range taken {
		delay = max(delay, r.DelayFrom(now))
	}
	return delay, false, func() {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
}

// spare reports whether a call that is only nice to have may go out now, and takes its tokens. Signs that are no messages (typing, drafts)
// cost the chat nothing.
func (l *limiter) spare(chat int64, message bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	if later(l.quiet, c.quiet).After(now) || l.bot.TokensAt(now) < 2 {
		return false
	}
	if message && (c.second.TokensAt(now) < 1 || (c.minute != nil && c.minute.TokensAt(now) < previewReserve)) {
		return false
	}
	ok := l.bot.AllowN(now, 1)
	if message {
		ok = c.second.AllowN(now, 1) && ok
		if c.minute != nil {
			ok = c.minute.AllowN(now, 1) && ok
		}
	}
	return ok
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
