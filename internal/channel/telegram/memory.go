package telegram

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// once lets a thing be told only once in a while.
type once struct {
	every time.Duration
	mu    sync.Mutex
	at    map[string]telling
}

type telling struct {
	when time.Time
	id   string // of the message that told it, or what was to be told
}

func newOnce(every time.Duration) *once { return &once{every: every, at: map[string]telling{}} }

// first reports whether key was not told lately, and counts it as told.
func (o *once) first(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if t, ok := o.at[key]; ok && now.Sub(t.when) < o.every {
		return false
	}
	o.keep(key, telling{when: now})
	return true
}

// lately reports whether key was told, and counts nothing.
func (o *once) lately(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, ok := o.at[key]
	return ok && time.Since(t.when) < o.every
}

// keep adds an entry and forgets old ones when there are many. The mutex is held.
func (o *once) keep(key string, t telling) {
	if len(o.at) >= maxChats {
		for k, old := range o.at {
			if t.when.Sub(old.when) >= o.every || len(o.at) >= maxChats {
				delete(o.at, k)
			}
		}
	}
	o.at[key] = t
}

// again is the message that told key lately, "" = none.
func (o *once) again(key string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, ok := o.at[key]; ok && time.Since(t.when) < o.every {
		return t.id
	}
	return ""
}

// said remembers the message that told key.
func (o *once) said(key, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep(key, telling{when: time.Now(), id: id})
}

func (o *once) forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.at, key)
}

// userLimits counts the messages of each person.
type userLimits struct {
	perMinute int
	mu        sync.Mutex
	users     map[int64]*rate.Limiter
}

func newUserLimits(perMinute int) *userLimits {
	return &userLimits{perMinute: perMinute, users: map[int64]*rate.Limiter{}}
}

// allow counts one message.
func (u *userLimits) allow(id int64) bool {
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
	return l.Allow()
}

// forget drops those who have been quiet for a minute when there are many; when nobody was, whoever comes first.
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

// recent remembers which message of Telegram a message of the house was, for a while and for the last ten thousand.
type recent struct {
	mu    sync.Mutex
	refs  map[string]ref
	order []string
}

type ref struct {
	to      address
	message int
}

func newRecent() *recent { return &recent{refs: map[string]ref{}} }

func (r *recent) add(id string, to ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) >= maxChats {
		delete(r.refs, r.order[0])
		r.order = r.order[1:]
	}
	r.refs[id] = to
	r.order = append(r.order, id)
}

func (r *recent) get(id string) (ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, ok := r.refs[id]
	return to, ok
}

// progress remembers how much of a long reply has arrived, so that a further attempt goes on instead of beginning anew. It is kept in
// memory: a process that ends between two parts costs the parts that had arrived a second time.
type progress struct {
	mu    sync.Mutex
	parts map[string]part
}

type part struct {
	upTo  int    // offset in the document behind what has arrived
	limit int    // units of a message; 0 = maxUnits. Smaller when Telegram found the text too long
	plain bool   // without tags, because even the smallest parts were too long with them
	first string // id of the first message, "" = nothing has arrived
	// markup is the keyboard under the last chunk, "" = none.
	markup string
	at     time.Time
}

const maxProgress = 1000

func newProgress() *progress { return &progress{parts: map[string]part{}} }

func (p *progress) get(id string) part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts[id]
}

func (p *progress) set(id string, to part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.at = time.Now()
	if len(p.parts) >= maxProgress {
		for old, q := range p.parts {
			if to.at.Sub(q.at) > time.Hour || len(p.parts) >= maxProgress {
				delete(p.parts, old)
			}
		}
	}
	p.parts[id] = to
}

func (p *progress) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parts, id)
}
