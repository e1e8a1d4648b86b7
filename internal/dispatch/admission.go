package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
	"laneway/internal/store"
)

// admission bounds what one credential may leave waiting and may name, and what is stored while a disk is nearly full. What is on its way from the
// check to the scheduler counts as waiting, so that calls at the same moment do not all take the last place.
type admission struct {
	*parts

	namings namings
	mu      sync.Mutex
	coming  map[string]int // by principal, between the check and the scheduler
}

// admitMessage refuses a message that may not be stored now: the disk is nearly full, or by, the caller of the gateway, has too many messages waiting or
// too many sessions. by nil = it comes from a channel, which has bounds of its own. done is called when the message is accepted, or refused after all.
func (a *admission) admitMessage(ctx context.Context, m chat.Message, by *chat.Caller) (done func(created bool), err error) {
	if err := a.diskFault(); err != nil {
		return nil, err
	}
	leave := func() {}
	if by != nil {
		leave, err = a.admit(by.Principal, by.Own, 1)
		if err != nil && a.accepted(ctx, m) {
			return func(bool) {}, nil // nothing new will wait: it ends at the message that is there
		}
		if err != nil {
			return nil, err
		}
		if err := a.mayName(ctx, &m, *by); err != nil {
			leave()
			return nil, err
		}
	}
	return func(created bool) {
		if created && counts(&m) {
			a.namings.made(m.Principal)
		}
		leave()
	}, nil
}

// accepted reports whether a message with an idempotency key was accepted before, under the id that the key gives it.
func (a *admission) accepted(ctx context.Context, m chat.Message) bool {
	if m.Dedupe == "" {
		return false
	}
	_, err := a.store.MessageByID(ctx, m.ID)
	return err == nil
}

// waitLimit is how many messages of a principal may wait in this process; 0 = no bound.
func (a *admission) waitLimit(principal string, own bool) int {
	if own || a.bounded(principal) {
		return a.cfg.OwnWaiting
	}
	return a.cfg.CallerWaiting
}

// admit takes places for n more messages of a caller, or refuses them. The places are given back with leave once the scheduler has the messages.
// Turns that may not start yet are not refused but wait; only the waiting is bounded. More messages than may wait at all are admitted when nothing waits.
func (a *admission) admit(principal string, own bool, n int) (leave func(), err error) {
	limit := a.waitLimit(principal, own)
	if limit == 0 {
		return func() {}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, limit)
	if a.coming[principal]+a.sched.WaitingOf(principal)+n > limit {
		return nil, tooManyWaiting(limit)
	}
	if a.coming == nil {
		a.coming = map[string]int{}
	}
	a.coming[principal] += n
	return func() { a.leave(principal, n) }, nil
}

func (a *admission) leave(principal string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coming[principal] -= n; a.coming[principal] == 0 {
		delete(a.coming, principal)
	}
}

// tooManyWaiting is the refusal of a message whose sender has as many waiting as may wait.
func tooManyWaiting(limit int) error {
	return &chat.Error{
		Code: chat.CodeRateLimited, Retryable: true, RetryAfter: time.Second, Details: map[string]any{"limit": limit},
		Message: fmt.Sprintf("%d messages of this credential wait already; send it again when some of them have been answered", limit),
	}
}

// restrain keeps a message of a caller that sees its own only within what such a caller may use: the lane main, and no more time than the agent's.
// Nothing is refused, because clients send both without being asked to.
func (a *admission) restrain(m *chat.Message) {
	m.Lane = scheduler.LaneMain
	limit := turnTime(a.agents[m.Session.Agent])
	if o := &m.Content.Options; o.TimeoutMs > limit.Milliseconds() {
		o.TimeoutMs = 0
	}
}

// diskRetry is when a sender may try again after a disk had too little free space.
const diskRetry = 10 * time.Second

// diskFault refuses new messages while a disk has too little free space, as if the database were full already: what was accepted before needs
// what is left. Channels keep such a message and offer it again.
func (a *admission) diskFault() error {
	if a.cfg.Space == nil {
		return nil
	}
	err := a.cfg.Space()
	if err == nil {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeStoreUnavailable, Retryable: true, RetryAfter: diskRetry, Cause: err, Details: map[string]any{"check": string(chat.CheckDisk)},
		Message: "the disk of the gateway is nearly full, and nothing was stored; send it again when there is space",
	}
}

// The age from which on a count of sessions is asked for again: what other processes made, and what was deleted, is known then.
const (
	countFar  = 10 * time.Minute // less than half of the bound is used
	countNear = time.Minute
	countFull = 5 * time.Second // nothing is left: a deletion frees a place
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

// counts reports whether a session that a message makes counts for the bound of its caller: one that the caller has named, or a branch.
func counts(m *chat.Message) bool { return m.Session.Named() || m.Branch != nil }

// mayName refuses to make one more session for a caller that has named as many as it may. Sessions that exist can be used.
func (a *admission) mayName(ctx context.Context, m *chat.Message, by chat.Caller) error {
	limit := a.cfg.CallerSessions
	if by.Own || a.bounded(by.Principal) {
		limit = a.cfg.OwnSessions
	}
	if limit == 0 || !counts(m) {
		return nil
	}
	c, ok := a.namings.recent(by.Principal, limit)
	if !ok {
		_, n, err := a.store.ListSessions(ctx, store.SessionFilter{Visible: by.Principal, Named: true, Limit: 1})
		if err != nil {
			return err
		}
		c = naming{n: n, at: time.Now()}
		a.namings.set(by.Principal, c)
	}
	if c.n < limit {
		return nil
	}
	_, err := a.store.Session(ctx, m.Session, "")
	if !errors.Is(err, chat.ErrSessionNotFound) {
		return err
	}
	return chat.Errorf(chat.CodeLimit, "this credential has %d named sessions and branches, which is the limit; use one of them, or delete some", limit).
		With("field", "sessionKey").With("limit", limit)
}
