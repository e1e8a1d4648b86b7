package cron

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// starts keeps what is to be done until its moment. One goroutine and one timer serve all of it. What shares a millisecond shares an entry, so that
// ten thousand starts of one moment cost no more than one to find.
type starts struct {
	wake chan struct{} // capacity 1: an earlier moment came

	mu      sync.Mutex
	moments momentHeap // of the store's clock, in milliseconds; each once
	at      map[int64][]func(context.Context)
}

type momentHeap []int64 //nolint:recvcheck // container/heap asks for both

func (h momentHeap) Len() int           { return len(h) }
func (h momentHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h momentHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *momentHeap) Push(x any) { *h = append(*h, x.(int64)) } //nolint:errcheck,forcetypeassert // only add calls it

// Pop implements heap.Interface.
func (h *momentHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func (s *starts) add(t time.Time, do func(context.Context)) {
	ms := t.UnixMilli()
	s.mu.Lock()
	if s.at == nil {
		s.at = map[int64][]func(context.Context){}
	}
	list, known := s.at[ms]
	s.at[ms] = append(list, do)
	if !known {
		heap.Push(&s.moments, ms)
	}
	first := !known && s.moments[0] == ms
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// next takes the first moment that the store's clock has passed; if there is none, it returns how long to wait.
func (s *starts) next(c *storeClock) (due []func(context.Context), wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.moments) == 0 {
		return nil, time.Hour
	}
	ms := s.moments[0]
	if wait = time.UnixMilli(ms).Sub(c.now()); wait > 0 {
		return nil, wait
	}
	heap.Pop(&s.moments)
	due = s.at[ms]
	delete(s.at, ms)
	return due, 0
}

// run does everything at its moment until ctx is over.
func (s *starts) run(ctx context.Context, c *storeClock) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for ctx.Err() == nil {
		due, wait := s.next(c)
		for _, do := range due {
			do(ctx)
		}
		if wait <= 0 {
			continue
		}
		t.Reset(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-s.wake:
		}
	}
}

// clockSamples is over how many answers the difference of the clocks is estimated.
const clockSamples = 16

// storeClock knows how the store's clock differs from the local one. Every answer gives a bound: the store read its clock before the answer came.
// The best of the last bounds is the estimate, so that nothing starts before its moment and a slow answer spoils nothing.
type storeClock struct {
	mu      sync.Mutex
	offsets [clockSamples]time.Duration
	n       int
}

// observe notes that the store's clock showed now in an answer that came at.
func (c *storeClock) observe(now, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offsets[c.n%clockSamples] = now.Sub(at)
	c.n++
}

func (c *storeClock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return 0
	}
	best := c.offsets[0]
	for _, o := range c.offsets[:min(c.n, clockSamples)] {
		best = max(best, o)
	}
	return best
}

// local is when the store's clock will show t; now is what it shows.
func (c *storeClock) local(t time.Time) time.Time { return time.Now().Add(t.Sub(c.now())) }

func (c *storeClock) now() time.Time { return time.Now().Add(c.offset()) }

// claims knows for runs that are claimed ahead here which claim is the last: one that was withdrawn and made again is launched once.
type claims struct {
	mu    sync.Mutex
	epoch map[string]int64 // of the session, by run
}

func (c *claims) note(l Launched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch == nil {
		c.epoch = map[string]int64{}
	}
	c.epoch[l.Run.ID] = l.Epoch
}

// take reports whether a launch is that of the last claim of its run, as far as this process has claimed it ahead.
func (c *claims) take(l Launched) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.epoch[l.Run.ID]
	if known && last != l.Epoch {
		return false
	}
	delete(c.epoch, l.Run.ID)
	return true
}
