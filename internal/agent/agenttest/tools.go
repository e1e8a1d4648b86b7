package agenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Round is an answer of the back end that requests tool calls.
type Round struct {
	Pieces []string
	Calls  []chat.ToolCall
}

// Turn returns the answer of the back end after the results of that many rounds: a round with calls, or the end.
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
	// Calls are the ids of all calls in the conversation, Results the contents of their results, in the same order.
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

// testBeforeRound refuses the second request of a turn: the model receives one request, and the text of the first answer stays.
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

// testRecordedRounds repeats a turn that has one recorded round, with the result of one of its three calls.
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
