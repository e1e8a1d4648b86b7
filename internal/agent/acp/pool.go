package acp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// pool has a seat for each session that has a process or is about to start one. The lock is never
// held during a wait.
type pool struct {
	idle time.Duration
	most int
	log  *slog.Logger

	mu      sync.Mutex
	seats   map[string]*seat
	leaving map[*seat]bool // removed from seats; their processes are ending
	waiting []*waiter      // in order of arrival
	evicted int64          // number of processes ended to make room for another session
	peers   map[*peer]bool // peers whose process is alive
	closed  bool
	// group counts the goroutines of peers and of ending seats.
	group sync.WaitGroup
}

// seat is the place of one session. The goroutine that has received from free owns peer.
type seat struct {
	session string
	free    chan struct{} // has one element while the seat is not taken

	peer *peer // nil without a process

	// The pool's lock guards these.
	users int // turns that have the seat or wait for it
	timer *time.Timer
	since time.Time // when it was last given back
}

// seating is a seat at which a turn is registered. before is a seat whose process must end first, or
// nil.
type seating struct{ seat, before *seat }

// waiter is a turn that waits for a place.
type waiter struct {
	session string
	got     chan seating // capacity 1; closed with the pool
}

var errClosed = errors.New("the runner is closed")

// take waits until the session has a place and its seat is free, and returns the seat, without its
// process if that has ended. The caller gives the seat back. waits is called once before a wait for
// a place. With sub, another turn waits for this one and may hold the place, so take fails instead
// of waiting.
func (p *pool) take(ctx context.Context, session string, sub bool, waits func()) (*seat, error) {
	at, w, err := p.enter(session, sub)
	if err != nil {
		return nil, err
	}
	if w != nil {
		waits()
		if at, err = p.await(ctx, w); err != nil {
			return nil, err
		}
	}
	s := at.seat
	if at.before != nil && at.before.peer != nil {
		select {
		case <-at.before.peer.gone:
		case <-ctx.Done():
		}
	}
	select {
	case <-s.free:
	case <-ctx.Done():
		p.leave(s)
		return nil, agent.Ended(ctx)
	}
	s.forget()
	return s, nil
}

// enter registers a turn at the seat of its session, or as a waiter if no place is free.
func (p *pool) enter(session string, sub bool) (seating, *waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return seating{}, nil, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
	}
	if len(p.waiting) == 0 || p.seats[session] != nil {
		if at, ok := p.find(session); ok {
			return at, nil, nil
		}
	}
	if sub {
		return seating{}, nil, agent.NewError(chat.FailOverloaded, "All processes of this agent are at work; try again in a minute.", nil)
	}
	w := &waiter{session: session, got: make(chan seating, 1)}
	p.waiting = append(p.waiting, w)
	return seating{}, w, nil
}

// await waits for the place of a waiter.
func (p *pool) await(ctx context.Context, w *waiter) (seating, error) {
	select {
	case at, ok := <-w.got:
		if !ok {
			return seating{}, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
		}
		return at, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	at := slices.Index(p.waiting, w)
	if at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	}
	p.mu.Unlock()
	if at < 0 {
		if given, ok := <-w.got; ok {
			p.leave(given.seat)
		}
	}
	return seating{}, agent.Ended(ctx)
}

// find registers a turn at the seat of its session and makes the seat if needed. At the limit, the
// process that has been idle the longest is ended. The lock is held.
func (p *pool) find(session string) (at seating, ok bool) {
	s := p.seats[session]
	if s == nil {
		if len(p.seats)+len(p.leaving) >= p.most {
			if at.before = p.makeRoom(); at.before == nil {
				return seating{}, false
			}
		}
		s = &seat{session: session, free: make(chan struct{}, 1)}
		s.free <- struct{}{}
		p.seats[session] = s
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.users++
	at.seat = s
	return at, true
}

// makeRoom returns a seat whose process is already ending, or else ends the process of the seat
// that has been idle the longest. It returns nil when all are busy. The lock is held.
func (p *pool) makeRoom() *seat {
	for s := range p.leaving {
		delete(p.leaving, s)
		return s
	}
	var found *seat
	for _, s := range p.seats {
		if s.users == 0 && (found == nil || s.since.Before(found.since)) {
			found = s
		}
	}
	if found != nil {
		p.remove(found)
		if found.peer != nil {
			p.evicted++
		}
		p.group.Go(func() { p.end(found) })
	}
	return found
}

// pass gives places to the waiting turns, in order. The lock is held.
func (p *pool) pass() {
	for len(p.waiting) > 0 {
		at, ok := p.find(p.waiting[0].session)
		if !ok {
			return
		}
		p.waiting[0].got <- at
		p.waiting = p.waiting[1:]
	}
}

// forget removes the process from its seat if the process or its connection has ended. It waits for
// the end of the process, killTime at most.
func (s *seat) forget() {
	if s.peer != nil && s.peer.ended() {
		s.peer.kill(errDisconnected)
		<-s.peer.gone
		s.peer = nil
	}
}

var errDisconnected = errors.New("the connection to the agent has ended")

// remove removes an unused seat from the pool, so that no further turn can take it.
func (p *pool) remove(s *seat) {
	if s.timer != nil {
		s.timer.Stop()
	}
	delete(p.seats, s.session)
}

// giveBack ends the use of a seat by a turn.
func (p *pool) giveBack(s *seat) {
	s.forget()
	has := s.peer != nil
	s.free <- struct{}{}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	switch {
	case s.users > 0:
		return
	case !has:
		p.remove(s)
	default:
		s.since = time.Now()
		s.timer = time.AfterFunc(p.idle, func() { p.expire(s) })
	}
	p.pass()
}

// leave ends the wait for a seat.
func (p *pool) leave(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	if s.users == 0 && s.timer == nil {
		s.since = time.Now()
		s.timer = time.AfterFunc(p.idle, func() { p.expire(s) })
		p.pass()
	}
}

// expire ends the process of a seat that has been unused for the idle time.
func (p *pool) expire(s *seat) {
	p.mu.Lock()
	if p.closed || s.users > 0 || p.seats[s.session] != s {
		p.mu.Unlock()
		return
	}
	p.remove(s)
	p.leaving[s] = true
	p.group.Add(1)
	p.pass()
	p.mu.Unlock()
	defer p.group.Done()
	p.end(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leaving, s)
	p.pass()
}

// end ends the process of a removed seat and waits for it.
func (p *pool) end(s *seat) {
	if s.peer == nil {
		return
	}
	p.log.Info("the process of an agent ends; its session has not used it", "session", s.session)
	s.peer.quit()
	<-s.peer.gone
}

// spawn runs a part of a peer in a goroutine that close waits for. It returns false when the pool
// is closed.
func (p *pool) spawn(part func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.group.Go(part)
	return true
}

// setAlive adds a peer whose process has started, or removes one whose process has ended.
func (p *pool) setAlive(one *peer, alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if alive {
		p.peers[one] = true
		return
	}
	delete(p.peers, one)
}

// close ends all processes and waits for them.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.waiting {
		close(w.got)
	}
	p.waiting = nil
	for _, s := range p.seats {
		if s.timer != nil {
			s.timer.Stop()
		}
	}
	for one := range p.peers {
		one.kill(errClosed)
	}
	p.mu.Unlock()
	p.group.Wait()
}

// processes returns the peers whose process is alive, and the number of evictions.
func (p *pool) processes() (living []*peer, evicted int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.peers)), p.evicted
}

// endSession ends the session of an agent after its registered turns. The process of an agent that
// cannot close sessions is ended.
func (p *pool) endSession(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seats[session]
	if p.closed || s == nil {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.users++
	p.group.Go(func() {
		<-s.free
		s.forget()
		if s.peer != nil {
			s.peer.endSession()
			s.forget()
		}
		p.giveBack(s)
	})
}
