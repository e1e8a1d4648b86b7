package toolloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/agent/internal/toolloop"
	"laneway/internal/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model answers the first request with calls and later ones with text.
type model struct {
	text  *toolloop.Text
	calls []chat.ToolCall
	extra string
	asked []toolloop.Conversation
}

func (m *model) Ask(_ context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	m.asked = append(m.asked, talk)
	reply := toolloop.Reply{StopReason: agent.StopNormal, Usage: chat.Usage{InputTokens: 1, OutputTokens: 1}}
	if len(talk.Rounds) == 0 && len(talk.Tools) > 0 {
		reply.Calls, reply.Extra = m.calls, []byte(m.extra)
		return reply, nil
	}
	return reply, m.text.Append("done")
}

// tools is a toolbox of one tool and a journal that keeps results.
type tools struct {
	run     func(ctx context.Context) chat.ToolResult
	results []chat.ToolResult
	fenced  error
	// recording is called with each result; may be nil.
	recording func()
	// waits marks the tool as one that waits for another turn.
	waits bool
}

func (b *tools) Specs() []agent.ToolSpec {
	return []agent.ToolSpec{{Name: "set", Schema: []byte(`{"type":"object"}`), Idempotent: true, Waits: b.waits}}
}

func (b *tools) Call(ctx context.Context, _ string, _ chat.ToolCall) chat.ToolResult {
	return b.run(ctx)
}

func (b *tools) Rounds() []agent.Round                    { return nil }
func (b *tools) Record(context.Context, chat.Round) error { return nil }
func (b *tools) RecordResult(_ context.Context, _, _ int, result chat.ToolResult) error {
	b.results = append(b.results, result)
	if b.recording != nil {
		b.recording()
	}
	return b.fenced
}

func turn(ctx context.Context, m *model, b *tools) (agent.Result, error) {
	if m.calls == nil {
		m.calls = []chat.ToolCall{{ID: "a", Name: "set", Args: "{}"}}
	}
	return turnWith(ctx, m, b, b)
}

// turnWith runs a turn whose toolbox is not its journal.
func turnWith(ctx context.Context, m *model, box agent.Toolbox, j agent.Journal) (agent.Result, error) {
	m.text = toolloop.NewText(0, func(agent.Event) {})
	return toolloop.Run(ctx, agent.Request{Tools: box, Journal: j}, m, m.text, toolloop.Options{})
}

func TestATurnGoesOnWithoutAToolThatHangs(t *testing.T) {
	t.Parallel()
	for name, listens := range map[string]bool{"AndListens": true, "AndDoesNotListen": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				b := &tools{run: func(ctx context.Context) chat.ToolResult {
					if listens {
						<-ctx.Done()
						return chat.ToolResult{Text: "stopped by its time", IsError: true}
					}
					time.Sleep(5 * time.Minute)
					return chat.ToolResult{Text: "too late"}
				}}
				m := &model{}
				result, err := turn(t.Context(), m, b)
				if err != nil || result.Text != "done" || len(b.results) != 1 || !b.results[0].IsError {
					t.Fatalf("got %q, %v and results %+v, want the answer and one error", result.Text, err, b.results)
				}
				if !listens && !strings.Contains(b.results[0].Text, "did not answer within 1m0s") {
					t.Errorf("sentence: got %q", b.results[0].Text)
				}
				if took := time.Since(start); listens && took != toolloop.DefaultCallTime {
					t.Errorf("the turn took %s, want the time of one call", took)
				}
			})
		})
	}
}

func TestCallsOfClientToolsEndTheTurn(t *testing.T) {
	t.Parallel()
	ask := func(client chat.ClientTools) (agent.Result, *model) {
		m := &model{calls: []chat.ToolCall{{Name: "weather", Args: `{"city":"Oslo"}`}, {Name: "weather", Args: "{}"}}}
		m.text = toolloop.NewText(0, func(agent.Event) {})
		result, err := toolloop.Run(t.Context(), agent.Request{Client: &client}, m, m.text, toolloop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return result, m
	}
	tools := []chat.ClientTool{{Name: "weather", Schema: []byte(`{"type":"object"}`)}}
	result, m := ask(chat.ClientTools{Tools: tools})
	if want := []chat.ToolCall{{ID: "call01001", Name: "weather", Args: `{"city":"Oslo"}`}, {ID: "call01002", Name: "weather", Args: "{}"}}; result.StopReason != chat.StopCalls || !slices.Equal(result.Calls, want) {
		t.Errorf("got %s with %+v, want %+v", result.StopReason, result.Calls, want)
	}
	if len(m.asked) != 1 || m.asked[0].NoCalls || len(m.asked[0].Tools) != 1 || m.asked[0].Tools[0].Name != "weather" {
		t.Errorf("asked %+v", m.asked)
	}
	if one, m := ask(chat.ClientTools{Tools: tools, OneCall: true}); len(one.Calls) != 1 || one.Calls[0] != result.Calls[0] || !m.asked[0].OneCall {
		t.Errorf("one call at once: got %+v, asked %+v", one.Calls, m.asked)
	}
	round := chat.Round{Number: 1, Text: "I look.", Calls: result.Calls[:1], Results: []*chat.ToolResult{{Text: "rain", Foreign: true}}}
	result, m = ask(chat.ClientTools{Tools: tools, Rounds: []chat.Round{round}})
	if result.Text != "done" || result.StopReason != agent.StopNormal || len(result.Calls) != 0 || len(m.asked[0].Rounds) != 1 || m.asked[0].Rounds[0].Results[0].Text != "rain" {
		t.Errorf("with results: %+v, asked %+v", result, m.asked)
	}
	if result, m = ask(chat.ClientTools{Rounds: []chat.Round{round}}); result.Text != "done" || !m.asked[0].NoCalls {
		t.Errorf("without tools: %+v, asked %+v", result, m.asked)
	}
}

func TestResultsAreBounded(t *testing.T) {
	t.Parallel()
	b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: strings.Repeat("x", 50<<20)} }}
	result, err := turn(t.Context(), &model{}, b)
	if err != nil || result.Text != "done" || b.results[0].Text != "The result has 52428800 bytes; the limit is 65536. Ask for less." {
		t.Errorf("got %v and %.100q, want one sentence", err, b.results[0].Text)
	}
	large := strings.Repeat("x", toolloop.MaxResult)
	b = &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: large} }}
	m := &model{extra: `"` + strings.Repeat("y", toolloop.MaxJournal-3*toolloop.MaxResult) + `"`}
	for i := range 5 {
		m.calls = append(m.calls, chat.ToolCall{ID: string(rune('a' + i)), Name: "set", Args: "{}"})
	}
	if _, err = turn(t.Context(), m, b); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, r := range b.results {
		total += len(r.Text)
	}
	if refused := b.results[4]; !refused.IsError || total > 4*toolloop.MaxResult {
		t.Errorf("got %d bytes of results, the last %.80q, want the rest of the turn's bytes and a sentence", total, refused.Text)
	}
}

func TestLongArgumentsAreNotPassedOn(t *testing.T) {
	t.Parallel()
	b := &tools{run: func(context.Context) chat.ToolResult { t.Error("the call was made"); return chat.ToolResult{} }}
	m := &model{calls: []chat.ToolCall{{ID: "a", Name: "set", Args: `{"x":"` + strings.Repeat("ü", toolloop.MaxArgs) + `"}`}}}
	if _, err := turn(t.Context(), m, b); err != nil || !strings.Contains(b.results[0].Text, "more than 32768 bytes") {
		t.Errorf("got %v and %+v, want one sentence", err, b.results)
	}
	if args := m.asked[1].Rounds[0].Calls[0].Args; len(args) > toolloop.MaxArgs+8 {
		t.Errorf("%d bytes of arguments were kept", len(args))
	}
}

// TestCallsOfARoundRunSideBySide checks that calls of an answer run concurrently, up to the bound.
func TestCallsOfARoundRunSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		b := &tools{run: func(context.Context) chat.ToolResult {
			n := running.Add(1)
			defer running.Add(-1)
			time.Sleep(time.Second)
			if most.Load() < n {
				most.Store(n)
			}
			return chat.ToolResult{Text: "ok"}
		}}
		m := &model{}
		for i := range 10 {
			m.calls = append(m.calls, chat.ToolCall{ID: strconv.Itoa(i), Name: "set", Args: "{}"})
		}
		start := time.Now()
		if _, err := turn(t.Context(), m, b); err != nil || len(b.results) != 10 {
			t.Fatalf("got %v and %d results", err, len(b.results))
		}
		if took := time.Since(start); most.Load() != 4 || took != 3*time.Second {
			t.Errorf("%d calls at once, ten of a second took %s; want 4 at once, three seconds", most.Load(), took)
		}
	})
}

func TestCallsThatDoNotFitAreRefusedAndTheOthersRun(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	b := &tools{run: func(context.Context) chat.ToolResult { made.Add(1); return chat.ToolResult{Text: "ok"} }}
	m := &model{}
	for i := range 40 {
		m.calls = append(m.calls, chat.ToolCall{ID: strconv.Itoa(i), Name: "set", Args: "{}"})
	}
	result, err := turn(t.Context(), m, b)
	if err != nil || result.Text != "done" || made.Load() != toolloop.MaxCalls {
		t.Fatalf("got %q, %v after %d calls, want an answer after %d", result.Text, err, made.Load(), toolloop.MaxCalls)
	}
	for i, given := range m.asked[1].Rounds[0].Results {
		want := chat.ToolResult{Text: "ok"}
		if i >= toolloop.MaxCalls {
			want = chat.ToolResult{Text: "This call was not made: only the first 32 calls of an answer are. Ask for it again if you need it.", IsError: true}
		}
		if *given != want {
			t.Errorf("result %d: got %+v, want %+v", i, *given, want)
		}
	}
}

func TestCallsWithoutEndEndTheTurn(t *testing.T) {
	t.Parallel()
	b := &tools{run: func(context.Context) chat.ToolResult { t.Error("a call was made"); return chat.ToolResult{} }}
	m := &model{calls: make([]chat.ToolCall, 257)}
	if _, err := turn(t.Context(), m, b); agent.ReasonOf(err) != chat.FailBadResponse {
		t.Errorf("got %v, want %s", err, chat.FailBadResponse)
	}
}

// TestCallsAreToldApart adds events, each a list of pieces, as endpoints send them.
func TestCallsAreToldApart(t *testing.T) {
	t.Parallel()
	type p = toolloop.Piece
	const all = `{"n":1}`
	one := []string{"set " + all}
	two := []string{"set " + all, "get " + all}
	same := []string{"set " + all, "set " + all}
	for name, tt := range map[string]struct {
		events [][]p
		want   []string
	}{
		"Whole":                    {[][]p{{{0, "a", "set", "", nil}}, {{0, "", "", `{"n"`, nil}}, {{0, "", "", ":1}", nil}}}, one},
		"NameInPieces":             {[][]p{{{0, "a", "s", "", nil}}, {{0, "a", "et", `{"n"`, nil}}, {{0, "", "", ":1}", nil}}}, one},
		"NameRepeated":             {[][]p{{{0, "a", "set", `{"n"`, nil}}, {{0, "a", "set", ":1}", nil}}}, one},
		"NameRepeatedAtTheEnd":     {[][]p{{{0, "a", "set", all, nil}}, {{0, "a", "set", "", nil}}}, one},
		"SentOnceMore":             {[][]p{{{0, "a", "set", all, nil}}, {{0, "a", "set", all, nil}}}, one},
		"WithoutIndexInPieces":     {[][]p{{{-1, "a", "set", `{"n"`, nil}}, {{-1, "", "", ":1}", nil}}}, one},
		"TwoWithIndex":             {[][]p{{{0, "a", "set", all, nil}}, {{1, "b", "get", all, nil}}}, two},
		"TwoWithTheSameID":         {[][]p{{{0, "a", "set", all, nil}}, {{1, "a", "get", all, nil}}}, two},
		"TwoWithOneIndex":          {[][]p{{{0, "a", "set", all, nil}}, {{0, "b", "get", all, nil}}}, two},
		"TwoMixedUp":               {[][]p{{{0, "a", "set", "", nil}, {1, "b", "get", "", nil}}, {{1, "", "", all, nil}, {0, "", "", all, nil}}}, two},
		"OneEventNoIndexNoID":      {[][]p{{{-1, "", "set", all, nil}, {-1, "", "get", all, nil}}}, two},
		"OneEventOneIndexNoID":     {[][]p{{{0, "", "set", all, nil}, {0, "", "get", all, nil}}}, two},
		"OneEventOneIDTwice":       {[][]p{{{-1, "x", "set", all, nil}, {-1, "x", "set", all, nil}}}, same},
		"TwoEventsOneToolNoIndex":  {[][]p{{{-1, "", "set", all, nil}}, {{-1, "", "set", all, nil}}}, same},
		"TwoEventsOneToolOneIndex": {[][]p{{{0, "", "set", all, nil}}, {{0, "", "set", all, nil}}}, same},
		"TwoInPiecesByPlace":       {[][]p{{{-1, "", "set", "", nil}, {-1, "", "get", "", nil}}, {{-1, "", "", all, nil}, {-1, "", "", all, nil}}}, two},
		"NoArgumentsOneIndex":      {[][]p{{{0, "", "set", "", nil}}, {{0, "", "get", "", nil}}}, []string{"set ", "get "}},
		"NullArguments":            {[][]p{{{0, "a", "set", "null", nil}}}, []string{"set "}},
		"StringWithinTheString":    {[][]p{{{0, "a", "set", `"{\"n\":1}"`, nil}}}, one},
		"NeitherNameNorArguments":  {[][]p{{{0, "a", "set", all, nil}}, {{1, "", "", "", nil}}}, one},
		"ArgumentsOfNoCallAtAll":   {[][]p{{{3, "", "", all, nil}}}, nil},
		"ManyPiecesWithOneIDOnly":  {[][]p{{{-1, "a", "set", `{`, nil}}, {{-1, "a", "", `"n"`, nil}}, {{-1, "a", "", `:1}`, nil}}}, one},
		"TwoInterleavedByTheirIDs": {[][]p{{{-1, "a", "set", `{"n"`, nil}}, {{-1, "b", "get", `{"n"`, nil}}, {{-1, "a", "", ":1}", nil}}, {{-1, "b", "", ":1}", nil}}}, two},
	} {
		var calls toolloop.Calls
		calls.Offer("set")
		calls.Offer("get")
		for _, event := range tt.events {
			calls.Add(event, nil)
		}
		var got []string
		for _, call := range calls.List() {
			got = append(got, call.Name+" "+call.Args)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// stubborn calls a tool in each answer, even when calls are forbidden, until no tool is offered.
type stubborn struct {
	text  *toolloop.Text
	asked []toolloop.Conversation
	// says is the text of the answer that must not have calls.
	says string
}

func (m *stubborn) Ask(_ context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	m.asked = append(m.asked, talk)
	reply := toolloop.Reply{StopReason: agent.StopNormal}
	switch {
	case len(talk.Tools) == 0:
		return reply, m.text.Append("done")
	case talk.NoCalls && m.says != "":
		reply.Calls = []chat.ToolCall{{Name: "set"}}
		return reply, m.text.Append(m.says)
	}
	reply.Calls = []chat.ToolCall{{Name: "set", Args: "{}"}}
	return reply, nil
}

func TestAfterTheLastRoundTheModelIsAskedOnceWithoutTools(t *testing.T) {
	t.Parallel()
	for says, requests := range map[string]int{"": toolloop.MaxRounds + 1, "enough": toolloop.MaxRounds} {
		b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: "found it"} }}
		m := &stubborn{text: toolloop.NewText(0, func(agent.Event) {}), says: says}
		result, err := toolloop.Run(t.Context(), agent.Request{Tools: b, Journal: b}, m, m.text, toolloop.Options{})
		want := "done"
		if says != "" {
			want = says
		}
		if err != nil || result.Text != want || len(m.asked) != requests {
			t.Errorf("got %q, %v after %d requests, want %q after %d", result.Text, err, len(m.asked), want, requests)
		}
		if last := m.asked[len(m.asked)-1]; says == "" && (len(last.Rounds) != 1 || strings.Count(last.Rounds[0].Input[0].Text, "set {}: found it") != toolloop.MaxRounds-1) {
			t.Errorf("the last request has %+v, want the results of all rounds", last.Rounds)
		}
	}
}

// TestNothingIsRecordedOfAStoppedTurn checks that the error of a stopped tool call is not recorded
// as its result: the next attempt repeats the call.
func TestNothingIsRecordedOfAStoppedTurn(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("stopped")
			first := make(chan struct{}, 1)
			first <- struct{}{}
			b := &tools{run: func(ctx context.Context) chat.ToolResult {
				select {
				case <-first:
					return chat.ToolResult{Text: "ok"}
				case <-ctx.Done():
					return chat.ToolResult{Text: "cancelled", IsError: true}
				}
			}}
			b.recording = func() { // the second call returns while the first result is recorded
				cancel(stop)
				synctest.Wait()
			}
			m := &model{calls: []chat.ToolCall{{ID: "a", Name: "set"}, {ID: "b", Name: "set"}}}
			if _, err := turn(ctx, m, b); !errors.Is(err, stop) || len(b.results) != 1 {
				t.Errorf("got %v and %+v, want the cause and one result", err, b.results)
			}
		})
	}
}

func TestALostJournalEndsTheTurn(t *testing.T) {
	t.Parallel()
	fenced := errors.New("fenced")
	b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: "x"} }, fenced: fenced}
	m := &model{}
	if _, err := turn(t.Context(), m, b); !errors.Is(err, fenced) || len(m.asked) != 1 {
		t.Errorf("got %v after %d questions, want the error of the journal", err, len(m.asked))
	}
}

// TestCallsThatWaitForTurnsHaveTheTimeOfTheirOwn makes more calls that wait than run at once, for
// longer than a call may take.
func TestCallsThatWaitForTurnsHaveTheTimeOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &tools{waits: true, run: func(context.Context) chat.ToolResult {
			time.Sleep(time.Hour)
			return chat.ToolResult{Text: "the answer"}
		}}
		m := &model{}
		for range 8 {
			m.calls = append(m.calls, chat.ToolCall{Name: "set", Args: "{}"})
		}
		result, err := turn(t.Context(), m, b)
		if err != nil || result.Text != "done" || len(b.results) != 8 || b.results[7].Text != "the answer" {
			t.Fatalf("got %q, %v and results %+v, want the answer and eight results", result.Text, err, b.results)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("the turn took %s, want the time of one wait: they wait side by side", took)
		}
	})
}

// sending is a toolbox whose calls take the time in their arguments. Calls of "send" run in order,
// calls of "read" concurrently.
type sending struct {
	tools

	mu    sync.Mutex
	ended []string // ids of the calls
}

func (s *sending) Specs() []agent.ToolSpec {
	schema := []byte(`{"type":"object"}`)
	return []agent.ToolSpec{{Name: "send", Schema: schema, InOrder: true}, {Name: "read", Schema: schema}}
}

func (s *sending) Call(_ context.Context, _ string, call chat.ToolCall) chat.ToolResult {
	took, err := time.ParseDuration(call.Args[len(`{"for":"`) : len(call.Args)-len(`"}`)])
	if err != nil {
		return chat.ToolResult{Text: err.Error(), IsError: true}
	}
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, call.ID)
	return chat.ToolResult{Text: "sent"}
}

// TestCallsThatSendRunInTheOrderOfTheAnswer lets a model request sends that would overtake each
// other, between reads.
func TestCallsThatSendRunInTheOrderOfTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		box := &sending{}
		m := &model{calls: []chat.ToolCall{
			{ID: "send 1", Name: "send", Args: `{"for":"5s"}`},
			{ID: "read 1", Name: "read", Args: `{"for":"1s"}`},
			{ID: "send 2", Name: "send", Args: `{"for":"3s"}`},
			{ID: "send 3", Name: "send", Args: `{"for":"2ms"}`},
			{ID: "read 2", Name: "read", Args: `{"for":"2s"}`},
		}}
		begin := time.Now()
		if _, err := turnWith(t.Context(), m, box, &box.tools); err != nil {
			t.Fatal(err)
		}
		if want := []string{"read 1", "read 2", "send 1", "send 2", "send 3"}; !slices.Equal(box.ended, want) {
			t.Errorf("the calls ended as %q, want %q", box.ended, want)
		}
		if took := time.Since(begin); took != 8*time.Second+2*time.Millisecond {
			t.Errorf("the round took %s, want the sum of its sends", took)
		}
	})
}

// reader calls a tool in each of its first rounds, then reads what was left out of the first
// result, then answers.
type reader struct {
	text   *toolloop.Text
	rounds int
	most   int // tokens of the largest conversation
	read   string
}

func (m *reader) Ask(_ context.Context, talk toolloop.Conversation) (toolloop.Reply, error) {
	m.most = max(m.most, talk.Tokens())
	reply := toolloop.Reply{StopReason: agent.StopNormal}
	switch n := len(talk.Rounds); {
	case n < m.rounds:
		reply.Calls = []chat.ToolCall{{ID: fmt.Sprint("a", n), Name: "set", Args: "{}"}, {ID: fmt.Sprint("b", n), Name: "set", Args: `{"text":"` + strings.Repeat("z", 9_000) + `"}`}}
	case n == m.rounds:
		if last := talk.Tools[len(talk.Tools)-1].Name; last != "result" {
			return reply, fmt.Errorf("the last tool is %q", last)
		}
		reply.Calls = []chat.ToolCall{{ID: "r", Name: "result", Args: `{"call":"1.2","from":30000}`}}
	default:
		m.read = talk.Rounds[n-1].Results[0].Text
		return reply, m.text.Append("done")
	}
	return reply, nil
}

// The arguments of the calls are long too, as when a model writes files.
func TestResultsThatDoNotFitAreCutAndCanBeRead(t *testing.T) {
	t.Parallel()
	for _, window := range []int{2_000, 14_000, 100_000} {
		t.Run(strconv.Itoa(window), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				long := strings.Repeat("x", 30_000) + "continued at 30k" + strings.Repeat("y", 20_000)
				b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: long} }}
				m := &reader{rounds: 12}
				m.text = toolloop.NewText(1<<20, func(agent.Event) {})
				req := agent.Request{Tools: b, Journal: b, IdempotencyKey: "run"}
				result, err := toolloop.Run(t.Context(), req, m, m.text, toolloop.Options{Window: func() (int, agent.Ratio) { return window, 1 }})
				if err != nil || result.Text != "done" {
					t.Fatalf("the turn ended with %q, %v; want an answer", result.Text, err)
				}
				if m.most > window {
					t.Errorf("the model was given %d tokens in a window of %d", m.most, window)
				}
				if !strings.HasPrefix(m.read, "continued at 30k") {
					t.Errorf("the rest of the result is %.40q; want the text at byte 30000", m.read)
				}
				for i, result := range b.results[:24] {
					if result.Text != long {
						t.Fatalf("result %d in the journal has %d bytes; want all %d", i, len(result.Text), len(long))
					}
				}
			})
		})
	}
}

func TestResultsThatFitStayWhole(t *testing.T) {
	t.Parallel()
	b := &tools{run: func(context.Context) chat.ToolResult { return chat.ToolResult{Text: strings.Repeat("x", 9_000)} }}
	m := &model{}
	m.text = toolloop.NewText(1<<20, func(agent.Event) {})
	m.calls = []chat.ToolCall{{ID: "a", Name: "set", Args: "{}"}}
	req := agent.Request{Tools: b, Journal: b, IdempotencyKey: "run"}
	if _, err := toolloop.Run(t.Context(), req, m, m.text, toolloop.Options{Window: func() (int, agent.Ratio) { return 5_000, 1 }}); err != nil {
		t.Fatal(err)
	}
	last := m.asked[len(m.asked)-1]
	if got := len(last.Rounds[0].Results[0].Text); got != 9_000 || len(last.Tools) != 1 {
		t.Errorf("the model was given %d bytes and %d tools; want the whole result and its one tool", got, len(last.Tools))
	}
}
