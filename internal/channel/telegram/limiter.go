package telegram

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"laneway/internal/channel"
	"laneway/internal/retry"
)

// The limits of Telegram: 30 messages in a second for a bot, one a second in a chat, 20 a minute in
// a group.
const (
	botLimit   = 30
	groupLimit = 20
	// patience is how long a message waits here. A message that would wait longer returns to the
	// outbox with the remaining time.
	patience = 4 * time.Second
	// botReserve and groupReserve are the parts of the limits that previews and signs leave for
	// messages.
	botReserve   = 5
	groupReserve = 3
	// maxChats bounds each memory that has an entry per chat or person.
	maxChats = 10_000
)

// anyChat is the chat id for a call that concerns no chat, and for a cooldown of the whole bot.
const anyChat = 0

// window allows a number of events in any span of time, wherever the span begins. It keeps the
// times of the events themselves, so it is exact.
type window struct {
	span  time.Duration
	times []time.Time // the last ones, a ring
	at    int
}

func newWindow(limit int, span time.Duration) *window {
	return &window{span: span, times: make([]time.Time, limit)}
}

// free returns when the next event may happen if further ones are to fit as well; a time in the
// past means now.
func (w *window) free(further int) time.Time { return w.times[(w.at+further)%len(w.times)].Add(w.span) }

func (w *window) note(now time.Time) {
	w.times[w.at] = now
	w.at = (w.at + 1) % len(w.times)
}

// limiter keeps the bot below Telegram's limits. It alone records cooldowns: until when no call may
// be made for a chat, or for the whole bot, because Telegram asked to wait (retry_after). The
// client records each cooldown and refuses calls before its end; messages are scheduled after it.
// It is safe for concurrent use, and its lock is never held during a wait.
type limiter struct {
	mu    sync.Mutex
	bot   *window
	until time.Time // end of the bot's cooldown
	chats map[int64]*chatLimit
}

type chatLimit struct {
	second, minute *window   // minute is nil in private chats
	until          time.Time // end of the chat's cooldown
	used           time.Time
}

func newLimiter() *limiter {
	return &limiter{bot: newWindow(botLimit, time.Second), chats: map[int64]*chatLimit{}}
}

// chat returns the entry of a chat. The mutex is held.
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

// forget drops the entries that no longer limit anything. If these are less than a tenth, it drops
// entries without a cooldown too, and finally any: so a full map is searched once per tenth of new
// chats, and not for each of them. The mutex is held.
func (l *limiter) forget(now time.Time) {
	const enough = maxChats - maxChats/10
	for _, droppable := range []func(*chatLimit) bool{
		func(c *chatLimit) bool { return now.Sub(c.used) > time.Minute && now.After(c.until) },
		func(c *chatLimit) bool { return len(l.chats) > enough && now.After(c.until) },
		func(*chatLimit) bool { return len(l.chats) > enough },
	} {
		maps.DeleteFunc(l.chats, func(_ int64, c *chatLimit) bool { return droppable(c) })
		if len(l.chats) <= enough {
			return
		}
	}
}

// cool starts a cooldown of a chat, or of the bot when chat is anyChat. A longer running cooldown
// stays.
func (l *limiter) cool(chat int64, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if chat == anyChat {
		l.until = later(l.until, now.Add(d))
		return
	}
	c := l.chat(chat, now)
	c.until = later(c.until, now.Add(d))
}

// cooldown returns how long no call may be made for a chat, or without one (anyChat); 0 means now.
func (l *limiter) cooldown(chat int64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.until
	if c := l.chats[chat]; c != nil {
		until = later(until, c.until)
	}
	return max(0, time.Until(until))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// wait blocks until a message may go to a chat, and counts it. When that takes longer than
// patience, it returns the remaining time.
func (l *limiter) wait(ctx context.Context, chat int64) *channel.SendError {
	began := time.Now()
	for {
		delay, global := l.try(chat)
		switch {
		case delay <= 0:
			return nil
		case time.Since(began)+delay > patience:
			return &channel.SendError{Reason: reasonRateLimited, RetryAfter: max(delay, time.Second), Global: global, Uncounted: true}
		}
		if err := retry.Sleep(ctx, delay); err != nil {
			return &channel.SendError{Reason: reasonCanceled, Uncounted: true, Cause: err}
		}
	}
}

// try counts a message if it may go now. Otherwise it returns how long that will take, and whether
// every chat has to wait.
func (l *limiter) try(chat int64) (delay time.Duration, global bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	at := later(later(l.until, c.until), later(l.bot.free(0), c.second.free(0)))
	if c.minute != nil {
		at = later(at, c.minute.free(0))
	}
	if at.After(now) {
		return at.Sub(now), at.Equal(l.until)
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

// spare counts an optional call if it may be made now and leaves capacity for messages; false means
// to omit it. Calls that are not messages (typing, drafts, the answer to a press) count for the bot
// and not for the chat.
func (l *limiter) spare(chat int64, message bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat, now)
	at := later(later(l.until, c.until), l.bot.free(botReserve))
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

// asked returns the wait that a failed call asks for; 0 if none.
func asked(err error) time.Duration {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.retryAfter
	}
	return 0
}

// ttlMap keeps values by key for a time, at most [maxChats] of them. It is safe for concurrent use.
type ttlMap struct {
	ttl time.Duration
	mu  sync.Mutex
	at  map[string]ttlEntry
}

type ttlEntry struct {
	since time.Time
	value string
}

func newTTLMap(ttl time.Duration) *ttlMap { return &ttlMap{ttl: ttl, at: map[string]ttlEntry{}} }

// add adds a key without a value; false if the key exists, which keeps its expiry.
func (m *ttlMap) add(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.entry(key); ok {
		return false
	}
	m.put(key, "")
	return true
}

// has reports whether the key exists.
func (m *ttlMap) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.entry(key)
	return ok
}

// get returns the value of a key, "" if none.
func (m *ttlMap) get(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.entry(key)
	return e.value
}

// set stores a key with a value and restarts its expiry.
func (m *ttlMap) set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, value)
}

func (m *ttlMap) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, key)
}

// entry returns an entry that has not expired. The mutex is held.
func (m *ttlMap) entry(key string) (ttlEntry, bool) {
	e, ok := m.at[key]
	if !ok || time.Since(e.since) >= m.ttl {
		return ttlEntry{}, false
	}
	return e, true
}

// put adds an entry. When there are too many, it first drops expired entries, then as many others
// as necessary. The mutex is held.
func (m *ttlMap) put(key, value string) {
	now := time.Now()
	if len(m.at) >= maxChats {
		for k, old := range m.at {
			if now.Sub(old.since) >= m.ttl || len(m.at) >= maxChats {
				delete(m.at, k)
			}
		}
	}
	m.at[key] = ttlEntry{since: now, value: value}
}

// userLimits counts the messages of each person. It is safe for concurrent use.
type userLimits struct {
	perMinute int // negative means no limit
	mu        sync.Mutex
	users     map[int64]*rate.Limiter
}

func newUserLimits(perMinute int) *userLimits {
	return &userLimits{perMinute: perMinute, users: map[int64]*rate.Limiter{}}
}

// allow takes n messages or bytes from the allowance of a person; false if too little is left. More
// than the allowance of a minute counts as that allowance.
func (u *userLimits) allow(id int64, n int) bool {
	if u.perMinute < 0 {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.users[id]
	if l == nil {
		u.forget()
		l = rate.NewLimiter(rate.Limit(float64(u.perMinute)/60), u.perMinute)
		u.users[id] = l
	}
	return l.AllowN(time.Now(), min(n, u.perMinute))
}

// forget makes space when there are too many entries: it drops people who have sent nothing for a
// minute, then as many others as necessary. The mutex is held.
func (u *userLimits) forget() {
	if len(u.users) < maxChats {
		return
	}
	for id, l := range u.users {
		if l.Tokens() >= float64(u.perMinute) || len(u.users) >= maxChats {
			delete(u.users, id)
		}
	}
}

// recentMessages maps the gateway's id of a message to the message at Telegram, for the last
// [maxChats] messages. It is safe for concurrent use.
type recentMessages struct {
	mu    sync.Mutex
	at    map[string]messageRef
	order []string
}

// messageRef is a message of a chat.
type messageRef struct {
	to      address
	message int
}

func (r *recentMessages) add(id string, to messageRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) >= maxChats {
		delete(r.at, r.order[0])
		r.order = r.order[1:]
	}
	r.at[id] = to
	r.order = append(r.order, id)
}

func (r *recentMessages) get(id string) (messageRef, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, ok := r.at[id]
	return to, ok
}
