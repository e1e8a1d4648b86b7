package dispatch

import (
	"fmt"
	"sync"
	"time"

	"laneway/internal/chat"
	"laneway/internal/scheduler"
)

// admissions bound how many messages of one caller of the gateway wait in this process. What is on its way from the check to the
// scheduler counts as well, so that calls at the same moment do not all take the last place.
type admissions struct {
	mu     sync.Mutex
	coming map[string]int // by principal, between the check and the scheduler
}

// bounded says whose turns at once are bounded, those of their jobs included: chat users, hooks, and credentials that see their own only.
func (d *Dispatcher) bounded(principal string) bool {
	return !OperatorOwner(principal) || d.cfg.SeesOwn != nil && d.cfg.SeesOwn(principal)
}

// waitLimit is how many messages of a principal may wait in this process; 0 = no bound.
func (d *Dispatcher) waitLimit(principal string, own bool) int {
	if own || d.bounded(principal) {
		return d.cfg.OwnWaiting
	}
	return d.cfg.CallerWaiting
}

// admit takes a place for one more message of a caller, or refuses it. The place is given back with leave once the scheduler has the message.
// Turns that may not start yet are not refused but wait; only the waiting is bounded.
func (d *Dispatcher) admit(principal string, own bool) (leave func(), err error) {
	limit := d.waitLimit(principal, own)
	if limit == 0 {
		return func() {}, nil
	}
	a := &d.admissions
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coming[principal]+d.sched.WaitingOf(principal) >= limit {
		return nil, tooManyWaiting(limit)
	}
	if a.coming == nil {
		a.coming = map[string]int{}
	}
	a.coming[principal]++
	return func() { a.leave(principal) }, nil
}

func (a *admissions) leave(principal string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.coming[principal]--; a.coming[principal] == 0 {
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

// diskRetry is when a sender may try again after a disk had too little free space.
const diskRetry = 10 * time.Second

// diskFault refuses new messages while a disk has too little free space, as if the database were full already: what was accepted before needs
// what is left. Channels keep such a message and offer it again.
func (d *Dispatcher) diskFault() error {
	if d.cfg.Space == nil {
		return nil
	}
	err := d.cfg.Space()
	if err == nil {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeStoreUnavailable, Retryable: true, RetryAfter: diskRetry, Cause: err, Details: map[string]any{"check": string(chat.CheckDisk)},
		Message: "the disk of the gateway is nearly full, and nothing was stored; send it again when there is space",
	}
}

// restrain keeps a message of a caller that sees its own only within what such a caller may use: the lane main, and no more time than the agent's.
// Nothing is refused, because clients send both without being asked to.
func (d *Dispatcher) restrain(m *chat.Message) {
	m.Lane = scheduler.LaneMain
	limit := turnTime(d.agents[m.Session.Agent])
	if o := &m.Content.Options; o.TimeoutMs > limit.Milliseconds() {
		o.TimeoutMs = 0
	}
}
