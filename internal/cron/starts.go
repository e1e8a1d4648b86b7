package cron

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// starts keeps what is to be done until its moment. One goroutine and one timer serve all of it.
type starts struct {
	wake chan struct{} // capacity 1: an earlier one came

	mu   sync.Mutex
	heap startHeap
}

type start struct {
	at time.Time // local
	do func(context.Context)
}

type startHeap []start //nolint:recvcheck // container/heap asks for both

func (h startHeap) Len() int           { return len(h) }
func (h startHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h startHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *startHeap) Push(x any) { *h = append(*h, x.(start)) } //nolint:errcheck,forcetypeassert // only add calls it

// Pop implements heap.Interface.
func (h *startHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = start{}
	*h = old[:len(old)-1]
	return last
}

func (s *starts) add(at time.Time, do func(context.Context)) {
	s.mu.Lock()
	heap.Push(&s.heap, start{at: at, do: do})
	first := s.heap[0].at.Equal(at)
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// next takes what is due; if nothing is, it says how long to wait.
func (s *starts) next() (due []func(context.Context), wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.heap) > 0 && !s.heap[0].at.After(now) {
		due = append(due, heap.Pop(&s.heap).(start).do) //nolint:errcheck,forcetypeassert // only add pushes
	}
	if len(s.heap) == 0 {
		return due, time.Hour
	}
	return due, s.heap[0].at.Sub(now)
}

// run does everything at its moment until ctx is over.
func (s *starts) run(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for ctx.Err() == nil {
		due, wait := s.next()
		for _, do := range due {
			do(ctx)
		}
		if len(due) > 0 {
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

// heard notes that the store said now and that its answer came at.
func (c *storeClock) heard(now, at time.Time) {
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
