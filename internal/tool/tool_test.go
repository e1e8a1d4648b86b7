package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
	"laneway/internal/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type conversations = tool.Sessions

// services records its calls. Methods that no test calls panic because of the nil interfaces, as a
// defect would.
type services struct {
	command.JobActions
	tool.JobEditor
	conversations

	added    []command.NewJob
	calls    []command.Call
	sent     []store.Outgoing
	received []chat.Message
	by       []chat.Caller
	fail     error
}

func now() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

func (s *services) Clock(context.Context, command.Call) (time.Time, string, error) {
	return now(), "Europe/Berlin", nil
}

func (s *services) AddJob(_ context.Context, c command.Call, n command.NewJob) (cron.Put, error) {
	s.added, s.calls = append(s.added, n), append(s.calls, c)
	return cron.Put{Job: cron.Job{ID: "j1", Schedule: n.Schedule}, Created: true}, s.fail
}

func (s *services) RemoveJob(_ context.Context, c command.Call, _ string) error {
	s.calls = append(s.calls, c)
	return s.fail
}

func (s *services) Session(_ context.Context, key chat.SessionKey, visible string) (chat.SessionStatus, error) {
	if visible == "ann" && strings.HasPrefix(key.Rest, "ann") || visible == "telegram:666:7" && key.Channel() == "telegram" {
		return chat.SessionStatus{Key: key, Principal: visible}, nil
	}
	return chat.SessionStatus{}, chat.ErrSessionNotFound
}

func (s *services) Job(_ context.Context, id string, _ chat.Caller) (cron.Job, error) {
	if id != "j1" {
		return cron.Job{}, chat.Errorf(chat.CodeNotFound, "no such job")
	}
	return cron.Job{ID: id}, nil
}

func (*services) Transcript(context.Context, store.TranscriptQuery) (store.Transcript, error) {
	return store.Transcript{}, nil
}

func (*services) Search(context.Context, store.SearchQuery) (store.SearchResult, error) {
	return store.SearchResult{}, nil
}

func (*services) Reaches(channel string) error {
	if channel == "annex" {
		return chat.Errorf(chat.CodeInvalid, "%s cannot be reached", channel)
	}
	return nil
}

func (s *services) Send(_ context.Context, o store.Outgoing) error {
	s.sent = append(s.sent, o)
	return nil
}

func (s *services) ReceiveFrom(_ context.Context, m chat.Message, by chat.Caller) (chat.Receipt, error) {
	s.received, s.by = append(s.received, m), append(s.by, by)
	return chat.Receipt{}, nil
}

func turn() tool.Turn {
	return tool.Turn{Owner: "ann", Session: chat.SessionKey{Agent: "main", Rest: "ann-1"}, Sender: chat.Sender{ID: "ann"}, Channel: "web"}
}

func (s *services) call(t tool.Turn, name, args string) chat.ToolResult {
	return callOf(s, t, name, args)
}

// callOf calls a tool with s as every service.
func callOf(s interface {
	command.JobActions
	tool.JobEditor
	tool.Sessions
}, t tool.Turn, name, args string,
) chat.ToolResult {
	box := tool.New(tool.Deps{Jobs: s, Editor: s, Sessions: s}).For(t, nil)
	return box.Call(context.Background(), "agent:main:ann-1/run/1/1", chat.ToolCall{ID: "a", Name: name, Args: args})
}

// colleagues are the other agents of a turn. Their sub-turns answer with their prompt, or fail if
// it is "fail".
type colleagues []string

func (colleagues) Start(_ context.Context, n tool.NewTask) error {
	if n.Text == "refuse" {
		return chat.Errorf(chat.CodeLimit, "no more")
	}
	return nil
}

func (colleagues) Wait(_ context.Context, id string) (chat.RunEnd, error) {
	return chat.RunEnd{RunID: id, Outcome: chat.OutcomeAnswered, Text: strings.Repeat("x", 60<<10)}, nil
}

func (c colleagues) Colleagues() []string { return c }

// reading are colleagues that read external text.
type reading struct{ colleagues }

func (reading) Wait(_ context.Context, id string) (chat.RunEnd, error) {
	return chat.RunEnd{RunID: id, Outcome: chat.OutcomeAnswered, Text: "read", Foreign: true}, nil
}

// TestTasksAnswerWithinTheBoundsOfAResult reads the answers of the tools for sub-turns, with valid
// and with wrong arguments.
func TestTasksAnswerWithinTheBoundsOfAResult(t *testing.T) {
	t.Parallel()
	one := turn()
	one.Tasks = colleagues{"coder"}
	for _, tt := range []struct {
		name, args, want string
		fails            bool
	}{
		{"delegate", `{"agent":"coder","task":"t"}`, "xxx\n[the answer has 61440 bytes; this is its begin]", false},
		{"spawn", `{"task":"t","wait":true}`, "xxx\n[the answer has 61440 bytes; this is its begin]", false},
		{"spawn", `{"task":"t"}`, " works on it; its answer comes into this conversation.", false},
		{"spawn", `{"task":"refuse"}`, "no more", true},
		{"spawn", `{"task":" "}`, "task must not be blank", true},
		{"spawn", `{"task":1}`, "the argument task must not be a number", true},
		{"spawn", `{"task":"t","agent":"coder"}`, `there is no argument "agent"`, true},
		{"delegate", `{"task":"t"}`, "the argument agent is missing; there are coder", true},
	} {
		got := (&services{}).call(one, tt.name, tt.args)
		if got.IsError != tt.fails || !strings.HasSuffix(got.Text, tt.want) {
			t.Errorf("%s %s: got %.100q (error %v), want %q", tt.name, tt.args, got.Text, got.IsError, tt.want)
		}
	}
}

// anyFiles is a conversation that shows files.
type anyFiles struct{ tool.Files }

func TestTheTableOffersWhatItsNamesSay(t *testing.T) {
	t.Parallel()
	names := func(box agent.Toolbox) (list []string) {
		for _, spec := range box.Specs() {
			list = append(list, spec.Name)
			if !spec.Idempotent || len(spec.Schema) == 0 || spec.Description == "" {
				t.Errorf("%+v is no complete tool of the gateway", spec)
			}
		}
		return list
	}
	table := tool.New(tool.Deps{})
	for _, tt := range []struct {
		what  string
		tasks tool.Tasks
		want  []string
	}{
		{"all tools", colleagues{"coder", "critic"}, tool.Names()},
		{"without another agent", colleagues{}, slices.DeleteFunc(tool.Names(), func(n string) bool { return n == "delegate" })},
		{"without sub-turns", nil, slices.DeleteFunc(tool.Names(), func(n string) bool { return n == "delegate" || n == "spawn" })},
	} {
		one := turn()
		one.Tasks, one.Files = tt.tasks, anyFiles{}
		if diff := cmp.Diff(tt.want, names(table.For(one, nil))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
	one := turn()
	one.Tasks = colleagues{"coder", "critic"}
	specs := table.For(one, []string{"delegate"}).Specs()
	if !strings.Contains(string(specs[0].Schema), `"enum":["coder","critic"]`) || !json.Valid(specs[0].Schema) || !specs[0].Waits {
		t.Errorf("delegate: got %s", specs[0].Schema)
	}
	if got := names(table.For(turn(), []string{"sessions", "remind", "fly"})); !cmp.Equal(got, []string{"remind", "sessions"}) {
		t.Errorf("named tools: got %q", got)
	}
}

func TestRemindAnswersTheExactLocalTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 14, 0, 0, 0, time.UTC)
	for _, when := range []string{"tomorrow at 15:00", "tomorrow 15:00", "2026-11-23 15:00", "2026-11-23T15:00:00+01:00", " 2026-11-23T14:00:00Z "} {
		s := &services{}
		got := s.call(turn(), "remind", `{"when":"`+when+`","text":"tea"}`)
		if got.IsError || got.Text != "Reminder j1 is set at Mon 23 Nov 2026 15:00 CET (Europe/Berlin)." {
			t.Errorf("%q: got %+v", when, got)
			continue
		}
		if n := s.added[0]; !n.Schedule.At.Equal(at) || n.Schedule.Kind != schedule.KindAt || n.Text != "tea" || !n.Reminder {
			t.Errorf("%q: got %+v, want %s", when, n, at)
		}
		if c := s.calls[0]; c.Principal != "ann" || !c.Own || c.ID != "agent:main:ann-1/run/1/1" || c.Session != turn().Session {
			t.Errorf("%q: made for %+v, want the owner of the turn under the key of the call", when, c)
		}
	}
}

func TestMistakenArgumentsAreOneSentence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, args, want string }{
		{"remind", `{"when":"in 2s","text":"tea","color":"red"}`, `there is no argument "color"`},
		{"remind", `{"when":5,"text":"tea"}`, "the argument when must not be a number"},
		{"remind", `{"when":"when pigs fly","text":"tea"}`, "is not understood"},
		{"remind", `{"when":"tomorrow 15:00 or so","text":"tea"}`, `when: "or so" is not understood`},
		{"remind", `{"when":"every 30m","text":"tea"}`, "use the tool cron for what repeats"},
		{"remind", `{"when":"in 2s","text":" "}`, "text must not be blank"},
		{"remind", ``, "is not understood"},
		{"remind", `{} {}`, "there is something behind the arguments"},
		{"cron", `{"action":"fly"}`, `there is no action "fly"`},
		{"cron", `{"action":"pause"}`, "the action pause needs the id of a job"},
		{"cron", `{"action":"update","id":"j1"}`, "needs when, text or both"},
		{"message", `{"text":"x","session":"agent:main:bob-1"}`, "there is no session agent:main:bob-1"},
		{"sessions", `{"action":"send","session":"agent:main:ann-1","text":"x"}`, "that is this session"},
		{"sessions", `{"action":"history","session":"agent:main:bob-1"}`, "there is no session"},
		{"fly", `{}`, "there is no tool fly"},
	} {
		s := &services{}
		got := s.call(turn(), tt.name, tt.args)
		if !got.IsError || !strings.Contains(got.Text, tt.want) || len(s.added)+len(s.sent)+len(s.received) != 0 {
			t.Errorf("%s %s: got %+v, want %q and no effect", tt.name, tt.args, got, tt.want)
		}
	}
}

func TestATurnThatMayNotActReadsOnly(t *testing.T) {
	t.Parallel()
	refusing := turn()
	refusing.NoActs = func() string { return "not in a group" }
	for name, calls := range map[string][]string{
		"remind":   {`{"when":"in 2s","text":"tea"}`},
		"cron":     {`{"action":"add","when":"in 2s","text":"x"}`, `{"action":"remove","id":"j1"}`, `{"action":"run","id":"j1"}`, `{"action":7}`, `{`},
		"message":  {`{"text":"x"}`},
		"sessions": {`{"action":"send","session":"agent:main:ann-2","text":"x"}`, `{"Action":"list","action":"send"}`},
	} {
		for _, args := range calls {
			s := &services{}
			if got := s.call(refusing, name, args); !got.IsError || got.Text != "not in a group" || len(s.calls)+len(s.sent)+len(s.received) != 0 {
				t.Errorf("%s %s: got %+v, want the refusal", name, args, got)
			}
		}
	}
	s := &services{}
	if got := s.call(refusing, "cron", `{"action":"preview","when":"in 2h"}`); got.IsError {
		t.Errorf("preview: got %+v, want it to be allowed", got)
	}
}

// TestActionsAreReadOnce checks that the check of an action and its execution read the same member,
// even if the arguments contain it twice.
func TestActionsAreReadOnce(t *testing.T) {
	t.Parallel()
	refusing := turn()
	refusing.NoActs = func() string { return "no" }
	for _, args := range []string{
		`{"action":"list","action":"send","session":"agent:main:ann-2","text":"x"}`, `{"action":"list","ACTION":"send","session":"agent:main:ann-2","text":"x"}`,
	} {
		s := &services{}
		if got := s.call(refusing, "sessions", args); !got.IsError || len(s.received) != 0 {
			t.Errorf("%s: got %+v and %d messages, want a refusal", args, got, len(s.received))
		}
	}
}

func TestWhatIsSentFollowsFromTheKey(t *testing.T) {
	t.Parallel()
	s := &services{}
	for range 2 {
		s.call(turn(), "message", `{"text":"hello"}`)
		s.call(turn(), "sessions", `{"action":"send","session":"agent:main:ann-2","text":"/stop all"}`)
	}
	if a, b := s.sent[0], s.sent[1]; !cmp.Equal(a, b) || a.RunID == "" || a.N != 1 || a.Target.ChatID != "agent:main:ann-1" || a.Principal != "ann" {
		t.Errorf("sent %+v and %+v, want the same row to the session of the turn", a, b)
	}
	if a, b := s.received[0], s.received[1]; !cmp.Equal(a, b) || a.Dedupe == "" || !a.Content.External || a.Session.Rest != "ann-2" || !s.by[0].Own {
		t.Errorf("given to the session: %+v and %+v by %+v, want the same text from outside", a, b, s.by[0])
	}
}

// TestATextForAnotherChatGoesThroughTheAccountOfItsPerson sends from a private chat to a group of
// the same person. Session keys name no account, but channels do.
func TestATextForAnotherChatGoesThroughTheAccountOfItsPerson(t *testing.T) {
	t.Parallel()
	s := &services{}
	one := turn()
	one.Owner, one.Session = "telegram:666:7", chat.SessionKey{Agent: "main", Rest: "telegram:direct:7"}
	one.Target = chat.Target{Channel: "telegram:666", ChatID: "7"}
	const group = "agent:main:telegram:group:-5:topic:3"
	want := chat.Target{Channel: "telegram:666", ChatID: "-5", Thread: "3"}
	if got := s.call(one, "message", `{"text":"hello","session":"`+group+`"}`); got.IsError || len(s.sent) != 1 || s.sent[0].Target != want || s.sent[0].Session.String() != group {
		t.Errorf("got %+v, sent %+v, want it at %+v", got, s.sent, want)
	}
	if got := s.call(one, "sessions", `{"action":"send","text":"hello","session":"`+group+`"}`); got.IsError || len(s.received) != 1 || s.received[0].Content.Options.ReplyTo != want {
		t.Errorf("got %+v, given %+v, want the answer at %+v", got, s.received, want)
	}
}

func TestARemovedJobMayBeRemovedAgain(t *testing.T) {
	t.Parallel()
	for _, fault := range []error{chat.ErrNotFound, chat.Errorf(chat.CodeInvalid, "cron job not found: j1").With("code", "CRON_JOB_NOT_FOUND")} {
		s := &services{fail: fault}
		if got := s.call(turn(), "cron", `{"action":"remove","id":"j1"}`); got.IsError {
			t.Errorf("got %+v, want no error: the call may be a repetition", got)
		}
	}
}

func TestFailuresShowNoInternals(t *testing.T) {
	t.Parallel()
	s := &services{fail: errors.New("dial tcp 10.0.0.1:5432: connection refused")}
	if got := s.call(turn(), "remind", `{"when":"in 2s","text":"tea"}`); !got.IsError || got.Text != "The tool remind failed; try again later." {
		t.Errorf("got %+v", got)
	}
	if got := s.call(turn(), "cron", `{"action":"pause","id":"j1"}`); !got.IsError || got.Text != "The tool cron failed on this call." {
		t.Errorf("after a panic: got %+v", got)
	}
}

// questions records the questions.
type questions struct{ asked []tool.Pending }

func (q *questions) Ask(_ context.Context, p tool.Pending) error {
	q.asked = append(q.asked, p)
	return nil
}

// TestAPersonIsAskedBeforeAToolActs checks which calls become a question, which are refused, and
// that an allowed call is the one in the question.
func TestAPersonIsAskedBeforeAToolActs(t *testing.T) {
	t.Parallel()
	s, q := &services{}, &questions{}
	table := tool.New(tool.Deps{Jobs: s, Editor: s, Sessions: s, Questions: q})
	asking := turn()
	asking.Asks = func() string { return "in a group" }
	asking.Asked = tool.Person{Principal: "asker:7", ID: "7", Target: chat.Target{Channel: "asker", ChatID: "5"}}
	call := chat.ToolCall{ID: "a", Name: "remind", Args: `{"when":"in 2h","text":"tea"}`}
	got := table.For(asking, nil).Call(t.Context(), "key/1", call)
	if got.IsError || !strings.Contains(got.Text, "is asked whether this may be done, because it was asked for in a group") || len(s.added) != 0 || len(q.asked) != 1 {
		t.Fatalf("got %+v with %d jobs and %d questions", got, len(s.added), len(q.asked))
	}
	p := q.asked[0]
	if len(p.ID()) != 12 || p.Words() != `remind {"when":"in 2h","text":"tea"}`+"\nYou are asked because the agent wants this in a group." {
		t.Errorf("asked %q: %s", p.ID(), p.Words())
	}
	if result := table.Make(t.Context(), p); result.IsError || len(s.added) != 1 || s.calls[0].ID != "key/1" || s.calls[0].Principal != "asker:7" || s.calls[0].Sender.ID != "7" {
		t.Errorf("allowed: %+v, %+v", result, s.calls)
	}
	long := chat.ToolCall{Name: "message", Args: `{"text":"` + strings.Repeat("x", 2000) + `"}`}
	if got := table.For(asking, nil).Call(t.Context(), "key/2", long); !got.IsError || !strings.Contains(got.Text, "too long to be shown") {
		t.Errorf("a call that cannot be shown: %+v", got)
	}
	asking.Asked = tool.Person{}
	if got := table.For(asking, nil).Call(t.Context(), "key/3", call); !got.IsError || !strings.Contains(got.Text, "a person cannot allow it here") {
		t.Errorf("without a person: %+v", got)
	}
	if got := table.For(asking, nil).Call(t.Context(), "key/4", chat.ToolCall{Name: "cron", Args: `{"action":"preview","when":"in 2h"}`}); got.IsError {
		t.Errorf("what does not act is asked about: %+v", got)
	}
	if len(q.asked) != 1 || len(s.sent) != 0 {
		t.Errorf("%d questions, %d messages", len(q.asked), len(s.sent))
	}
}

func TestTheWordsOfAQuestionHideNothing(t *testing.T) {
	t.Parallel()
	p := tool.Pending{Tool: "message", Args: "{\"text\":\"a\u202eb\"}\n"}
	if got := p.Words(); got != `message {"text":"a\u202eb"}\u000a` {
		t.Errorf("got %q", got)
	}
}

// TestToolsThatReadTranscriptsReturnTextFromOutside checks that a turn which has read them asks
// before a tool acts: transcripts contain what webhooks and other people wrote.
func TestToolsThatReadTranscriptsReturnTextFromOutside(t *testing.T) {
	t.Parallel()
	for call, want := range map[chat.ToolCall]bool{
		{Name: "history_search", Args: `{"query":"ada"}`}:                             true,
		{Name: "sessions", Args: `{"action":"history","session":"agent:main:ann-2"}`}: true,
		{Name: "sessions", Args: `{"action":"send","session":"agent:main:bob-2"}`}:    false,
		{Name: "remind", Args: `{"when":"in 5h","text":"a tea"}`}:                     false,
		{Name: "spawn", Args: `{"task":"read","wait":true}`}:                          false,
		{Name: "delegate", Args: `{"agent":"coder","task":"read what others wrote"}`}: true,
	} {
		one := turn()
		one.Tasks = colleagues{"coder"}
		if call.Name == "delegate" {
			one.Tasks = reading{colleagues{"coder"}}
		}
		if got := (&services{}).call(one, call.Name, call.Args); got.Foreign != want {
			t.Errorf("%s %s: got %+v, want foreign %t", call.Name, call.Args, got, want)
		}
	}
	if got := (&services{}).call(turn(), "fly", "{}"); got.Foreign {
		t.Errorf("a tool that does not exist: got %+v, want no text from outside", got)
	}
}

// TestNoQuestionIsAskedAboutACallThatWouldFail checks that wrong arguments are an error for the
// model, for tools of the gateway and of other servers.
func TestNoQuestionIsAskedAboutACallThatWouldFail(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","additionalProperties":false,"required":["to"],"properties":{"to":{"type":"string"},"n":{"type":"integer","maximum":5}}}`
	for _, tt := range []struct{ name, args, want string }{
		{"remind", `{"when":"when pigs fly","text":"tea"}`, "is not understood"},
		{"remind", `{"when":"every 30m","text":"tea"}`, "use the tool cron for what repeats"},
		{"remind", `{"when":"in 2h"}`, "text must not be blank"},
		{"remind", `{"when":"in 2h","text":"tea","color":"red"}`, `there is no argument "color"`},
		{"remind", `tea`, "the arguments are not a JSON object"},
		{"cron", `{"action":"fly"}`, `there is no action "fly"`},
		{"cron", `{"action":"add","when":"every 30m"}`, "text must not be blank"},
		{"cron", `{"action":"add","when":"never","text":"x"}`, "is not understood"},
		{"cron", `{"action":"update","id":"j1"}`, "needs when, text or both"},
		{"cron", `{"action":"update","text":"x"}`, "needs the id of a job"},
		{"cron", `{"action":"pause"}`, "needs the id of a job"},
		{"cron", `{"action":"remove","id":"absent"}`, "no such job"},
		{"message", `{"text":" "}`, "text must not be blank"},
		{"message", `{"text":"x","session":"agent:main:bob-1"}`, "there is no session agent:main:bob-1"},
		{"message", `{"text":"x","session":"agent:main:annex:group:5"}`, "cannot be reached"},
		{"sessions", `{"action":"send","session":"agent:main:ann-2"}`, "text must not be blank"},
		{"sessions", `{"action":"send","session":"agent:main:bob-1","text":"x"}`, "there is no session"},
		{"sessions", `{"action":"send","session":"agent:main:ann-1","text":"x"}`, "that is this session"},
		{"sessions", `{"action":"fly"}`, `there is no action "fly"`},
		{"mail", `{"n":3}`, "the arguments do not fit the schema of mail"},
		{"mail", `{"to":"bob","n":6}`, "the arguments do not fit the schema of mail"},
		{"mail", `{"to":"bob","cc":"eve"}`, "the arguments do not fit the schema of mail"},
		{"mail", `nothing`, "the arguments are not a JSON object"},
		{"mail", `{"to":"bob","n":3}`, ""},
		{"remind", `{"when":"in 2h","text":"tea"}`, ""},
	} {
		s, q := &services{}, &questions{}
		asking := turn()
		asking.Asks, asking.Servers = func() string { return "in a group" }, []string{"mail"}
		asking.Asked = tool.Person{Principal: "ann"}
		box := tool.New(tool.Deps{Jobs: s, Editor: s, Sessions: s, Questions: q, External: mailOf(schema)}).For(asking, nil)
		got := box.Call(t.Context(), "key/1", chat.ToolCall{ID: "a", Name: tt.name, Args: tt.args})
		if refused := tt.want != ""; got.IsError != refused || !strings.Contains(got.Text, tt.want) || len(q.asked) == 1 == refused {
			t.Errorf("%s %s: got %+v and %d questions, want %q", tt.name, tt.args, got, len(q.asked), tt.want)
		}
	}
}

// mailOf is a server with one tool that acts and has this schema.
type mailOf string

func (m mailOf) Tools([]string) []tool.Tool {
	return []tool.Tool{{
		Name: "mail", Schema: string(m), Askable: true, Acts: func([]byte) bool { return true },
		Run: func(context.Context, tool.Turn, string, []byte) (string, error) { return "sent", nil },
	}}
}

func (mailOf) Await(context.Context, []string) {}

func (mailOf) ServerOf(string) string { return "mail" }
