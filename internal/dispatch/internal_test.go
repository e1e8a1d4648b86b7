package dispatch

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/chat"
)

// Figures returns the counts of the store, as last read.
func (d *Dispatcher) Figures() Figures { return d.figures.current() }

// A process that is not ready receives no messages, so no success can reset the state: it must
// expire by itself.
func TestARefusedWriteCountsForABoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w writeRecord
		w.note(chat.ErrStoreUnavailable)
		time.Sleep(writeHold)
		if !errors.Is(w.fault(), chat.ErrStoreUnavailable) {
			t.Error("the refusal was forgotten too early")
		}
		time.Sleep(time.Millisecond)
		if err := w.fault(); err != nil {
			t.Errorf("the refusal still counts: %v", err)
		}
		w.note(chat.ErrStoreUnavailable)
		w.note(chat.ErrQueueFull) // not a result of the store
		if w.fault() == nil {
			t.Error("the refusal of a message itself counts as a success of the store")
		}
		w.note(nil)
		if err := w.fault(); err != nil {
			t.Errorf("the refusal counts after a success: %v", err)
		}
	})
}

// An error without a known cause may be the fault of one message; three in a row are the store's.
func TestThreeInternalErrorsOfAcceptsMakeItUnready(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w writeRecord
		defect := errors.New("a statement that does not exist")
		step := func(what string, err error, pause time.Duration, ready bool) {
			t.Helper()
			time.Sleep(pause)
			w.note(err)
			if got := w.fault() == nil; got != ready {
				t.Errorf("%s: ready %v, want %v", what, got, ready)
			}
		}
		step("the first", defect, 0, true)
		step("the second", defect, time.Second, true)
		step("a message that was stored", nil, time.Second, true)
		step("the first after it", defect, time.Second, true)
		step("the second", defect, time.Second, true)
		step("a caller that left", context.Canceled, time.Second, true)
		step("a refusal of the message", chat.ErrQueueFull, time.Second, true)
		step("the third, too late", defect, writeHold, true)
		step("two of them within the time", defect, time.Second, true)
		step("three of them within the time", defect, time.Second, false)
		step("each further one", defect, time.Second, false)
		step("a message that was stored", nil, time.Second, true)
	})
}

func filled(id string, n int, text string) *tail {
	t := newTail(id)
	entries := make([]chat.TranscriptEntry, 0, n)
	for i := range n {
		entries = append(entries, chat.TranscriptEntry{Seq: int64(i + 1), Text: text})
	}
	t.precede(entries)
	return t
}

func TestTailKeepsBetweenOneBudgetAndFiveQuarters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", strings.Repeat("word ", 100), strings.Repeat("word ", 3000)} {
		k := filled("a", 2000, text)
		k.budget = 9000
		k.trim(0)
		one := k.tokens / len(k.entries)
		if k.tokens < 9000 || k.tokens > 9000*5/4+one {
			t.Errorf("%d tokens in entries of %d are kept, want 9,000 to 11,250", k.tokens, one)
		}
		if k.from != k.entries[0].Seq {
			t.Errorf("the tail begins at %d, its entries at %d", k.from, k.entries[0].Seq)
		}
		k.trim(1990)
		if len(k.entries) != min(10, len(k.entries)) || k.entries[0].Seq < 1991 {
			t.Errorf("entries from %d are kept beside their summary", k.entries[0].Seq)
		}
	}
}

func TestLeastRecentlyUsedTailsAreForgotten(t *testing.T) {
	t.Parallel()
	var ts tails
	const each = 1 << 20
	for i := range 200 {
		ts.put(filled(strconv.Itoa(i), 1, strings.Repeat("x", each)))
		first := ts.take("0")
		if first.last == 0 {
			t.Fatalf("the tail in use was forgotten after %d others", i)
		}
		ts.put(first)
		if ts.bytes > mostTails || ts.used.Len() != len(ts.of) || ts.bytes != ts.used.Len()*(each+entryBytes) {
			t.Fatalf("%d bytes of %d tails, %d in the list", ts.bytes, len(ts.of), ts.used.Len())
		}
	}
	if len(ts.of) < 60 || ts.take("50").last != 0 || ts.take("199").last == 0 {
		t.Errorf("%d tails are kept", len(ts.of))
	}
}

func TestOlderTailDoesNotReplaceNewerOne(t *testing.T) {
	t.Parallel()
	var ts tails
	old, newer := filled("a", 3, "x"), filled("a", 4, "x")
	ts.put(newer)
	ts.put(old)
	if got := ts.take("a").last; got != 4 {
		t.Errorf("the tail ends at %d, want 4", got)
	}
}
