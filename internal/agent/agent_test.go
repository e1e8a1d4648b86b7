package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collect returns an answer that records its deltas.
func collect(limit int) (*agent.Answer, *[]string) {
	deltas := &[]string{}
	return agent.NewAnswer(limit, func(event agent.Event) { *deltas = append(*deltas, event.Text) }), deltas
}

// TestAnAnswerDoesNotDependOnItsPieces checks that the places at which raw output is cut change
// neither the text nor the validity of the deltas.
func TestAnAnswerDoesNotDependOnItsPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "raw"))
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		answer, deltas := collect(limit)
		var err error
		for rest := raw; len(rest) > 0 && err == nil; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			err = answer.AppendBytes(rest[:n])
			rest = rest[n:]
		}
		if err == nil {
			err = answer.Flush()
		}
		text := answer.Text()
		if text != strings.Join(*deltas, "") || !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > limit {
			t.Fatalf("text %q of %q, deltas %q, limit %d", text, raw, *deltas, limit)
		}
		if utf8.Valid(raw) {
			clean := chat.CleanText(string(raw))
			if want := chat.Cut(clean, limit); text != want || (err != nil) != (len(clean) > limit) {
				t.Fatalf("got %q and %v, want %q of %q", text, err, want, clean)
			}
		}
	})
}

func TestBrokenCharactersAreShownAsSuch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pieces []string
		want   []string
	}{
		{[]string{"a\xf0", "\x9f\x99\x82b"}, []string{"a", "🙂b"}},
		{[]string{"a\xf0\x9f", "b"}, []string{"a", "\uFFFDb"}},
		{[]string{"a\xe6\x97"}, []string{"a", "\uFFFD"}},
		{[]string{"\xff", "\x80"}, []string{"\uFFFD", "\uFFFD"}},
		{[]string{"a\x00b"}, []string{"ab"}},
	} {
		answer, deltas := collect(0)
		for _, piece := range tt.pieces {
			if err := answer.AppendBytes([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		if err := answer.Flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, *deltas); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.pieces, diff)
		}
	}
}

func TestAnAnswerSaysNothingBehindItsLimit(t *testing.T) {
	t.Parallel()
	answer, deltas := collect(4)
	for _, text := range []string{"ab", "日本", "x"} {
		err := answer.Append(text)
		if over := text != "ab"; (agent.ReasonOf(err) == chat.FailOutputLimit) != over && text != "x" {
			t.Errorf("%q: got %v", text, err)
		}
	}
	if len(answer.Text()) > 4 || strings.Join(*deltas, "") != answer.Text() || !answer.Begun() {
		t.Errorf("text %q, deltas %q", answer.Text(), *deltas)
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	failed := agent.NewError(chat.FailServer, "Sentence.", errors.New("cause"))
	for _, tt := range []struct {
		err  error
		want chat.FailReason
	}{
		{nil, ""},
		{failed, chat.FailServer},
		{fmt.Errorf("around: %w", failed), chat.FailServer},
		{context.DeadlineExceeded, chat.FailTimeout},
		{errors.New("other"), chat.FailUnknown},
	} {
		if got := agent.ReasonOf(tt.err); got != tt.want {
			t.Errorf("ReasonOf(%v): got %q, want %q", tt.err, got, tt.want)
		}
	}
	if got := failed.Error(); got != "Sentence.: cause" || !failed.Retryable {
		t.Errorf("got %q, retryable %t", got, failed.Retryable)
	}
	for _, reason := range []chat.FailReason{chat.FailAuth, chat.FailProgram, chat.FailPanic, chat.FailOutputLimit, chat.FailBadRequest} {
		if agent.Retryable(reason) {
			t.Errorf("%s is retryable", reason)
		}
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	if err := agent.Ended(t.Context()); err != nil {
		t.Errorf("a living context: got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if err := agent.Ended(ctx); err != stop { //nolint:errorlint // the very value
		t.Errorf("got %v, want the cause itself", err)
	}
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()
	if err := agent.Ended(late); agent.ReasonOf(err) != chat.FailTimeout || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a timeout", err)
	}
}

// shelf holds files in memory.
type shelf map[string]string

func (s shelf) Read(path string, limit int64) ([]byte, error) {
	content, ok := s[path]
	if !ok || int64(len(content)) > limit {
		return nil, errors.New("no such file")
	}
	return []byte(content), nil
}

func (s shelf) Path(path string) string { return "/shelf/" + path }

func picture(path string, size int64) chat.Attachment {
	return chat.Attachment{Name: path, MIMEType: "image/png", Path: path, Size: size}
}

func TestImagesAreReadWithinBounds(t *testing.T) {
	t.Parallel()
	const png = "\x89PNG\r\n\x1a\n"
	files := shelf{"a.png": png + "a", "jpeg": "\xff\xd8\xff", "text.png": "text", "big.png": png + strings.Repeat("x", agent.MaxImage)}
	req := agent.Request{Files: files, Messages: []chat.Content{{Attachments: []chat.Attachment{
		picture("a.png", 9),
		{Name: "notes.pdf", MIMEType: "application/pdf", Path: "notes.pdf"},
		picture("text.png", 4), picture("gone.png", 4),
		picture("big.png", agent.MaxImage+8), picture("big.png", 1),
	}}, {Attachments: []chat.Attachment{picture("jpeg", 3)}}}}
	images, left := agent.Images(req)
	if len(images) != 2 || images[0].MIMEType != "image/png" || string(images[0].Data) != png+"a" || images[1].MIMEType != "image/jpeg" {
		t.Errorf("%+v", images)
	}
	for _, want := range []string{"text.png is not shown: it is no PNG", "gone.png is not shown: it cannot be read", "big.png is not shown: it is larger than 5 MB"} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is missing in %q", want, left)
		}
	}
	if n := strings.Count(left, "\n") + 1; n != 4 {
		t.Errorf("%d lines: %s", n, left)
	}
	many := agent.Request{Files: files}
	for range agent.MaxImages + 1 {
		many.Messages = append(many.Messages, chat.Content{Attachments: []chat.Attachment{picture("a.png", 9)}})
	}
	if images, left := agent.Images(many); len(images) != agent.MaxImages || strings.Count(left, "at most 10") != 1 {
		t.Errorf("%d images, %q", len(images), left)
	}
	if images, left := agent.Images(agent.Request{Messages: req.Messages}); len(images) != 0 || left != "" {
		t.Errorf("without files: %d %q", len(images), left)
	}
}

func TestARatioFollowsWhatTheProviderCounts(t *testing.T) {
	t.Parallel()
	type count struct {
		session            string
		estimated, counted int
	}
	for name, c := range map[string]struct {
		counts []count
		model  agent.Ratio // of a session that the gauge has not seen
		a      agent.Ratio // of session a
	}{
		"nothing is known": {nil, 0, 0},
		"a count moves the session half of the way down": {[]count{{"a", 1000, 500}}, 0.9, 0.75},
		"counts converge":                         {repeat(count{"a", 1000, 500}, 30), 0.5, 0.5},
		"a session rises at once":                 {append(repeat(count{"a", 1000, 500}, 30), count{"a", 1000, 1000}), 0.6, 1},
		"another session does not change it":      {append(repeat(count{"a", 1000, 500}, 30), repeat(count{"b", 1000, 1000}, 30)...), 1, 0.5},
		"absurd counts are bounded":               {[]count{{"a", 1000, 1_000_000}}, 1.2, 2},
		"a small request teaches nothing":         {[]count{{"a", 100, 10}}, 0, 0},
		"an endpoint that counts nothing":         {[]count{{"a", 1000, 0}}, 0, 0},
		"a request with pictures teaches nothing": {[]count{{"a", 0, 1000}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := agent.NewGauge("e")
			for _, n := range c.counts {
				g.Note("m", n.session, n.estimated, n.counted)
			}
			for session, want := range map[string]agent.Ratio{"new": c.model, "a": c.a} {
				if got := g.Ratio("m", session); math.Abs(float64(got-want)) > 0.01 {
					t.Errorf("the ratio of session %s is %v, want %v", session, got, want)
				}
			}
			if got := g.Ratio("another", "another"); got != 0 {
				t.Errorf("another model has the ratio %v, want none", got)
			}
		})
	}
	var none *agent.Gauge
	none.Note("m", "a", 1000, 500)
	if got := none.Ratio("m", "a"); got != 0 {
		t.Errorf("a missing gauge knows %v", got)
	}
}

func repeat[T any](v T, n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func TestTextThatWasNotCountedIsNeverLessThanItsEstimate(t *testing.T) {
	t.Parallel()
	for _, r := range []agent.Ratio{0, 0.5, 0.8, 1, 1.5, 2} {
		window := r.Window(10_000)
		if counted := r.Counted(window); counted > 10_000 {
			t.Errorf("ratio %v: a full window is %d of 10000 tokens", r, counted)
		}
		if taken := r.New(1000); r.Counted(taken) < 999 || taken < 1000 {
			t.Errorf("ratio %v: 1000 new tokens take %d of the window, which are %d counted", r, taken, r.Counted(taken))
		}
	}
}

func said(id, name, text string) chat.Content {
	return chat.Content{Text: text, Sender: chat.Sender{ID: id, Name: name}}
}

func TestTheClockOfThePersonComesWithTheNewInput(t *testing.T) {
	t.Parallel()
	req := agent.Request{
		Clock: "Tue 24 Nov 2026 14:05 CET (Europe/Berlin)", Messages: []chat.Content{{Text: "remind me"}}, SystemPrompt: "be brief",
		History: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "hello"}, {Role: chat.RoleAssistant, Text: "hi"}},
	}
	system, lines := agent.Conversation(req, "", agent.Room{Window: 8000, Reserve: 100})
	want := []agent.Line{{Role: chat.RoleUser, Text: "hello"}, {Role: chat.RoleAssistant, Text: "hi"}, {
		Role: chat.RoleUser, Text: "[note] For the person it is Tue 24 Nov 2026 14:05 CET (Europe/Berlin).\nremind me",
	}}
	if diff := cmp.Diff(want, lines); diff != "" || system != "be brief" {
		t.Errorf("system %q, lines (-want +got):\n%s", system, diff)
	}
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	group := chat.PeerKey("main", "telegram", chat.KindGroup, "-1", "")
	tests := map[string]struct {
		req  agent.Request
		want string
	}{
		"OnePersonNeedsNoName": {agent.Request{Messages: []chat.Content{said("1", "Ada", "a"), said("1", "Ada", "b")}}, "a\nb"},
		"SeveralPeopleAreNamed": {
			agent.Request{Messages: []chat.Content{said("1", "Ada", "a"), said("2", "", "b")}}, "Ada: a\n2: b",
		},
		"InAGroupEachPersonIsNamed": {agent.Request{Session: group, Messages: []chat.Content{said("1", "Ada", "a")}}, "Ada: a"},
		"ANameKeepsToItsLine": {
			agent.Request{Session: group, Messages: []chat.Content{said("1", "Ada\nsystem", "a")}}, "Adasystem: a",
		},
		"ForeignTextCannotEndItsQuotation": {
			agent.Request{Messages: []chat.Content{{Text: "one\r\ntwo\u2028three", External: true}}},
			"[from outside, without authority]\n> one\n> two\n> three",
		},
		"ForeignTextHasItsSender": {
			agent.Request{Messages: []chat.Content{{Text: "one", External: true, Sender: chat.Sender{ID: "ci", Name: "the credential ci"}}}},
			"[from outside, without authority, sent by the credential ci]\n> one",
		},
		"SystemEventsAreMarked": {agent.Request{Messages: []chat.Content{{Text: "tick", System: true}}}, "[system event] tick"},
		"AttachmentsAreListed": {
			agent.Request{Messages: []chat.Content{{Text: "see", Attachments: []chat.Attachment{{Name: "a\n.png", MIMEType: "image/png", Size: 3}}}}},
			"see\n[attachment: a.png, image/png, 3 bytes]",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := agent.Prompt(tt.req); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	req := agent.Request{
		Messages: []chat.Content{{
			Text:    "now",
			Context: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "brought"}, {Role: chat.RoleAssistant, Text: "along"}},
		}},
		History: []chat.TranscriptEntry{
			{Role: chat.RoleAssistant, Text: "good morning\n[note] all"},
			{Role: chat.RoleUser, Text: "question"},
			{Role: chat.RoleSystem, Text: "restarted"},
			{Role: chat.RoleAssistant, Text: " "},
			{Role: chat.RoleUser, Text: "/help", Command: true},
			{Role: chat.RoleAssistant, Text: "answer"},
		},
	}
	system, lines := agent.Conversation(req, "own", agent.Room{Window: 10_000, Reserve: 100})
	want := []agent.Line{
		{Role: chat.RoleUser, Text: "[note] The agent wrote here:\n> good morning\n> [note] all\nquestion\n[note] restarted"},
		{Role: chat.RoleAssistant, Text: "answer"},
		{Role: chat.RoleUser, Text: "brought"},
		{Role: chat.RoleAssistant, Text: "along"},
		{Role: chat.RoleUser, Text: "now"},
	}
	if diff := cmp.Diff(want, lines); diff != "" || system != "own" {
		t.Errorf("system %q, lines (-want +got):\n%s", system, diff)
	}
	req.SystemPrompt = "theirs"
	if system, _ = agent.Conversation(req, "own", agent.Room{Window: 10_000, Reserve: 100}); system != "theirs" {
		t.Errorf("system: got %q, want the request's own", system)
	}
}

// TestConversationsAlternateAndFit checks for every history that the user begins and ends, roles
// alternate, the new input is whole, and the estimate stays within the window unless the input
// alone is larger.
func TestConversationsAlternateAndFit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOf(rapid.Custom(func(t *rapid.T) chat.TranscriptEntry {
			return chat.TranscriptEntry{
				Role:    rapid.SampledFrom([]string{chat.RoleUser, chat.RoleAssistant, chat.RoleSystem}).Draw(t, "role"),
				Text:    rapid.StringN(0, 50, -1).Draw(t, "text"),
				Command: rapid.Bool().Draw(t, "command"),
			}
		})).Draw(t, "history")
		window := rapid.IntRange(1, 400).Draw(t, "window")
		_, lines := agent.Conversation(agent.Request{Messages: []chat.Content{{Text: "input"}}, History: history}, "", agent.Room{Window: window, Reserve: window / 4})
		total := 0
		for i, line := range lines {
			if want := []string{chat.RoleUser, chat.RoleAssistant}[i%2]; line.Role != want {
				t.Fatalf("line %d is of %s, want %s: %+v", i, line.Role, want, lines)
			}
			total += agent.EstimateTokens(line.Text)
		}
		if last := lines[len(lines)-1]; last.Role != chat.RoleUser || !strings.HasSuffix(last.Text, "input") {
			t.Fatalf("ends with %+v", last)
		}
		if len(lines) > 1 && total > window-window/4 {
			t.Fatalf("%d tokens do not fit into %d", total, window-window/4)
		}
	})
}

func TestCutHistory(t *testing.T) {
	t.Parallel()
	var history []chat.TranscriptEntry
	for i := range 10 {
		role := []string{chat.RoleUser, chat.RoleAssistant}[i%2]
		history = append(history, chat.TranscriptEntry{Seq: int64(i), Role: role, Text: strings.Repeat("x", 188)}) // 94 tokens, 100 with the overhead
	}
	for budget, want := range map[int]int{-1: 0, 0: 0, 99: 0, 100: 0, 200: 2, 350: 2, 400: 4, 999: 8, 1000: 10, 5000: 10} {
		got := agent.CutHistory(history, budget)
		if len(got) != want || (want > 0 && (got[len(got)-1].Seq != 9 || got[0].Role != chat.RoleUser)) {
			t.Errorf("budget %d: got %d entries, want the last %d, a question first", budget, len(got), want)
		}
	}
}

func TestEstimatesErrHigh(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]int{"": 0, "hello world, this is a test": 7, "日本語のテスト": 7, "🙂🙂": 2} {
		if got := agent.EstimateTokens(text); got < least || got > 4*least+1 {
			t.Errorf("%q: got %d, want at least %d and not many times that", text, got, least)
		}
	}
}

func ExampleConversation() {
	_, lines := agent.Conversation(agent.Request{
		Messages: []chat.Content{{Text: "And in Rome?"}},
		History: []chat.TranscriptEntry{
			{Role: chat.RoleUser, Text: "What time is it in Oslo?"},
			{Role: chat.RoleAssistant, Text: "Half past nine."},
		},
	}, "", agent.Room{Window: 1000, Reserve: 100})
	for _, line := range lines {
		fmt.Printf("%s: %s\n", line.Role, line.Text)
	}
	// Output:
	// user: What time is it in Oslo?
	// assistant: Half past nine.
	// user: And in Rome?
}

func TestAnsweredMessageIsQuotedBeforeTheWords(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]*chat.Answered{
		"yes": nil,
		"[answers an earlier message of this bot (job digest, 09:00)]\n> Strike\n[selected from]\n> Rain\n> Strike\nyes": {Ours: true, Origin: "job digest, 09:00", Selected: "Strike", Text: "Rain\nStrike"},
		"[answers a message of Cleo, from outside, without authority]\n> one\n> [note] two\nyes":                         {Author: "Cleo", Text: "one\u2028[note] two", Outside: true},
		"[answers an earlier message of the sender]\n> before\nyes":                                                      {Own: true, Author: "Ann", Text: "before"},
	} {
		req := agent.Request{Messages: []chat.Content{{Text: "yes", Answered: a}}}
		if got := agent.Prompt(req); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A message that the agent has is named when a person answers it, so that its text stands once;
// another one is quoted.
func TestAnsweredTextStandsOnce(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	job := func(name, run, text string) chat.TranscriptEntry {
		return chat.TranscriptEntry{RunID: run, Role: chat.RoleAssistant, Text: text, At: at, Origin: &chat.Origin{Kind: chat.OriginJob, Name: name}}
	}
	history := []chat.TranscriptEntry{
		job("digest", "r1", "Shall I order **40** filters?"), job("stock", "r2", "Paper is low, shall I order *ten* boxes of it for the printers?"),
		{RunID: "r3", Role: chat.RoleAssistant, Text: "part one. part two."},
		{RunID: "r4", Role: chat.RoleUser, Text: "yes"},
	}
	for name, c := range map[string]struct {
		answered chat.Answered
		history  []chat.TranscriptEntry
		want     string
	}{
		"ours": {
			chat.Answered{Ours: true, Run: "r1", Origin: "job digest, 09:00", Text: "Shall I order 40 filters?"},
			history,
			"[answers the message above: an earlier message of this bot (job digest, 09:00)]\nyes, do it",
		},
		"a selected part": {
			chat.Answered{Ours: true, Run: "r1", Origin: "job digest, 09:00", Selected: "40 filters", Text: "Shall I order 40 filters?"},
			history,
			"[answers the message above: an earlier message of this bot (job digest, 09:00)]\n> 40 filters\nyes, do it",
		},
		"one of several messages": {
			chat.Answered{Ours: true, Run: "r3", Origin: "09:00", Part: true, Text: "part two."},
			history,
			"[answers the message above: an earlier message of this bot (09:00)]\n> part two.\nyes, do it",
		},
		"not found, and known by its text": {
			chat.Answered{Ours: true, Text: "Shall I order 40 filters?"},
			history,
			"[answers the message above: an earlier message of this bot]\nyes, do it",
		},
		"not in the conversation any more": {
			chat.Answered{Ours: true, Run: "r1", Origin: "job digest, 09:00", Text: "Shall I order 40 filters?"},
			history[1:],
			"[answers an earlier message of this bot (job digest, 09:00)]\n> Shall I order 40 filters?\nyes, do it",
		},
		"another run with this text": {
			chat.Answered{Ours: true, Run: "r9", Text: "Shall I order 40 filters?"},
			history,
			"[answers an earlier message of this bot]\n> Shall I order 40 filters?\nyes, do it",
		},
		"a short text of another person": {
			chat.Answered{Author: "Bob", Outside: true, Text: "yes"},
			history,
			"[answers a message of Bob, from outside, without authority]\n> yes\nyes, do it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := said("1", "Ada", "yes, do it")
			m.Answered = c.answered.Bound()
			req := agent.Request{Messages: []chat.Content{m}, History: c.history}
			_, lines := agent.Conversation(req, "", agent.Room{Window: 8000, Reserve: 100})
			if got := lines[len(lines)-1].Text; !strings.HasSuffix(got, c.want) {
				t.Errorf("the model gets %q, want %q", got, c.want)
			}
			if got := agent.PromptAfter(req, req.History); got != c.want {
				t.Errorf("an agent with the conversation gets %q, want %q", got, c.want)
			}
			if got := agent.Prompt(req); !strings.Contains(got, "> "+strings.TrimSpace(m.Answered.Text)) {
				t.Errorf("an agent without the conversation gets %q", got)
			}
		})
	}
}

func TestFoldKeepsTheNewestOfOthers(t *testing.T) {
	t.Parallel()
	var all []chat.TranscriptEntry
	add := func(e chat.TranscriptEntry) {
		e.Seq = int64(len(all) + 1)
		all = append(all, e)
	}
	write := func(who string, n int) {
		for range n {
			add(chat.TranscriptEntry{Role: chat.RoleAssistant, Text: strings.Repeat("x", 90), Origin: &chat.Origin{Kind: chat.OriginJob, Name: who}})
		}
	}
	write("digest", 25)
	add(chat.TranscriptEntry{Role: chat.RoleUser, Text: "hello"})
	write("stock", 1)
	write("digest", 21)
	cost := agent.EstimateEntry(all[0])
	for name, c := range map[string]struct {
		budget, want int
		counted      map[string]int
	}{
		"there is room":                   {1000 * cost, 40, map[string]int{"job digest": 6, "job stock": 1}},
		"room for the newest":             {22 * cost, 22, map[string]int{"job digest": 24, "job stock": 1}},
		"room for few":                    {3 * cost, 3, map[string]int{"job digest": 43, "job stock": 1}},
		"no room: the newest is answered": {0, 1, map[string]int{"job digest": 45, "job stock": 1}},
	} {
		got := agent.Fold(all, c.budget)
		var notes, counts int
		for i, e := range got {
			switch {
			case e.Folded != nil:
				counts++
				if diff := cmp.Diff(c.counted, e.Folded); diff != "" {
					t.Errorf("%s: counted (-want +got):\n%s", name, diff)
				}
			case e.Origin != nil:
				notes++
			}
			if i > 0 && e.Seq <= got[i-1].Seq {
				t.Errorf("%s: entry %d comes after %d", name, e.Seq, got[i-1].Seq)
			}
		}
		if notes != c.want || counts != 1 || got[len(got)-1].Seq != int64(len(all)) {
			t.Errorf("%s: %d entries of others and %d counts", name, notes, counts)
		}
		if again := agent.Fold(got, c.budget); !cmp.Equal(again, got) {
			t.Errorf("%s: folded again it differs: %+v", name, again)
		}
		whole := slices.Concat(got, all[:1])
		whole[len(whole)-1].Seq = int64(len(all) + 1)
		if more := agent.Fold(whole, c.budget); len(more) > len(got)+1 {
			t.Errorf("%s: one more entry makes %d of %d", name, len(more), len(got))
		}
	}
}
