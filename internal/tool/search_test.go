package tool_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/store"
)

// found answers a search, and records the query.
type found struct {
	services

	asked  []store.SearchQuery
	toc    []store.TocQuery
	nodes  []store.TocNode
	answer store.SearchResult
}

func (f *found) Search(_ context.Context, q store.SearchQuery) (store.SearchResult, error) {
	f.asked = append(f.asked, q)
	return f.answer, nil
}

func (f *found) Toc(_ context.Context, q store.TocQuery) ([]store.TocNode, error) {
	f.toc = append(f.toc, q)
	return f.nodes, nil
}

func (f *found) searches(in chat.SessionKey, args string) chat.ToolResult {
	t := turn()
	t.Session, t.Audience = in, chat.AudienceOf(t.Owner, in, t.Owner)
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
	if got := f.searches(group, `{"query":"x","session":"agent:main:ann-1"}`); !got.IsError || !strings.Contains(got.Text, "a person cannot allow it here") || len(f.asked) != 2 {
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

func TestHistorySearchShowsContents(t *testing.T) {
	t.Parallel()
	f := &found{nodes: []store.TocNode{
		{Level: store.TocDay, Period: "2026-03-14", Session: turn().Session, Text: "the invoice"}, {Level: store.TocWeek, Period: "2026-W11", Text: "a week"},
	}}
	got := f.searches(turn().Session, `{"contents":"week","period":"2026-W12"}`)
	if want := "2026-03-14 agent:main:ann-1: the invoice\n2026-W11: a week\n"; got.IsError || got.Text != want {
		t.Errorf("got %+v, want %q", got, want)
	}
	f.searches(turn().Session, `{"contents":"day","session":"agent:main:ann-2"}`)
	group := chat.SessionKey{Agent: "main", Rest: "telegram:group:-100"}
	f.searches(group, `{"contents":"day"}`)
	want := []store.TocQuery{
		{Level: store.TocWeek, Visible: "ann", To: "2026-W12", Limit: 10},
		{Level: store.TocDay, Visible: "ann", Session: chat.SessionKey{Agent: "main", Rest: "ann-2"}, Limit: 10},
		{Level: store.TocDay, Session: group, Limit: 10},
	}
	if diff := cmp.Diff(want, f.toc); diff != "" {
		t.Errorf("asked for (- want, + got):\n%s", diff)
	}
	for args, want := range map[string]string{
		`{"contents":"week"}`:                                "a week or month does not belong to this conversation, and everyone in this group (telegram -100) can read the answer",
		`{"contents":"day","session":"agent:main:ann-1"}`:    "a person cannot allow it here",
		`{"contents":"day","query":"x"}`:                     "leave out query and before",
		`{"contents":"day","before":"2026-03-14T15:00:00Z"}`: "leave out query and before",
	} {
		if got := f.searches(group, args); !got.IsError || !strings.Contains(got.Text, want) {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
	for args, want := range map[string]string{
		`{"contents":"week","session":"agent:main:ann-1"}`: "only days have a summary",
		`{"contents":"day","session":"agent:main:bob-1"}`:  "there is no session",
	} {
		if got := f.searches(turn().Session, args); !got.IsError || !strings.Contains(got.Text, want) {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
	if len(f.toc) != 3 || len(f.asked) != 0 {
		t.Errorf("a refused call reads: %+v, %+v", f.toc, f.asked)
	}
	f.nodes = nil
	if got := f.searches(turn().Session, `{"contents":"month"}`); got.Text != "There are no summaries." {
		t.Errorf("got %+v", got)
	}
}
