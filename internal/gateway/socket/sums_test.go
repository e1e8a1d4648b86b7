package socket

import (
	"sync"
	"testing"
	"time"
)

// counted is a buffer of a principal, and whether it was closed as a slow one.
type counted struct {
	*Buffer

	leave  func()
	closed bool
}

func (s *sums) buffer(principal string) *counted {
	c := &counted{}
	c.Buffer = newBuffer(1<<30, time.Hour, func() {
		c.closed = true
		c.drop(&Closing{Code: 1013, Reason: ClosedSlow})
	}, func() {})
	s.join(principal, c.Buffer)
	c.leave = func() { s.leave(c.Buffer) }
	return c
}

func frameOf(size int) []byte { return make([]byte, size-itemOverhead) }

func TestTheResponsesThatWaitForOnePrincipalAreBounded(t *testing.T) {
	t.Parallel()
	s := newSums(1 << 20) // 4 MiB for one principal
	fast, slow, other := s.buffer("anna"), s.buffer("anna"), s.buffer("otto")
	fast.PutFrame(frameOf(1 << 20))
	other.PutFrame(frameOf(3 << 20))
	for range 3 {
		slow.PutFrame(frameOf(1 << 20))
	}
	if fast.closed || slow.closed || other.closed {
		t.Fatal("a connection was closed within the bound")
	}
	fast.PutFrame(frameOf(1 << 10))
	if !slow.closed || fast.closed || other.closed {
		t.Errorf("over the bound: slow %t, fast %t, other principal %t; want the one with most bytes to be closed", slow.closed, fast.closed, other.closed)
	}
	it, _ := fast.take(time.Now())
	fast.sent(it, time.Now())
	for _, c := range []*counted{fast, slow, other} {
		c.leave()
	}
	if n := s.bytes.Load(); n != 0 || len(s.groups) != 0 {
		t.Errorf("%d bytes of %d principals are counted when all are gone", n, len(s.groups))
	}
}

// Sixteen connections have reached the limit of their principal. Then a short response is queued for each of them concurrently. Exactly one
// of them must be closed.
func TestResponsesAtOnceOverTheBoundCloseOneConnection(t *testing.T) {
	t.Parallel()
	for range 200 {
		const connections = 16
		s := newSums(connections << 10)
		var all []*counted
		for range connections {
			c := s.buffer("anna")
			c.PutFrame(frameOf(4 << 10))
			all = append(all, c)
		}
		var putting sync.WaitGroup
		for _, c := range all {
			putting.Go(func() { c.PutFrame(frameOf(itemOverhead + 1)) })
		}
		putting.Wait()
		closed := 0
		for _, c := range all {
			if c.shut {
				closed++
			}
		}
		if closed != 1 {
			t.Fatalf("%d of %d connections were closed, want one", closed, connections)
		}
	}
}

func TestTheResponsesThatWaitForAllAreBounded(t *testing.T) {
	t.Parallel()
	s := newSums(1 << 20) // 16 MiB for all
	var greedy []*counted
	for _, name := range []string{"a", "b", "c", "d"} {
		c := s.buffer(name)
		c.PutFrame(frameOf(4<<20 - 1<<10))
		greedy = append(greedy, c)
	}
	modest := s.buffer("e")
	modest.PutFrame(frameOf(3 << 10))
	modest.PutFrame(frameOf(3 << 10))
	closed := 0
	for _, c := range greedy {
		if c.closed {
			closed++
		}
	}
	if closed != 1 || modest.closed {
		t.Errorf("%d connections with many bytes were closed, the one with few %t; want 1 and false", closed, modest.closed)
	}
}

// Their bytes are shared by all connections and need no additional memory.
func TestEventsCountForNoPrincipal(t *testing.T) {
	t.Parallel()
	s := newSums(1 << 20)
	c := s.buffer("anna")
	c.PutEvent("cron", make([]byte, 20<<20))
	c.PutState("health", make([]byte, 20<<20), 1)
	if c.closed || s.bytes.Load() != 0 {
		t.Errorf("events count %d bytes", s.bytes.Load())
	}
}
