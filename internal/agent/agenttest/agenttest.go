// Package agenttest is the contract that every runner passes, as tests.
//
// A runner's package describes itself with a [Subject]: how to open a runner whose back end follows
// a [Script], which failures it can have, and how to see what it left behind. [Run] then checks the
// runner against the contract of package agent: it streams, ends within two seconds after its
// context, leaves nothing behind, emits only from its own goroutine while it runs, joins its deltas
// to its text, classifies its errors, keeps characters whole and stops at its limit.
//
// The suite checks for leftover goroutines, so neither its tests nor the test that calls it may be
// parallel.
//
//	func TestContract(t *testing.T) {
//		agenttest.Run(t, agenttest.Subject{
//			Open:    open,
//			Reasons: []chat.FailReason{chat.FailProgram},
//			Usage:   true,
//		})
//	}
package agenttest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"laneway/internal/agent"
	"laneway/internal/chat"
)

// Script is how the back end of a runner behaves.
type Script struct {
	// Pieces of the answer, passed to the runner one after the other. A piece may end within a
	// character.
	Pieces []string
	// Rounds come before the pieces, for runners that call tools: the back end requests calls, and
	// continues with what follows when it has their results.
	Rounds []Round
	// Repeat answers with the person's message instead of Pieces.
	Repeat bool
	// Hang keeps the answer open after the pieces.
	Hang bool
	// Fail ends with this failure after the pieces.
	Fail chat.FailReason
	// Files are left for the person, in this order, by a back end that can send files; each file
	// contains its own name.
	Files []string
	// MaxAnswer is the limit that the runner is configured with, in bytes; 0 means its default.
	MaxAnswer int
}

// Text is the whole answer.
func (s Script) Text() string { return strings.Join(s.Pieces, "") }

// Subject is a runner under test.
type Subject struct {
	// Open makes a runner whose back end follows the script, and registers its own clean-up. The
	// suite closes runners that have a Close method.
	Open func(t *testing.T, script Script) agent.Runner
	// Message is what the suite sends to the runner; nil means the text of the script.
	Message func(script Script) string
	// Alive counts processes and exchanges that were started and have not ended; nil means that the
	// runner starts none.
	Alive func() int
	// Reasons are the failures that the back end can show.
	Reasons []chat.FailReason
	// Usage is true when every successful turn reports usage.
	Usage bool
	// Files is true when the back end can send files.
	Files bool
	// Asked returns the requests that the back end of the last Open received; nil means the runner
	// calls no tools.
	Asked func() []Asked
}

// patience bounds every wait of the suite; a working runner never reaches it.
const patience = 30 * time.Second

// cancelBound is the two seconds of the contract and one for a busy machine.
const cancelBound = 3 * time.Second

// Run checks the subject against the contract.
func Run(t *testing.T, subject Subject) {
	t.Helper()
	tests := []test{
		{"AnswersAreStreamedAndWhole", testWhole},
		{"TheFirstTextComesBeforeTheLast", testStreams},
		{"AnEmptyAnswerIsAnAnswer", testEmpty},
		{"CharactersStayWholeOverReads", testCharacters},
		{"AHugeAnswerIsCutAtTheLimit", testHuge},
		{"AnEndedContextStartsNothing", testEndedBefore},
		{"CancelEndsAHangingTurn", testCancel},
		{"ADeadlineIsATimeout", testDeadline},
		{"FailuresAreSorted", testFailures},
		{"AFailureInTheMiddleKeepsWhatWasSaid", testFailureInTheMiddle},
		{"ManyTurnsDoNotMix", testConcurrent},
		{"TheRequestStaysAsItIs", testRequestUnchanged},
		{"FilesLieInTheDirectoryOfTheTurn", testFiles},
		{"AFailedTurnHandsOverNothing", testNoFiles},
		{"WithoutADirectoryThereAreNoFiles", testFilesNowhere},
	}
	if subject.Asked != nil {
		tests = append(tests, toolTests()...)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, subject) })
	}
}

type test struct {
	name string
	run  func(*testing.T, Subject)
}

// toolTests returns the contract of runners that call tools.
func toolTests() []test {
	return []test{
		{"CallsAreRecordedRunAndAnswered", testToolCalls},
		{"RecordedRoundsAreNotAskedForAgain", testRecordedRounds},
		{"MistakenCallsAreOneSentenceEach", testMistakenCalls},
		{"RoundsHaveAnEnd", testEndlessRounds},
		{"EachRoundIsAllowedBefore", testBeforeRound},
		{"InputIsTakenBetweenRounds", testInputBetweenRounds},
		{"WithoutARecordNothingIsCalled", testUnrecordedRound},
		{"WithoutToolsNoneAreOffered", testWithoutTools},
	}
}

// turn is one run under observation.
type turn struct {
	result  agent.Result
	err     error
	deltas  strings.Builder
	usage   chat.Usage
	took    time.Duration
	running atomic.Bool
}

// Request returns a valid request with one message.
func Request(text string) agent.Request {
	return agent.Request{
		Session: chat.MainKey("main"), RunID: "run-1", Attempt: 1, IdempotencyKey: "agent:main:main/run-1",
		Messages: []chat.Content{{Text: text, Sender: chat.Sender{ID: "7", Name: "Ada"}}},
	}
}

func (s Subject) request(script Script) agent.Request {
	if s.Message != nil {
		return Request(s.Message(script))
	}
	return Request(script.Text())
}

// run executes one turn and checks the rules for every turn. heard receives each event and may be
// nil.
func run(ctx context.Context, t *testing.T, runner agent.Runner, req agent.Request, heard func(agent.Event)) *turn {
	t.Helper()
	observed := &turn{}
	self := goroutine()
	observed.running.Store(true)
	start := time.Now()
	observed.result, observed.err = runner.Run(ctx, req, func(event agent.Event) {
		if !observed.running.Load() {
			t.Errorf("emit was called after Run had returned: %+v", event)
		}
		if here := goroutine(); here != self {
			t.Errorf("emit was called from goroutine %s; Run is %s", here, self)
		}
		observed.note(t, event)
		if heard != nil {
			heard(event)
		}
	})
	observed.running.Store(false)
	observed.took = time.Since(start)
	observed.check(ctx, t)
	return observed
}

func (o *turn) note(t *testing.T, event agent.Event) {
	t.Helper()
	switch event.Kind {
	case agent.EventDelta:
		if event.Text == "" || !utf8.ValidString(event.Text) || strings.ContainsRune(event.Text, 0) {
			t.Errorf("delta %q is empty or not clean text", event.Text)
		}
		o.deltas.WriteString(event.Text)
	case agent.EventUsage:
		o.usage = event.Usage
	case agent.EventTool:
		if event.Tool == nil {
			t.Error("tool event without a tool")
		}
	default:
		t.Errorf("unknown kind of event %q", event.Kind)
	}
}

func (o *turn) check(ctx context.Context, t *testing.T) {
	t.Helper()
	if o.result.Text != o.deltas.String() {
		t.Errorf("deltas joined are not the text: got %s, want %s", short(o.deltas.String()), short(o.result.Text))
	}
	if o.err == nil {
		if o.result.StopReason != agent.StopNormal && o.result.StopReason != agent.StopLength {
			t.Errorf("stop reason: got %q, want %q or %q", o.result.StopReason, agent.StopNormal, agent.StopLength)
		}
		return
	}
	checkError(ctx, t, o.err)
}

// goroutine returns the number of the calling goroutine as the runtime prints it.
func goroutine() string {
	var stack [64]byte
	fields := strings.Fields(string(stack[:runtime.Stack(stack[:], false)]))
	return fields[1]
}

func short(text string) string {
	if len(text) <= 80 {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q… (%d bytes)", chat.Cut(text, 80), len(text))
}

// Sessions keeps the sessions of agents in memory. It is safe for concurrent use.
type Sessions struct {
	mu  sync.Mutex
	all map[string]chat.AgentSession
}

var _ agent.Sessions = (*Sessions)(nil)

// NewSessions makes an empty one.
func NewSessions() *Sessions { return &Sessions{all: map[string]chat.AgentSession{}} }

// AgentSession implements [agent.Sessions].
func (s *Sessions) AgentSession(_ context.Context, key chat.SessionKey) (chat.AgentSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key.String()], nil
}

// PutAgentSession implements [agent.Sessions].
func (s *Sessions) PutAgentSession(_ context.Context, key chat.SessionKey, one chat.AgentSession) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[key.String()] = one
	return nil
}

// Change changes each session.
func (s *Sessions) Change(by func(*chat.AgentSession)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range maps.Clone(s.all) {
		by(&one)
		s.all[key] = one
	}
}

// withDir gives the request a directory and counts how often it is requested.
func withDir(t *testing.T, req *agent.Request) (dir string, asked *int) {
	t.Helper()
	dir, asked = t.TempDir(), new(int)
	req.OutputDir = func() (string, error) {
		*asked++
		return dir, nil
	}
	return dir, asked
}

func testFiles(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"Here they are."}}
	if subject.Files {
		script.Files = []string{"a.txt", "b c.png", "ü.csv"}
	}
	req := subject.request(script)
	dir, asked := withDir(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err != nil || got.result.Text != script.Text() {
		t.Fatalf("got %q and %v", got.result.Text, got.err)
	}
	if *asked > 1 || (*asked == 0 && subject.Files) {
		t.Errorf("the directory was requested %d times", *asked)
	}
	var paths []string
	for _, f := range got.result.Attachments {
		paths = append(paths, f.Path)
		if raw, err := fs.ReadFile(os.DirFS(dir), f.Path); !filepath.IsLocal(f.Path) || err != nil || string(raw) != f.Path {
			t.Errorf("the result names %+v, which is no file of the turn: %q, %v", f, raw, err)
		}
	}
	if !slices.Equal(paths, script.Files) {
		t.Errorf("files: got %q, want %q", paths, script.Files)
	}
	settled(t, subject)
}

func testNoFiles(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Fail: subject.Reasons[0]}
	if subject.Files {
		script.Files = []string{"half.txt"}
	}
	req := subject.request(script)
	withDir(t, &req)
	got := run(bounded(t), t, open(t, subject, script), req, nil)
	if got.err == nil || len(got.result.Attachments) > 0 {
		t.Errorf("got %v and the files %+v", got.err, got.result.Attachments)
	}
	settled(t, subject)
}

func testFilesNowhere(t *testing.T, subject Subject) {
	t.Helper()
	script := Script{Pieces: []string{"text"}}
	got := run(bounded(t), t, open(t, subject, script), subject.request(script), nil)
	if got.err != nil || len(got.result.Attachments) > 0 {
		t.Errorf("got %v and the files %+v", got.err, got.result.Attachments)
	}
	settled(t, subject)
}
