package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"laneway/internal/chat"
)

// The age from which on a count of sessions is asked for again: what other processes made, and what was deleted, is known then.
const (
	countFar  = 10 * time.Minute // less than half of the bound is used
	countNear = time.Minute
	countFull = 5 * time.Second // nothing is left: a deletion makes room
)

// namings know about how many sessions each principal has named. They are exact for one process on its store, and a minute behind the others.
type namings struct {
	mu     sync.Mutex
	counts map[string]naming // bounded: principals are credentials and hooks
}

type naming struct {
	n  int
	at time.Time
}

// recent returns the last count of a principal if it still counts.
func (s *namings) recent(principal string, limit int) (naming, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.counts[principal]
	age := countFar
	switch {
	case c.n >= limit:
		age = countFull
	case c.n >= limit/2:
		age = countNear
	}
	return c, ok && time.Since(c.at) < age
}

func (s *namings) set(principal string, c naming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[string]naming{}
	}
	s.counts[principal] = c
}

// made counts a session that this process has made.
func (s *namings) made(principal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.counts[principal]; ok {
		c.n++
		s.counts[principal] = c
	}
}

// mayName refuses to make one more session for a caller that has named as many as it may. Sessions that exist can be used.
func (d *Dispatcher) mayName(ctx context.Context, key chat.SessionKey, by chat.Caller) error {
	limit := d.cfg.CallerSessions
	if by.Own || d.bounded(by.Principal) {
		limit = d.cfg.OwnSessions
	}
	if limit == 0 || !key.Named() {
		return nil
	}
	c, ok := d.namings.recent(by.Principal, limit)
	if !ok {
		n, err := d.store.CountNamed(ctx, by.Principal)
		if err != nil {
			return err
		}
		c = naming{n: n, at: time.Now()}
		d.namings.set(by.Principal, c)
	}
	if c.n < limit {
		return nil
	}
	_, err := d.store.Session(ctx, key, "")
	if !errors.Is(err, chat.ErrSessionNotFound) {
		return err
	}
	return chat.Errorf(chat.CodeLimit, "this credential has named %d sessions, which is the limit; use one of them, or delete some", limit).
		With("field", "sessionKey").With("limit", limit)
}
