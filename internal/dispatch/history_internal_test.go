package dispatch

import (
	"fmt"
	"strings"
	"testing"

	"laneway/internal/chat"
)

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
		ts.put(filled(fmt.Sprint(i), 1, strings.Repeat("x", each)))
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
