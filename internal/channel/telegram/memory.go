package telegram

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

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

// put adds an entry. When there are too many, it first drops expired entries, then as many others as necessary. The mutex is held.
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

// allow takes n messages or bytes from the allowance of a person; false if too little is left. More than the allowance of a minute counts as that
// allowance.
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

// forget makes space when there are too many entries: it drops people who have sent nothing for a minute, then as many others as necessary.
// The mutex is held.
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

// recentMessages maps the gateway's id of a message to the message at Telegram, for the last [maxChats] messages. It is safe for concurrent use.
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

func newRecentMessages() *recentMessages { return &recentMessages{at: map[string]messageRef{}} }

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
