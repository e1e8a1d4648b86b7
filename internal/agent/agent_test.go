package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
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

// TestAnAnswerDoesNotDependOnItsPieces checks that the places at which raw output is cut change neither the text nor the validity of the deltas.
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
