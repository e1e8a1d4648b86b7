package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
	"laneway/internal/words"
)

func TestACompactionGivesEveryFreePageBack(t *testing.T) {
	t.Parallel()
	s, before, pages := emptied(t, 12)
	report, err := s.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if free := storetest.Query(t, outside(t, s.path), `PRAGMA freelist_count`)[0][0].(int64); free != 0 || pages() > 200 || before < 3000 {
		t.Errorf("%d pages are free, the file has %d after %d (%s)", free, pages(), before, report)
	}
	if !strings.HasPrefix(report, "12.") || !strings.Contains(report, "MiB given back") {
		t.Errorf("the report is %q", report)
	}
	if again, err := s.Compact(t.Context()); err != nil || !strings.HasPrefix(again, "0.0 MiB given back to the disk in 0 steps") {
		t.Errorf("a second time: %q, %v", again, err)
	}
}

func TestACompactionMergesTheSearchIndex(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	for i := range 7 {
		var entries []chat.TranscriptEntry
		for j := range 60 {
			entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: fmt.Sprint("needle number", i, "x", j)})
		}
		if _, err := s.AppendTranscript(t.Context(), key, "ann", entries); err != nil {
			t.Fatal(err)
		}
		if _, err := s.IndexTranscripts(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	segments := func() int64 {
		return storetest.Query(t, outside(t, s.path), `SELECT count(DISTINCT segid) FROM transcript_words_idx`)[0][0].(int64)
	}
	before := segments()
	if _, err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := segments(); before < 2 || after != 1 {
		t.Errorf("the index has %d segments after %d, want one", after, before)
	}
	if n := hitsOf(t, s, "needle"); n != 100 {
		t.Errorf("%d hits after the compaction", n)
	}
}

// TestAVacuumOfAnotherProgramIsNoticed covers VACUUM, which may renumber the rows of a table. The
// index is then rebuilt.
func TestAVacuumOfAnotherProgramIsNoticed(t *testing.T) {
	t.Parallel()
	s := open(t)
	register(t, s, "node")
	keys := []chat.SessionKey{{Agent: "main", Rest: "one"}, {Agent: "main", Rest: "two"}}
	for i := range 20 {
		if _, err := s.AppendTranscript(t.Context(), keys[i%2], "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: fmt.Sprint("needle ", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: keys[0]}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.IndexTranscripts(t.Context()); n != 10 || err != nil {
		t.Fatalf("indexed %d, %v", n, err)
	}
	db := outside(t, s.path)
	// The renumbering is simulated, because this version of SQLite keeps the row numbers of a table
	// that has an index.
	if _, err := db.Exec(`UPDATE transcript SET rowid = rowid / 2 WHERE session_key = 'agent:main:two'`); err != nil {
		t.Fatal(err)
	}
	if n, err := s.IndexTranscripts(t.Context()); n != 10 || err != nil {
		t.Errorf("indexed %d again, %v; want all 10", n, err)
	}
	if n := hitsOf(t, s, "needle"); n != 10 {
		t.Errorf("%d hits, want 10", n)
	}
}

func TestACompactionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := errors.New("the process ends")
	cancel(ends)
	if report, err := s.Compact(ctx); !errors.Is(err, ends) {
		t.Errorf("it continued: %q, %v", report, err)
	}
}

func hitsOf(t *testing.T, s *Store, text string) int {
	t.Helper()
	q, err := words.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.SearchTranscripts(t.Context(), store.SearchQuery{Words: q, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(out.Hits)
}

func TestUpkeepGivesFreePagesBackAndCopiesTheLog(t *testing.T) {
	t.Parallel()
	s, before, pages := emptied(t, 12)
	report, err := s.Upkeep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after := pages(); after > slackPages+200 || before < 3000 {
		t.Errorf("the file has %d pages after %d (%s); want %d for reuse", after, before, report, slackPages)
	}
	if !strings.Contains(report, "pages of the log copied") || strings.HasPrefix(report, "0 ") {
		t.Errorf("the report is %q", report)
	}
	if again, err := s.Upkeep(t.Context()); err != nil || !strings.HasPrefix(again, "0 free pages given back") {
		t.Errorf("a second time: %q, %v", again, err)
	}
}

func TestUpkeepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the process ends"))
	if report, err := s.Upkeep(ctx); err == nil {
		t.Errorf("it continued: %q", report)
	}
	register(t, s, "node") // the store works afterwards
}

// emptied is a store from whose file a session of that many MiB was deleted, the number of pages
// before the session, and a function for the current number.
func emptied(t *testing.T, mebibytes int) (s *Store, before int64, pages func() int64) {
	t.Helper()
	s = open(t)
	register(t, s, "node")
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	entry := chat.TranscriptEntry{Role: chat.RoleUser, Text: strings.Repeat("x", 1<<20)}
	for range mebibytes {
		if _, err := s.AppendTranscript(t.Context(), key, "ann", []chat.TranscriptEntry{entry}); err != nil {
			t.Fatal(err)
		}
	}
	pages = func() int64 { return storetest.Query(t, outside(t, s.path), `PRAGMA page_count`)[0][0].(int64) }
	before = pages()
	if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: key}); err != nil {
		t.Fatal(err)
	}
	return s, before, pages
}

// After a plain DELETE the file still contains the deleted content, unless the engine overwrites
// it.
func TestDeletedContentIsOverwritten(t *testing.T) {
	t.Parallel()
	const text = "a sentence that must not stay in the file"
	path := migrated(t)
	s := reopen(t, nil, path, nil)
	for _, name := range []string{"a", "b", "c"} {
		key := chat.SessionKey{Agent: "main", Rest: name}
		content := text
		if name == "c" {
			content = "something else, so that the page stays in use"
		}
		if _, err := s.AppendTranscript(t.Context(), key, "ann", []chat.TranscriptEntry{{Role: chat.RoleUser, Text: content}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: chat.SessionKey{Agent: "main", Rest: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // this copies the log into the file and removes it
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(file, []byte(text)); n > 0 {
		t.Fatalf("the file has the deleted text %d times", n)
	}
	if !bytes.Contains(file, []byte("something else")) {
		t.Fatal("the file does not have what was not deleted: the test looks at the wrong file")
	}
}
