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

// settled waits until the back end has noticed the end of every exchange: a closed connection takes a moment to arrive.
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
