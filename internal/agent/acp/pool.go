package acp

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// pool has a seat for each session that has a process, or is about to have one. The lock is never held while anything is waited for.
type pool struct {
	idle time.Duration
	most int
	log  *slog.Logger

	mu     sync.Mutex
	seats  map[string]*seat
	peers  map[*peer]bool // those whose process lives
	closed bool
	// group counts the goroutines of peers and of seats that end.
	group sync.WaitGroup
}

// seat is the place of one session. Its fields behind free belong to the turn, or the ending, that has taken it.
type seat struct {
	session string
	free    chan struct{} // has one element while the seat is not taken

	peer *peer // nil = no process

	// The pool's lock guards these.
	users int // turns that have it or wait for it
	timer *time.Timer
	since time.Time // when it was given back
}

var errClosed = errors.New("the runner is closed")

// take waits until the seat of a session is free and returns it. A process that has ended since is gone from it. The caller gives the seat back.
func (p *pool) take(ctx context.Context, session string) (*seat, error) {
	s, victim, err := p.enter(session)
	if err != nil {
		return nil, err
	}
	if victim != nil && victim.peer != nil {
		p.group.Go(func() { p.end(victim) })
		select {
		case <-victim.peer.gone:
		case <-ctx.Done():
		}
	}
	select {
	case <-s.free:
	case <-ctx.Done():
		p.leave(s)
		return nil, agent.Ended(ctx)
	}
	if s.peer != nil && s.peer.ended() {
		s.peer = nil
	}
	return s, nil
}

// enter registers a turn at the seat of its session. When a new seat is one too many, victim is the one that waits the longest, taken, for the caller to end.
func (p *pool) enter(session string) (s, victim *seat, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, agent.NewError(chat.FailUnknown, "The gateway is about to end; try again later.", errClosed)
	}
	if s = p.seats[session]; s == nil {
		if len(p.seats) >= p.most {
			if victim = p.longestFree(); victim == nil {
				return nil, nil, agent.NewError(chat.FailOverloaded, "All processes of this agent are at work; try again in a minute.", nil)
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
	return s, victim, nil
}

// longestFree takes the seat that was given back first and that no turn waits for, out of the pool; nil = there is none.
func (p *pool) longestFree() *seat {
	var found *seat
	for _, s := range p.seats {
		if s.users == 0 && (found == nil || s.since.Before(found.since)) {
			found = s
		}
	}
	if found != nil {
		p.remove(found)
	}
	return found
}

// remove takes a seat that no turn uses out of the pool: no turn can come to it any more.
func (p *pool) remove(s *seat) {
	if s.timer != nil {
		s.timer.Stop()
	}
	delete(p.seats, s.session)
}

// giveBack ends the use of a seat by a turn.
func (p *pool) giveBack(s *seat) {
	if s.peer != nil && s.peer.ended() {
		s.peer = nil
	}
	has := s.peer != nil
	s.free <- struct{}{}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	switch {
	case s.users > 0:
	case !has:
		p.remove(s)
	default:
		s.since = time.Now()
		s.timer = time.AfterFunc(p.idle, func() { p.expire(s) })
	}
}

// leave ends the wait for a seat.
func (p *pool) leave(s *seat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.users--
	if s.users == 0 && s.timer == nil {
		s.since = time.Now()
		s.timer = time.AfterFunc(p.idle, func() { p.expire(s) })
	}
}

// expire ends the process of a seat that was not used for the idle time.
func (p *pool) expire(s *seat) {
	p.mu.Lock()
	if p.closed || s.users > 0 || p.seats[s.session] != s {
		p.mu.Unlock()
		return
	}
	p.remove(s)
	p.group.Add(1)
	p.mu.Unlock()
	defer p.group.Done()
	p.end(s)
}

// end ends the process of a seat that was removed, and waits for its end.
func (p *pool) end(s *seat) {
	if s.peer == nil || s.peer.ended() {
		return
	}
	p.log.Info("the process of an agent ends; its session has not used it", "session", s.session)
	s.peer.quit()
	<-s.peer.gone
}

// goes runs a part of a peer in a goroutine that close waits for; false = the pool is closed.
func (p *pool) goes(part func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.group.Go(part)
	return true
}

// live notes a peer whose process lives, or forgets one whose process has ended.
func (p *pool) live(one *peer, lives bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lives {
		p.peers[one] = true
		return
	}
	delete(p.peers, one)
}

// close ends all processes and waits for them.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
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
