package agenttest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// open makes a runner and checks at the end of the test that nothing of its turns is left.
func open(t *testing.T, subject Subject, script Script) agent.Runner {
	t.Helper()
	runner := subject.Open(t, script)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if closer, ok := runner.(interface{ Close() }); ok {
			closer.Close()
		}
		if err := goleak.Find(before); err != nil {
			t.Errorf("goroutines were left behind: %v", err)
		}
	})
	return runner
}

// settled waits until the back end has noticed the end of every exchange: a closed connection takes
// a moment to arrive.
func settled(t *testing.T, subject Subject) {
	t.Helper()
	if subject.Alive == nil {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for subject.Alive() > 0 {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("left behind after Run: got %d processes or exchanges, want 0", subject.Alive())
		}
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the suite has waited long enough"))
	t.Cleanup(cancel)
	return ctx
}

func testWhole(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"Hello", ", ", "wor", "ld.\n", "  Two lines."}}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err != nil {
		t.Fatalf("Run: %v", got.err)
	}
	if got.result.Text != script.Text() {
		t.Errorf("text: got %q, want %q", got.result.Text, script.Text())
	}
	if used := got.result.Usage; subject.Usage && (used.InputTokens <= 0 || used.OutputTokens <= 0) {
		t.Errorf("usage: got %+v, want counts above zero", used)
	}
	if subject.Usage && got.usage != got.result.Usage {
		t.Errorf("the last usage event says %+v, the result %+v", got.usage, got.result.Usage)
	}
	settled(t, subject)
}

func testStreams(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"first "}, Hang: true}
	ctx, cancel := context.WithCancelCause(bounded(t))
	defer cancel(nil)
	stop := errors.New("heard enough")
	got := run(ctx, t, open(t, subject, script), subject.request(script), func(event agent.Event) {
		if event.Kind == agent.EventDelta {
			cancel(stop)
		}
	})
	if context.Cause(ctx) != stop { //nolint:errorlint // the very value that was set
		t.Fatalf("nothing was emitted while the turn was running; it ended with %v", got.err)
	}
	if !strings.HasPrefix(script.Text(), strings.TrimSpace(got.result.Text)) || got.result.Text == "" {
		t.Errorf("text: got %q, want a part of %q", got.result.Text, script.Text())
	}
	settled(t, subject)
}

func testEmpty(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err != nil || got.result.Text != "" {
		t.Errorf("got %q and %v, want an empty text and no error", got.result.Text, got.err)
	}
	settled(t, subject)
}

func testCharacters(t *testing.T, subject Subject) {
	t.Helper()
	const text = "aäß→日本🙂👩‍👧é"
	pieces := make([]string, 0, len(text))
	for i := range len(text) {
		pieces = append(pieces, text[i:i+1])
	}
	script := Script{Pieces: pieces}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err != nil || got.result.Text != text {
		t.Errorf("got %q and %v, want %q", got.result.Text, got.err, text)
	}
	settled(t, subject)
}

func testHuge(t *testing.T, subject Subject) {
	t.Helper()
	const limit = 4099 // not a multiple of the three bytes of a character below
	script := Script{MaxAnswer: limit}
	for range 64 {
		script.Pieces = append(script.Pieces, strings.Repeat("日", 512))
	}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if reason := agent.ReasonOf(got.err); reason != chat.FailOutputLimit {
		t.Errorf("reason: got %q (%v), want %q", reason, got.err, chat.FailOutputLimit)
	}
	if want := chat.Cut(script.Text(), limit); got.result.Text != want {
		t.Errorf("text: got %d bytes, want %d", len(got.result.Text), len(want))
	}
	settled(t, subject)
}

func testEndedBefore(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"never"}}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped before")
	cancel(stop)
	got := run(ctx, t, open(t, subject, script), subject.request(script), nil)
	if !errors.Is(got.err, stop) || got.result.Text != "" {
		t.Errorf("got %q and %v, want nothing and %v", got.result.Text, got.err, stop)
	}
	settled(t, subject)
}

// testCancel cancels a turn that emits nothing.
func testCancel(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"before "}, Hang: true}
	ctx, cancel := context.WithCancelCause(bounded(t))
	defer cancel(nil)
	stop := errors.New("stopped by a test")
	var canceled time.Time
	got := run(ctx, t, open(t, subject, script), subject.request(script), func(event agent.Event) {
		if event.Kind == agent.EventDelta {
			canceled = time.Now()
			cancel(stop)
		}
	})
	if took := time.Since(canceled); took > cancelBound {
		t.Errorf("Run ended %s after its context, want at most %s", took, cancelBound)
	}
	if !errors.Is(got.err, stop) {
		t.Errorf("error: got %v, want the cause %v", got.err, stop)
	}
	settled(t, subject)
}

func testDeadline(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Hang: true}
	const deadline = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	got := run(ctx, t, open(t, subject, script), subject.request(script), nil)
	if reason := agent.ReasonOf(got.err); reason != chat.FailTimeout {
		t.Errorf("reason: got %q (%v), want %q", reason, got.err, chat.FailTimeout)
	}
	if got.took > deadline+cancelBound {
		t.Errorf("Run took %s, want at most %s", got.took, deadline+cancelBound)
	}
	settled(t, subject)
}

func testFailures(t *testing.T, subject Subject) {
	t.Helper()
	if len(subject.Reasons) == 0 {
		t.Fatal("the subject names no failure; every runner can fail")
	}
	for _, reason := range subject.Reasons {
		t.Run(string(reason), func(t *testing.T) {
			script := Script{Fail: reason}
			got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
			if is := agent.ReasonOf(got.err); is != reason {
				t.Errorf("reason: got %q (%v), want %q", is, got.err, reason)
			}
			settled(t, subject)
		})
	}
}

func testFailureInTheMiddle(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"one ", "two"}, Fail: subject.Reasons[0]}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err == nil {
		t.Errorf("got no error, want %s", subject.Reasons[0])
	}
	if !strings.HasPrefix(got.result.Text, "one two") || strings.Count(got.result.Text, "one") != 1 {
		t.Errorf("text: got %q, want %q exactly once", got.result.Text, "one two")
	}
	settled(t, subject)
}

func testConcurrent(t *testing.T, subject Subject) {
	t.Helper()
	runner := open(t, subject, Script{Repeat: true})
	ctx := bounded(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			want := fmt.Sprintf("message %d of many", i)
			req := Request(want)
			req.RunID = fmt.Sprintf("run-%d", i)
			if got := run(ctx, t, runner, req, nil); got.err != nil || got.result.Text != want {
				t.Errorf("got %q and %v, want %q", got.result.Text, got.err, want)
			}
		})
	}
	group.Wait()
	settled(t, subject)
}

func testRequestUnchanged(t *testing.T, subject Subject) {
	t.Helper()
	build := func() agent.Request {
		req := Request("second")
		req.Messages = append(req.Messages, chat.Content{Text: "third", Context: []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "zero"}}})
		req.History = []chat.TranscriptEntry{{Role: chat.RoleUser, Text: "question"}, {Role: chat.RoleAssistant, Text: "answer"}}
		req.Params = map[string]any{"temperature": 0.5, "stop": []any{"end"}}
		return req
	}
	req := build()
	run(bounded(t), t, open(t, subject, Script{Repeat: true}), req, nil)
	if diff := cmp.Diff(build(), req); diff != "" {
		t.Errorf("the request was changed (-before +after):\n%s", diff)
	}
	settled(t, subject)
}

// internals matches what a sentence for a person must not contain.
func internals() *regexp.Regexp {
	return regexp.MustCompile(`goroutine \d|\.go:\d+|https?://|\d+\.\d+\.\d+\.\d+|0x[0-9a-f]{6}`)
}

// checkError checks that an error is the cause of the context, or an *agent.Error with a sentence.
func checkError(ctx context.Context, t *testing.T, err error) {
	t.Helper()
	var failed *agent.Error
	if !errors.As(err, &failed) {
		if ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)) {
			t.Errorf("error %v (%T) is no *agent.Error and not the cause of the context", err, err)
		}
		return
	}
	if !slices.Contains(agent.Reasons(), failed.Reason) {
		t.Errorf("reason %q is not in the closed set", failed.Reason)
	}
	if strings.TrimSpace(failed.Message) == "" || internals().MatchString(failed.Message) {
		t.Errorf("sentence %q is empty or shows internals", failed.Message)
	}
}

// Round is an answer of the back end that requests tool calls.
type Round struct {
	Pieces []string
	Calls  []chat.ToolCall
}

// Turn returns the answer of the back end after the results of that many rounds: a round with
// calls, or the end.
func (s Script) Turn(rounds int) (pieces []string, calls []chat.ToolCall) {
	if rounds < len(s.Rounds) {
		return s.Rounds[rounds].Pieces, s.Rounds[rounds].Calls
	}
	return s.Pieces, nil
}

// Asked is one request as the back end received it.
type Asked struct {
	// Tools are the names of the offered tools; Forbidden is true when they must not be called.
	Tools     []string
	Forbidden bool
	// Calls are the ids of all calls in the conversation, Results the contents of their results, in
	// the same order.
	Calls, Results []string
	// Last is the text of the last message.
	Last string
}

// toolbox records what is called; its tools answer with their name and arguments.
type toolbox struct {
	mu    sync.Mutex
	keys  []string
	specs []agent.ToolSpec
}

func newToolbox() *toolbox {
	schema := []byte(`{"type":"object","properties":{"what":{"type":"string"}}}`)
	return &toolbox{specs: []agent.ToolSpec{
		{Name: "set", Description: "sets something", Schema: schema, Idempotent: true},
		{Name: "once", Description: "happens once", Schema: schema},
	}}
}

func (b *toolbox) Specs() []agent.ToolSpec { return b.specs }

func (b *toolbox) Call(_ context.Context, key string, call chat.ToolCall) chat.ToolResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys = append(b.keys, key)
	return chat.ToolResult{Text: call.Name + " " + call.Args}
}

func (b *toolbox) called() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.keys))
}

// journal keeps records as lines, each with the calls that had been made by then.
type journal struct {
	t       *testing.T
	rounds  []agent.Round
	box     *toolbox
	lines   []string
	refused error
}

func (j *journal) Rounds() []agent.Round { return j.rounds }

func (j *journal) Record(_ context.Context, round chat.Round) error {
	j.t.Helper()
	if j.refused != nil {
		return j.refused
	}
	prefix := fmt.Sprintf("agent:main:main/run-1/%d/", round.Number)
	if slices.ContainsFunc(j.box.called(), func(key string) bool { return strings.HasPrefix(key, prefix) }) {
		j.t.Errorf("a call of round %d ran before the round was recorded", round.Number)
	}
	j.lines = append(j.lines, fmt.Sprintf("round %d %q %d calls", round.Number, round.Text, len(round.Calls)))
	return nil
}

func (j *journal) RecordResult(_ context.Context, round, call int, result chat.ToolResult) error {
	j.lines = append(j.lines, fmt.Sprintf("result %d.%d %s", round, call, result.Text))
	return nil
}

// withTools gives the request tools and a journal that holds rounds.
func withTools(t *testing.T, req *agent.Request, rounds ...agent.Round) (*toolbox, *journal) {
	t.Helper()
	box := newToolbox()
	j := &journal{t: t, box: box, rounds: rounds}
	req.Tools, req.Journal = box, j
	return box, j
}

func call(id, name, what string) chat.ToolCall {
	return chat.ToolCall{ID: id, Name: name, Args: fmt.Sprintf(`{"what":%q}`, what)}
}

func testToolCalls(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{
		Rounds: []Round{
			{Pieces: []string{"I set ", "two."}, Calls: []chat.ToolCall{call("a", "set", "one"), call("b", "set", "two")}},
			{Calls: []chat.ToolCall{call("c", "once", "three")}},
		},
		Pieces: []string{"All ", "set."},
	}
	req := subject.request(Script{Pieces: []string{"please"}})
	box, j := withTools(t, &req)
	var steps []string
	got := run(bounded(t), t, open(t, subject, script), req, func(e agent.Event) {
		if e.Kind == agent.EventTool {
			steps = append(steps, fmt.Sprintf("%s %s %s %s%s", e.Tool.Phase, e.Tool.CallID, e.Tool.Name, e.Tool.Args, e.Tool.Result))
		}
	})
	if got.err != nil || got.result.Text != "I set two.\n\nAll set." {
		t.Fatalf("got %q and %v, want the text of both answers", got.result.Text, got.err)
	}
	prefix := "agent:main:main/run-1/"
	if diff := cmp.Diff([]string{prefix + "1/1", prefix + "1/2", prefix + "2/1"}, box.called()); diff != "" {
		t.Errorf("keys of calls (-want +got):\n%s", diff)
	}
	slices.Sort(j.lines)
	want := []string{
		`result 1.0 set {"what":"one"}`, `result 1.1 set {"what":"two"}`, `result 2.0 once {"what":"three"}`,
		`round 1 "I set two." 2 calls`, `round 2 "" 1 calls`,
	}
	if diff := cmp.Diff(want, j.lines); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	if first := []string{`start a set {"what":"one"}`, `start b set {"what":"two"}`}; len(steps) != 6 || !slices.Equal(steps[:2], first) ||
		!slices.Contains(steps, `result b set set {"what":"two"}`) || steps[5] != `result c once once {"what":"three"}` {
		t.Errorf("steps: got %q", steps)
	}
	asked := subject.Asked()
	if len(asked) != 3 || !slices.Equal(asked[0].Tools, []string{"set", "once"}) || !slices.Equal(asked[2].Calls, []string{"a", "b", "c"}) ||
		!slices.Equal(asked[2].Results, []string{`set {"what":"one"}`, `set {"what":"two"}`, `once {"what":"three"}`}) {
		t.Errorf("the back end was asked %+v", asked)
	}
	one := run(bounded(t), t, open(t, subject, Script{Pieces: []string{"x"}}), Request("x"), nil).result.Usage
	if subject.Usage && (got.result.Usage.InputTokens != 3*one.InputTokens || got.result.Usage.OutputTokens != 3*one.OutputTokens) {
		t.Errorf("usage: got %+v, want three times %+v", got.result.Usage, one)
	}
	settled(t, subject)
}

// testBeforeRound refuses the second request of a turn: the model receives one request, and the
// text of the first answer stays.
func testBeforeRound(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Rounds: []Round{{Pieces: []string{"I set it."}, Calls: []chat.ToolCall{call("a", "set", "one")}}}, Pieces: []string{"All set."}}
	req := subject.request(Script{Pieces: []string{"please"}})
	box, _ := withTools(t, &req)
	refused, times := agent.NewError(chat.FailBudget, "the budget is used up", nil), 0
	req.BeforeRound = func(context.Context) error {
		if times++; times > 1 {
			return refused
		}
		return nil
	}
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if !errors.Is(got.err, refused) || got.result.Text != "I set it." || len(box.called()) != 1 || len(subject.Asked()) != 1 {
		t.Errorf("got %q and %v after %d calls and %d requests; want the text of the first answer, the refusal, one call and one request",
			got.result.Text, got.err, len(box.called()), len(subject.Asked()))
	}
	settled(t, subject)
}

// testRecordedRounds repeats a turn that has one recorded round, with the result of one of its
// three calls.
func testRecordedRounds(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{
		Rounds: []Round{{Pieces: []string{"something else"}, Calls: []chat.ToolCall{call("x", "set", "other")}}},
		Pieces: []string{"Done."},
	}
	recorded := agent.Round{Round: chat.Round{
		Number: 1, Text: "I set them.", Usage: chat.Usage{InputTokens: 100, OutputTokens: 10},
		Calls:   []chat.ToolCall{call("a", "set", "one"), call("b", "set", "two"), call("c", "once", "three")},
		Results: []*chat.ToolResult{{Text: "set before"}, nil, nil},
	}, Input: []chat.Content{{Text: "and hurry", Sender: chat.Sender{ID: "7", Name: "Ada"}}}}
	req := subject.request(Script{Pieces: []string{"please"}})
	req.Attempt = 2
	box, j := withTools(t, &req, recorded)
	first := ""
	got := run(bounded(t), t, open(t, subject, script), req, func(e agent.Event) {
		if e.Kind == agent.EventDelta && first == "" {
			first = e.Text
		}
	})
	if got.err != nil || got.result.Text != "I set them.\n\nDone." || first != "I set them." {
		t.Fatalf("got %q (first delta %q) and %v, want the recorded text and what follows", got.result.Text, first, got.err)
	}
	if keys := box.called(); !slices.Equal(keys, []string{"agent:main:main/run-1/1/2"}) {
		t.Errorf("called: got %q, want the idempotent call without a result alone", keys)
	}
	slices.Sort(j.lines)
	if len(j.lines) != 2 || j.lines[0] != `result 1.1 set {"what":"two"}` || !strings.Contains(j.lines[1], "may or may not have happened") {
		t.Errorf("journal: got %q", j.lines)
	}
	asked := subject.Asked()
	if len(asked) != 1 || !slices.Equal(asked[0].Calls, []string{"a", "b", "c"}) || asked[0].Results[0] != "set before" || asked[0].Last != "and hurry" {
		t.Errorf("the back end received %+v, want one request after the recorded round and its input", asked)
	}
	if subject.Usage && got.result.Usage.InputTokens <= 100 {
		t.Errorf("usage: got %+v, want the recorded 100 and more", got.result.Usage)
	}
	if recorded.Results[1] != nil {
		t.Error("the recorded round of the caller was changed")
	}
	settled(t, subject)
}

func testMistakenCalls(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{
		Rounds: []Round{{Calls: []chat.ToolCall{
			{ID: "a", Name: "unknown", Args: `{}`}, {ID: "b", Name: "set", Args: `{"what":`}, {ID: "c", Name: "set", Args: `[]`}, {ID: "d", Name: "set", Args: ``},
		}}},
		Pieces: []string{"Sorry."},
	}
	req := subject.request(Script{Pieces: []string{"please"}})
	box, _ := withTools(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err != nil || got.result.Text != "Sorry." || len(box.called()) != 1 {
		t.Fatalf("got %q and %v after calls %q, want the answer and the one good call", got.result.Text, got.err, box.called())
	}
	results := subject.Asked()[1].Results
	want := []string{
		`There is no tool "unknown"; there are set, once.`, "The arguments are not a JSON object; the call was not made.",
		"The arguments are not a JSON object; the call was not made.", "set ",
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	settled(t, subject)
}

func testEndlessRounds(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{}
	for range 40 {
		script.Rounds = append(script.Rounds, Round{Calls: []chat.ToolCall{call("", "set", "more")}})
	}
	req := subject.request(Script{Pieces: []string{"please"}})
	box, _ := withTools(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if reason := agent.ReasonOf(got.err); reason != chat.FailBadResponse {
		t.Errorf("reason: got %q (%v), want %q", reason, got.err, chat.FailBadResponse)
	}
	asked := subject.Asked()
	if len(asked) != 17 || asked[14].Forbidden || !asked[15].Forbidden || len(asked[16].Calls) > 0 || len(box.called()) != 15 {
		t.Errorf("got %d questions and %d calls, want 17, the last two without calls, and 15", len(asked), len(box.called()))
	}
	if ids := asked[15].Calls; len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 15 {
		t.Errorf("calls that the back end did not name: got %q, want 15 names", ids)
	}
	settled(t, subject)
}

func testInputBetweenRounds(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Rounds: []Round{{Calls: []chat.ToolCall{call("a", "set", "one")}}}, Pieces: []string{"Done."}}
	req := subject.request(Script{Pieces: []string{"please"}})
	_, j := withTools(t, &req)
	var recorded []string
	req.TakeInput = func() []chat.Content {
		recorded = append(recorded, j.lines...)
		return []chat.Content{{Text: "and hurry", Sender: chat.Sender{ID: "7", Name: "Ada"}}}
	}
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if asked := subject.Asked(); got.err != nil || len(asked) != 2 || asked[1].Last != "and hurry" || len(recorded) != 2 {
		t.Errorf("got %v, requests %+v, input taken after the records %q; want it after the result, in the second request", got.err, asked, recorded)
	}
	settled(t, subject)
}

func testUnrecordedRound(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Rounds: []Round{{Pieces: []string{"Now."}, Calls: []chat.ToolCall{call("a", "set", "one")}}}, Pieces: []string{"never"}}
	req := subject.request(Script{Pieces: []string{"please"}})
	box, j := withTools(t, &req)
	j.refused = errors.New("the session belongs to another process")
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err == nil || !errors.Is(got.err, j.refused) || len(box.called()) != 0 || len(subject.Asked()) != 1 {
		t.Errorf("got %v after calls %q, want the error of the journal and no call", got.err, box.called())
	}
	settled(t, subject)
}

func testWithoutTools(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"plain"}}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if asked := subject.Asked(); got.err != nil || len(asked) != 1 || len(asked[0].Tools) != 0 {
		t.Errorf("got %v, questions %+v, want one without tools", got.err, asked)
	}
	settled(t, subject)
}
