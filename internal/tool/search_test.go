package tool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// found answers a search, and keeps what was asked for.
type found struct {
	services

	asked  []store.SearchQuery
	answer store.SearchResult
}

func (f *found) Search(_ context.Context, q store.SearchQuery) (store.SearchResult, error) {
	f.asked = append(f.asked, q)
	return f.answer, nil
}

func (f *found) searches(in chat.SessionKey, args string) chat.ToolResult {
	t := turn()
	t.Session, t.NoActs = in, func() string { return "not here" } // which does not matter to a search
	return callOf(f, t, "history_search", args)
}

func TestHistorySearchCoversTheSessionsOfTheOwner(t *testing.T) {
	t.Parallel()
	back := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	f := &found{answer: store.SearchResult{More: true, Back: back, Hits: []store.Hit{{
		Session: turn().Session, Entry: chat.TranscriptEntry{Role: chat.RoleUser, Text: "…the invoice…", At: back},
	}}}}
	got := f.searches(turn().Session, `{"query":"Invoice"}`)
	if got.IsError || !strings.Contains(got.Text, "2026-03-14T09:26:53Z agent:main:ann-1, user: …the invoice…") || !strings.Contains(got.Text, "search again with before 2026-03-14T09:26:53Z") {
		t.Errorf("got %+v", got)
	}
	if q := f.asked[0]; q.Visible != "ann" || !q.Session.IsZero() || q.Limit == 0 || !q.Words.Finds("one INVOICE") {
		t.Errorf("asked for %+v, want all sessions of ann", q)
	}
	f.searches(turn().Session, `{"query":"x","session":"agent:main:ann-2","before":"2026-03-14T09:26:53Z"}`)
	if q := f.asked[1]; q.Visible != "ann" || q.Session.Rest != "ann-2" || !q.Until.Equal(back) {
		t.Errorf("asked for %+v, want one session", q)
	}
	f.answer = store.SearchResult{}
	if got := f.searches(turn().Session, `{"query":"x"}`); got.Text != "No message has these words." {
		t.Errorf("got %+v", got)
	}
}

func TestHistorySearchInAGroupStaysThere(t *testing.T) {
	t.Parallel()
	group := chat.SessionKey{Agent: "main", Rest: "telegram:group:-100"}
	f := &found{}
	f.searches(group, `{"query":"x"}`)
	f.searches(group, `{"query":"x","session":"`+group.String()+`"}`)
	for _, q := range f.asked {
		if q.Session != group || q.Visible != "" {
			t.Errorf("asked for %+v, want the group alone", q)
		}
	}
	if got := f.searches(group, `{"query":"x","session":"agent:main:ann-1"}`); !got.IsError || !strings.Contains(got.Text, "in a group only this session") || len(f.asked) != 2 {
		t.Errorf("got %+v after %d searches, want a refusal", got, len(f.asked))
	}
}

func TestHistorySearchRefusesMistakes(t *testing.T) {
	t.Parallel()
	f := &found{}
	for args, want := range map[string]string{
		`{"query":"?"}`:                      "the query has no word",
		`{}`:                                 "the query has no word",
		`{"query":"x","before":"yesterday"}`: "before is not a time",
		`{"query":"x","session":"agent:main:bob-1"}`: "there is no session agent:main:bob-1",
	} {
		if got := f.searches(turn().Session, args); !got.IsError || !strings.Contains(got.Text, want) || len(f.asked) != 0 {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
}
