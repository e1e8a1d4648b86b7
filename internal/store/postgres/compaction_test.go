package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"laneway/internal/chat"
	"laneway/internal/store"
	"laneway/internal/store/postgres"
	"laneway/internal/testpg"
)

func TestACompactionGivesBackWhatDeletedRowsHaveLeft(t *testing.T) {
	t.Parallel()
	url := testpg.DB(t)
	exec(t, url, "ALTER TABLE transcript SET (autovacuum_enabled = false, toast.autovacuum_enabled = false)") // otherwise the server would free the space first
	s := open(t, postgres.Config{URL: url})
	defer func() { _ = s.Close() }()
	key := chat.SessionKey{Agent: "main", Rest: "room"}
	for range 10 {
		var entries []chat.TranscriptEntry
		for i := range 500 {
			entries = append(entries, chat.TranscriptEntry{Role: chat.RoleUser, Text: strings.Repeat(fmt.Sprint(i, " "), 200)})
		}
		if _, err := s.AppendTranscript(t.Context(), key, "ann", entries); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.DeleteSession(t.Context(), store.DeleteParams{Session: key}); err != nil {
		t.Fatal(err)
	}
	report, err := s.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(report, "0.0 MiB") || !strings.Contains(report, "MiB given back to the disk") || !strings.Contains(report, "tables vacuumed") || strings.Contains(report, "left out") {
		t.Errorf("the report is %q", report)
	}
	t.Log(report)
}

func TestACompactionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Config{URL: testpg.DB(t)})
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := errors.New("the process ends")
	cancel(ends)
	if report, err := s.Compact(ctx); err == nil {
		t.Errorf("it continued: %q", report)
	}
}
