package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/storetest"
)

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

// emptied is a store from whose file a session of that many MiB was deleted, the number of pages before the session, and a function for the current number.
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
