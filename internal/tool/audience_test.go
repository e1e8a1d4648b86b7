package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/store"
	"laneway/internal/tool"
)

// library has the private sessions and jobs of a person, and those of a group that another person
// owns.
type library struct{ services }

var inGroup = chat.SessionKey{Agent: "main", Rest: "telegram:group:-5"}

func (*library) Session(_ context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	switch {
	case key == inGroup && visible == "":
		return chat.SessionStatus{Key: key, Principal: "telegram:666:8"}, nil
	case visible == "telegram:666:7" && key.Rest == "telegram:direct:7":
		return chat.SessionStatus{Key: key, Principal: visible}, nil
	}
	return chat.SessionStatus{}, chat.ErrSessionNotFound
}

func (*library) Sessions(context.Context, store.SessionFilter) ([]chat.SessionStatus, int, error) {
	return []chat.SessionStatus{{Key: chat.SessionKey{Agent: "main", Rest: "telegram:direct:7"}}}, 1, nil
}

func (*library) Transcript(_ context.Context, q store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{Entries: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "said in " + q.Session.Rest}}}, nil
}

func jobAt(id, to string) cron.Job {
	return cron.Job{ID: id, Agent: "main", Session: cron.Isolated, Delivery: cron.Delivery{Mode: cron.DeliverAnnounce, Channel: "telegram:666", To: to}}
}

func (*library) Jobs(_ context.Context, c command.Call) ([]cron.Job, error) {
	if c.Audience.Shared() {
		return []cron.Job{jobAt("of-the-group", "-5")}, nil
	}
	return []cron.Job{jobAt("of-the-group", "-5"), jobAt("of-the-chat", "7")}, nil
}

func (*library) Job(_ context.Context, id string, _ chat.Caller) (cron.Job, error) {
	return jobAt(id, map[string]string{"of-the-group": "-5", "of-the-chat": "7"}[id]), nil
}

func (*library) Ledger(_ context.Context, f cron.RunFilter, _ chat.Caller) (cron.RunPage, error) {
	return cron.RunPage{Runs: []cron.Run{{JobID: f.JobID, State: cron.RunOK}}}, nil
}

// TestATurnWithSeveralReadersShowsTheirConversationAlone makes the calls that read in a private
// turn, in a group whose person can be asked, and where no person can be asked: in a turn of a job
// that answers there, and in a chat without buttons.
func TestATurnWithSeveralReadersShowsTheirConversationAlone(t *testing.T) {
	t.Parallel()
	const (
		asks    = "The person is asked"
		refuses = "everyone in this group (telegram -5) can read the answer"
	)
	for _, tt := range []struct{ name, args, private, group, unattended string }{
		{"sessions", `{"action":"list"}`, "telegram:direct:7", "telegram:group:-5", "telegram:group:-5"},
		{"sessions", `{"action":"list","everywhere":true}`, "telegram:direct:7", asks, refuses},
		{"sessions", `{"action":"history"}`, "invalid session key", "said in telegram:group:-5", "said in telegram:group:-5"},
		{"sessions", `{"action":"history","session":"agent:main:telegram:group:-5"}`, "there is no session", "said in telegram:group:-5", "said in telegram:group:-5"},
		{"sessions", `{"action":"history","session":"agent:main:telegram:direct:7"}`, "said in telegram:direct:7", asks, refuses},
		{"cron", `{"action":"list"}`, "of-the-chat", "of-the-group", "of-the-group"},
		{"cron", `{"action":"list","everywhere":true}`, "of-the-chat", asks, refuses},
		{"cron", `{"action":"runs","id":"of-the-group"}`, "ok", "ok", "ok"},
		{"cron", `{"action":"runs","id":"of-the-chat"}`, "ok", "that job does not belong to this conversation", "that job does not belong to this conversation"},
		{"cron", `{"action":"runs","id":"of-the-chat","everywhere":true}`, "ok", asks, refuses},
		{"history_search", `{"query":"x"}`, "No message", "No message", "No message"},
		{"history_search", `{"query":"x","everywhere":true}`, "No message", asks, refuses},
		{"history_search", `{"query":"x","session":"agent:main:telegram:direct:7"}`, "No message", asks, refuses},
		{"history_search", `{"query":"?","everywhere":true}`, "the query has no word", "the query has no word", refuses},
	} {
		private := tool.Turn{Owner: "telegram:666:7", Session: chat.SessionKey{Agent: "main", Rest: "telegram:direct:7"}}
		group := private
		group.Session, group.Audience = inGroup, chat.AudienceOf(private.Owner, inGroup, "telegram:666:8")
		group.Asks = func() string { return "in a group" }
		group.Asked = tool.Person{Principal: private.Owner, ID: "7", Target: chat.Target{Channel: "telegram:666", ChatID: "-5"}}
		unattended := group
		unattended.NoActs = func() string { return "this is not possible in the turn of a job" }
		mute := group
		mute.Asked = tool.Person{}
		for _, in := range []struct {
			what, want string
			turn       tool.Turn
		}{{"private", tt.private, private}, {"group", tt.group, group}, {"job", tt.unattended, unattended}, {"no button", tt.unattended, mute}} {
			s, q := &library{}, &questions{}
			table := tool.New(tool.Deps{Jobs: s, Editor: s, Sessions: s, Questions: q})
			got := table.For(in.turn, nil).Call(t.Context(), "key/1", chat.ToolCall{ID: "a", Name: tt.name, Args: tt.args})
			if !strings.Contains(got.Text, in.want) || (len(q.asked) == 1) != strings.HasPrefix(got.Text, asks) {
				t.Errorf("%s %s, %s: got %q and %d questions, want %q", tt.name, tt.args, in.what, got.Text, len(q.asked), in.want)
			}
			if in.want != tt.private && strings.Contains(got.Text, "direct:7") {
				t.Errorf("%s %s, %s: shows what is private: %q", tt.name, tt.args, in.what, got.Text)
			}
			for _, p := range q.asked {
				if !strings.Contains(p.Words(), "everyone in this group (telegram -5) will see the result") {
					t.Errorf("%s %s: the question does not name the readers: %s", tt.name, tt.args, p.Words())
				}
				if made := table.Make(t.Context(), p); made.IsError || !strings.Contains(made.Text, tt.private) {
					t.Errorf("%s %s, allowed: got %+v, want %q", tt.name, tt.args, made, tt.private)
				}
			}
		}
	}
}

// TestTheArgumentForEverywhereIsOfferedWhereOthersRead checks that schemas stay valid and that a
// private turn is not offered the argument.
func TestTheArgumentForEverywhereIsOfferedWhereOthersRead(t *testing.T) {
	t.Parallel()
	one := turn()
	one.Tasks, one.Files = colleagues{"coder"}, anyFiles{}
	for _, shared := range []bool{false, true} {
		if shared {
			one.Audience = chat.AudienceOf("ann", inGroup, "bob")
		}
		offered := 0
		for _, spec := range tool.New(tool.Deps{}).For(one, nil).Specs() {
			var schema struct {
				Properties map[string]any `json:"properties"`
			}
			if err := json.Unmarshal(spec.Schema, &schema); err != nil {
				t.Errorf("%s: %v", spec.Name, err)
			}
			if schema.Properties["everywhere"] != nil {
				offered++
			}
		}
		if want := map[bool]int{true: 3}[shared]; offered != want {
			t.Errorf("shared %t: %d tools have the argument, want %d", shared, offered, want)
		}
	}
}

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
