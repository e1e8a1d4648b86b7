package socket

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"laneway/internal/chat"
)

// taken writes everything that is due, as the writer does, and returns a description.
func (b *Buffer) taken(now time.Time) []string {
	var out []string
	for {
		it, _ := b.take(now)
		if it == nil {
			return out
		}
		switch {
		case it.Delta != nil:
			out = append(out, "delta "+it.Delta.Event.RunID+" "+it.Delta.Unsent())
		case it.Event == "":
			out = append(out, "frame "+string(it.Payload))
		default:
			out = append(out, it.Event+" "+string(it.Payload))
		}
		b.sent(it, now)
	}
}

func deltaEvent(run, text, more string) *Delta {
	return NewDelta(chat.Event{Kind: chat.EventDelta, RunID: run, Text: text + more, Delta: more})
}

func TestUnsentStatesAreReplacedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBuffer(1<<20, time.Hour, func() {}, func() {})
	b.PutFrame([]byte("one"))
	b.PutState("tick", []byte("1"), 0)
	b.PutEvent("shutdown", []byte("a"))
	b.PutState("tick", []byte("2"), 0)
	b.PutState("health", []byte("3"), 7)
	b.PutEvent("shutdown", []byte("b"))
	got := fmt.Sprint(b.taken(time.Now()))
	if want := "[frame one tick 2 shutdown a health 3 shutdown b]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if b.bytes != 0 {
		t.Errorf("%d bytes are left in an empty buffer", b.bytes)
	}
}

func TestMergedDeltaKeepsWhatTheReaderLacks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		first   *Delta
		next    *Delta
		text    string
		replace bool
	}{
		{"plain", deltaEvent("r", "a", "b"), deltaEvent("r", "ab", "c"), "bc", false},
		{"after waiting", NewDelta(chat.Event{Kind: chat.EventQueued, RunID: "r"}), deltaEvent("r", "", "a"), "a", false},
		{"second attempt", deltaEvent("r", "old", "x"), NewDelta(chat.Event{Kind: chat.EventDelta, Text: "new", Delta: "new", Replace: true}), "new", true},
		{"replace stays", NewDelta(chat.Event{Kind: chat.EventDelta, Text: "new", Delta: "new", Replace: true}), deltaEvent("r", "new", "er"), "newer", true},
		{"text that shrank", deltaEvent("r", "long text", "x"), deltaEvent("r", "", "a"), "a", true},
	} {
		tc.first.merge(tc.next)
		if got := tc.first.Unsent(); got != tc.text || tc.first.Replace != tc.replace || tc.first.Waiting {
			t.Errorf("%s: %q replace %v, want %q %v", tc.name, got, tc.first.Replace, tc.text, tc.replace)
		}
	}
}

func TestGateHoldsTheEventsOfItsRunOnly(t *testing.T) {
	t.Parallel()
	b := newBuffer(1<<20, time.Hour, func() {}, func() {})
	b.Gate("r")
	b.PutRunEvent("r", "agent", []byte("start"), false)
	b.PutDelta("r", deltaEvent("r", "", "a"))
	b.PutRunEvent("r", "chat", []byte("final"), true)
	b.PutDelta("other", deltaEvent("other", "", "b"))
	now := time.Now()
	if got := fmt.Sprint(b.taken(now)); got != "[delta other b]" {
		t.Errorf("with a closed gate: %s", got)
	}
	b.PutFrame([]byte("response"))
	b.OpenGate("r")
	if got := fmt.Sprint(b.taken(now)); got != "[frame response agent start delta r a chat final]" {
		t.Errorf("after the gate opened: %s", got)
	}
	if len(b.streams) != 1 || len(b.blocked) != 0 {
		t.Errorf("%d streams, %d blocked; want the other run only", len(b.streams), len(b.blocked))
	}
}

// The timer of the limit fires while the buffer that started it still holds its lock; the race
// detector checks what both access.
func TestTheTimerOfTheLimitMayFireAtOnce(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	b := newBuffer(100, 1, func() { close(slow) }, func() {})
	b.PutEvent("tick", make([]byte, 50)) // over the limit, but not over twice the limit
	<-slow
}

func TestSlowIsSaidOnce(t *testing.T) {
	t.Parallel()
	said := 0
	b := newBuffer(100, time.Hour, func() { said++ }, func() {})
	for range 5 {
		b.PutFrame(make([]byte, 150))
	}
	if said != 1 {
		t.Errorf("said %d times", said)
	}
	b.drop(&Closing{Code: 1013})
	b.PutFrame([]byte("late"))
	if it, _ := b.take(time.Now()); it != nil || b.flushed() == nil {
		t.Error("a dropped buffer still has something to write")
	}
	if b.finish(&Closing{Code: 1000}) || b.flushed().Code != 1013 {
		t.Error("the first ending was replaced")
	}
}

// For any order of calls, the events of a run keep their order, its text is complete, deltas keep
// their interval, and the count of bytes is right.
func TestBufferKeepsOrderAndText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any                     // rapid needs it on its own goroutine
		synctest.Test(t, func(*testing.T) { // the buffer and the test share a clock
			defer func() { failure = recover() }()
			keepsOrderAndText(rt)
		})
		if failure != nil {
			panic(failure)
		}
	})
}

func keepsOrderAndText(t *rapid.T) {
	b := newBuffer(1<<30, time.Hour, func() {}, func() {})
	defer b.drop(&Closing{})
	said := map[string]string{}  // by run: all text so far
	heard := map[string]string{} // by run: text and marks in the order written
	want := map[string]string{}
	lastDelta := map[string]time.Time{}
	gates := map[string]int{}
	write := func() {
		for {
			it, _ := b.take(time.Now())
			if it == nil {
				return
			}
			run := it.stream.run
			if gates[run] > 0 {
				t.Fatalf("run %s sent an event through a closed gate", run)
			}
			if it.Delta == nil {
				heard[run] += string(it.Payload)
			} else {
				heard[run] += it.Delta.Unsent()
				if gap := time.Since(lastDelta[run]); !lastDelta[run].IsZero() && gap < deltaGap {
					t.Fatalf("two deltas of %s within %s", run, gap)
				}
				lastDelta[run] = time.Now()
			}
			b.sent(it, time.Now())
		}
	}
	marks := 0
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		run := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "run")
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0, 1:
			more := string(rune('a' + len(said[run])%26))
			b.PutDelta(run, deltaEvent(run, said[run], more))
			said[run] += more
			want[run] += more
		case 2:
			marks++
			mark := fmt.Sprintf("[%d]", marks)
			b.PutRunEvent(run, "agent", []byte(mark), false)
			want[run] += mark
		case 3:
			write()
		case 4:
			time.Sleep(time.Duration(rapid.IntRange(1, 50).Draw(t, "ms")) * time.Millisecond)
		case 5:
			if gates[run] == 0 {
				write() // what was queued before the gate closed is in transit
				gates[run]++
				b.Gate(run)
			} else {
				gates[run]--
				b.OpenGate(run)
			}
		}
	}
	for run, n := range gates {
		for range n {
			gates[run]--
			b.OpenGate(run)
		}
	}
	for range 200 {
		time.Sleep(deltaGap)
		write()
	}
	for run := range want {
		if heard[run] != want[run] {
			t.Fatalf("run %s: heard %q, want %q", run, heard[run], want[run])
		}
	}
	if b.bytes != 0 || len(b.blocked) != 0 {
		t.Fatalf("%d bytes, %d blocked streams in an empty buffer", b.bytes, len(b.blocked))
	}
}

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

// Sixteen connections have reached the limit of their principal. Then a short response is queued
// for each of them concurrently. Exactly one of them must be closed.
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
