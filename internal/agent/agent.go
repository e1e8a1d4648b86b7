// Package agent defines what answers a session: a [Runner] takes a [Request] and answers.
//
// A runner does not depend on lanes, stores or channels. It receives everything by value, reports
// its steps through emit while it works, and returns the whole answer. The contract that every
// runner keeps, and that package agenttest checks:
//
//   - Run ends within two seconds after its context is done, and then returns context.Cause(ctx) or
//     an [*Error].
//   - emit is called from the goroutine of Run only, never after Run has returned. Deltas joined
//     are Result.Text, with an error too: then Text is the part before the failure. Text is valid
//     UTF-8 without NUL, also across deltas.
//   - Nothing that Run started works on the turn after it has returned: no goroutine, no process,
//     no connection that is read. A runner may keep a process that waits for the next turn of its
//     session; it bounds their number and time, and ends them in its method Close.
//   - A failure is an [*Error] with a [chat.FailReason] from the closed set and a sentence without
//     secrets or internals.
//   - Run retries a request to its back end only before any part of the answer was emitted, and
//     never with Request.CallOnce.
//   - A runner that calls tools records each round in Request.Journal before its first call runs,
//     and each result when it arrives. Given recorded rounds, it continues after them: the first
//     delta is their text, and a call without a result is repeated under its key only when its tool
//     is idempotent. An [EventTool] with phase start and one with phase result are emitted for each
//     call.
//   - An answer over the runner's limit is cut there and ends with [chat.FailOutputLimit].
//   - Files for the person lie below the directory that Request.OutputDir has made, and
//     Result.Attachments names them by paths relative to it, in the order in which they are to be
//     sent. The gateway takes them over after Run has returned without an error. It leaves out and
//     reports what it does not accept (links, paths that leave the directory, files that are too
//     large).
//
// What every runner needs is here: [Answer] collects and streams text, [Conversation] turns a
// request into the alternating messages that models require, [Ended] is the error of a turn whose
// context is done, package secret keeps keys out of logs.
//
// A minimal runner:
//
//	func (r *Hello) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
//		answer := agent.NewAnswer(r.limit, emit)
//		err := answer.Append("hello, " + agent.Prompt(req))
//		return agent.Result{Text: answer.Text(), StopReason: agent.StopNormal}, err
//	}
//
// The implementations are in the packages below this one; only package app chooses among them.
package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"laneway/internal/chat"
)

// Runner executes turns. It is safe for concurrent use.
type Runner interface {
	// Run executes one turn. See the package comment for the contract.
	Run(ctx context.Context, req Request, emit func(Event)) (Result, error)
}

// Host is a runner whose processes outlive turns.
type Host interface {
	Processes() Processes
	// EndSession frees what the runner holds for a conversation that was deleted or restarted. It
	// returns at once; a running turn continues.
	EndSession(session chat.SessionKey)
}

// Processes describes the processes of one agent.
type Processes struct {
	// Living is the number of processes that run, at most Most.
	Living, Most int
	// Memory is the memory that they and their children use, in bytes; 0 means unknown.
	Memory int64
	// Evicted is how many were ended to make room for another session.
	Evicted int64
}

// Request is everything a turn needs. Runners must not change what its slices point to.
type Request struct {
	Session chat.SessionKey
	// RunID stays the same over attempts; Attempt counts from 1.
	RunID   string
	Attempt int
	// IdempotencyKey is `<session>/<run>`; tools that act on the outside world should pass it on.
	IdempotencyKey string
	// Messages is the new input, oldest first; at least one.
	Messages []chat.Content
	// History is the transcript before Messages, oldest first, already cut to the agent's context
	// window.
	History []chat.TranscriptEntry
	// Zone is the person's time zone, for the times of what others wrote into the conversation; nil
	// = UTC.
	Zone *time.Location
	// Clock is the person's local time with its zone, for a model whose tools read times; "" when
	// none is needed. See [Conversation].
	Clock string
	// Deadline of the turn; the context has it too.
	Deadline time.Time
	// SystemPrompt goes before everything else; "" means the runner's own.
	SystemPrompt string
	// Dir is the working directory chosen for the session, in the form of the runner's setting; ""
	// means the runner's own. Runners without programs ignore it.
	Dir string
	// Model, Thinking and Params override the runner's own where they are set.
	Model, Thinking string
	Params          map[string]any
	// TakeInput returns messages that arrived in the session while the turn runs (mode steer); nil
	// means none can arrive. A runner that supports it calls it between rounds, when all results of
	// a round are recorded: the messages are recorded after the last round.
	TakeInput func() []chat.Content
	// Tools are the tools that the model may call; nil means none. A runner without models ignores
	// them.
	Tools Toolbox
	// Client are the tools of the program that sent the message; nil = there are none. Tools is nil
	// then, and the answer ends with the calls of the model.
	Client *chat.ClientTools
	// Journal is where a runner that calls tools records its rounds; nil only where Tools is nil.
	Journal Journal
	// OpenTools lets a program reach Tools until end is called, which waits for running calls; nil
	// means that programs have no access. A runner calls it when its program begins to work for the
	// turn, and calls end before Run returns; see [Request.ProgramTools].
	OpenTools func(ctx context.Context) (access ToolAccess, end func())
	// OutputDir makes the directory in which the runner may leave files for the person, at the
	// first call, and returns its absolute path. The directory is new, empty and for this turn
	// alone, and is removed when the turn has ended. nil means the caller takes no files. It is
	// called on the goroutine of Run.
	OutputDir func() (string, error)
	// BeforeRound is called before each request to a model, on the goroutine of Run; its error ends
	// the turn and is returned unchanged. nil means every request is allowed. A runner without
	// rounds does not call it.
	BeforeRound func(ctx context.Context) error
	// Outside records that the agent reads, by tools that are not those of the gateway, what may be
	// text from outside: a page, a search, a file outside of its directory. It returns at once,
	// repeating it has no effect, and it may be called on any goroutine until Run returns. A runner
	// that sees the steps of its agent calls it before the agent can act on the text; nil means
	// that it is not recorded.
	Outside func()
	// Left is the program that an earlier attempt of the run may have left running, the zero value
	// for none. KeepProgram stores the program of this attempt in its place; nil means that it is
	// not stored. A runner that starts a program for the turn alone ends Left before that, and
	// keeps its own before it reads its output.
	Left        chat.Program
	KeepProgram func(ctx context.Context, p chat.Program) error
	// Files reads the files that came with the messages; nil means they cannot be read.
	Files Files
	// Asker asks the person of the turn; nil means that no person can be asked, and whatever needs
	// a permission is refused.
	Asker Asker
	// Awaited is true when another turn, possibly one of this runner, waits for this one. The
	// runner fails it as overloaded if it would have to wait for other turns to end.
	Awaited bool
	// CallOnce is true when the caller repeats a failed turn by its own rules (a job does). The
	// runner makes each call to its back end once and returns the failure, with Retryable
	// unchanged.
	CallOnce bool
}

// ReadsOutside calls Outside.
func (r Request) ReadsOutside() {
	if r.Outside != nil {
		r.Outside()
	}
}

// Files are the files that came with messages, by [chat.Attachment.Path].
type Files interface {
	// Read returns the content of a file. It fails if the file does not exist or has more than
	// limit bytes.
	Read(path string, limit int64) ([]byte, error)
	// Path is the absolute path of a file on this host.
	Path(path string) string
}

// Asker asks the person of one turn. It is safe for concurrent use.
type Asker interface {
	// Ask sends a question and blocks until the person has chosen an option, whose index it
	// returns, or ctx is done; the runner bounds the wait with ctx. After any error nothing was
	// chosen, and the runner takes the option that does nothing.
	Ask(ctx context.Context, q Question) (option int, err error)
}

// Question asks a person whether, and how, the agent may do something.
type Question struct {
	// Text is what the agent intends to do. The asker shows it unchanged: the runner removes what
	// is not printable.
	Text string
	// Act is what a permission for always covers: it is stored for later questions with the same
	// Act, so two requests have the same Act only if they have the same effect, or differ in a way
	// that the option's label names. "" means that it is not stored.
	Act string
	// Options has at least one element.
	Options []Option
}

// Option is one answer to a question.
type Option struct {
	// Label is short.
	Label string `json:"label"`
	// Allow is true when the agent may act, in the way that the option names.
	Allow bool `json:"allow,omitempty"`
	// Always is true when the answer counts for every later question with the same Act in the
	// conversation.
	Always bool `json:"always,omitempty"`
}

// OpenQuestion is a question that its person has not answered.
type OpenQuestion struct {
	Question

	ID, Agent string
	// Principal is the only one whose answer counts; Session is where the question was asked.
	Principal string
	Session   chat.SessionKey
	// RunID is the turn that waits for the answer; "" means that the turn has ended, and the call
	// is made once it is allowed.
	RunID string

	AskedAt, ExpiresAt time.Time
}

// EventKind classifies what a runner reports while it works.
type EventKind string

// The kinds of events.
const (
	EventDelta EventKind = "delta" // Text is new answer text
	EventTool  EventKind = "tool"  // Tool is a step of a tool call
	EventUsage EventKind = "usage" // Usage is what was used so far
)

// Event is one thing that happened in a turn.
type Event struct {
	Kind  EventKind
	Text  string
	Tool  *chat.ToolEvent
	Usage chat.Usage
}

// Result is a finished turn.
type Result struct {
	// Text is the whole answer; it may be empty.
	Text string
	// Attachments are files that are sent to the person after the text; see the package comment.
	// Path is required; missing fields are determined from the file.
	Attachments []chat.Attachment
	Usage       chat.Usage
	Asked       chat.Asked // of the model, for runners that make its requests themselves
	// TooLong: the model refused the conversation as too long, also when it has answered a smaller
	// part of it.
	TooLong bool
	// StopReason is [StopNormal], [StopLength] when the model ran into its limit, or
	// [chat.StopCalls] when it made Calls of the tools in [Request.Client].
	StopReason string
	Calls      []chat.ToolCall
}

// The stop reasons.
const (
	StopNormal = "stop"
	StopLength = "length"
)

// Info describes an agent for people and clients.
type Info struct {
	ID    string
	Name  string
	Model string
	// Runner is the kind: echo, command, openai, ….
	Runner string
	// Servers are the MCP servers whose tools it may call.
	Servers []string
	// Lacks is what its model has refused in this process, for now.
	Lacks []Lack
}

// Lack is a part of requests that a model has refused and that is left out until then, for a runner
// whose model is behind an endpoint.
type Lack struct {
	// Model that refused; Part of the request, such as tools; Said is what the endpoint said,
	// without secrets.
	Model, Part, Said string
	Until             time.Time
}

// DefaultMaxAnswer is the longest answer of a runner in bytes of UTF-8 unless its configuration
// sets another limit.
const DefaultMaxAnswer = 1 << 20

// Answer collects the text of one turn and emits it. It implements the part of the contract that
// every runner shares: the joined deltas are the text, the text is valid UTF-8 without NUL,
// characters that arrive in pieces are joined, and nothing beyond the limit is kept or emitted. It
// belongs to the goroutine of Run.
type Answer struct {
	emit    func(Event)
	limit   int
	text    strings.Builder
	pending []byte // the start of a character whose rest has not arrived; at most three bytes
}

// NewAnswer makes an empty answer of at most limit bytes; limit <= 0 means [DefaultMaxAnswer].
func NewAnswer(limit int, emit func(Event)) *Answer {
	if limit <= 0 {
		limit = DefaultMaxAnswer
	}
	return &Answer{emit: emit, limit: limit}
}

// Append adds text. At the limit it keeps what fits and returns an *Error with
// [chat.FailOutputLimit].
func (a *Answer) Append(text string) error {
	text = chat.CleanText(text)
	rest := a.limit - a.text.Len()
	fits := chat.Cut(text, rest)
	if fits != "" {
		a.text.WriteString(fits)
		a.emit(Event{Kind: EventDelta, Text: fits})
	}
	if len(fits) < len(text) {
		return NewError(chat.FailOutputLimit, fmt.Sprintf("The answer was cut because it is longer than %d bytes; ask for less at once.", a.limit), nil)
	}
	return nil
}

// AppendBytes adds raw output. An incomplete character is held until the next call. It returns what
// [Answer.Append] returns.
func (a *Answer) AppendBytes(raw []byte) error {
	raw = append(a.pending, raw...)
	whole := len(raw) - incomplete(raw)
	a.pending = append([]byte(nil), raw[whole:]...)
	return a.Append(string(raw[:whole]))
}

// Flush ends raw output: an incomplete character is shown as U+FFFD.
func (a *Answer) Flush() error {
	rest := string(a.pending)
	a.pending = nil
	return a.Append(rest)
}

// Text returns everything that was emitted.
func (a *Answer) Text() string { return a.text.String() }

// Begun reports whether anything was emitted; after that the turn must not be retried.
func (a *Answer) Begun() bool { return a.text.Len() > 0 }

// incomplete returns how many bytes at the end of raw start a character that may still become
// valid.
func incomplete(raw []byte) int {
	for n := 1; n <= min(len(raw), utf8.UTFMax-1); n++ {
		tail := raw[len(raw)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			return 0
		}
		return n
	}
	return 0
}

// ToolSpec is a tool as it is offered to a model.
type ToolSpec struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, an object.
	Schema json.RawMessage
	// Idempotent is true when a call that is repeated under its key has no second effect.
	Idempotent bool
	// ReadOnly is true when no call changes anything, Additive when a call creates or sends and
	// changes nothing that exists. Clients that ask a person before calls read them.
	ReadOnly, Additive bool
	// Waits is true when a call may take as long as the turn, because it waits for the end of
	// another turn.
	Waits bool
	// InOrder is true when calls of such tools run one after the other, in the order of the model's
	// answer, because a person reads their effects in that order. Other calls run concurrently.
	InOrder bool
}

// maxToolName is the longest name of a tool that the endpoints of all models take.
const maxToolName = 64

// foreignInName matches what such a name cannot have.
var foreignInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// ModelName returns a name for models: foreign characters become underscores, and a long name ends
// with a hash of the whole.
func ModelName(name string) string {
	if short := foreignInName.ReplaceAllLiteralString(name, "_"); len(short) <= maxToolName {
		return short
	}
	return HashedName(name)
}

// HashedName returns a name for models that differs from that of any other name: it ends with six
// characters of a hash.
func HashedName(name string) string {
	const size = 6
	sum := sha256.Sum256([]byte(name))
	short := foreignInName.ReplaceAllLiteralString(name, "_")
	return short[:min(len(short), maxToolName-1-size)] + "_" + hex.EncodeToString(sum[:])[:size]
}

// CallOrder makes the calls of tools that run in order wait for each other, in the order in which
// they join. The zero value is ready for use. It is not safe for concurrent use; its places are.
type CallOrder struct{ last <-chan struct{} }

// CallPlace is the place of one call. The zero value waits for no other call.
type CallPlace struct {
	before <-chan struct{}
	left   chan<- struct{}
}

// Join adds a call and returns its place, the zero place for a tool that does not run in order. The
// caller leaves the place when the call has ended, even if it was not made.
func (o *CallOrder) Join(spec ToolSpec) CallPlace {
	if !spec.InOrder {
		return CallPlace{}
	}
	left := make(chan struct{})
	place := CallPlace{before: o.last, left: left}
	o.last = left
	return place
}

// Await blocks until the previous call has ended. It returns false if ctx is done first.
func (p CallPlace) Await(ctx context.Context) bool {
	if p.before == nil {
		return true
	}
	select {
	case <-p.before:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave lets the next call begin.
func (p CallPlace) Leave() {
	if p.left != nil {
		close(p.left)
	}
}

// Toolbox provides the tools of one turn. It is safe for concurrent use.
type Toolbox interface {
	// Specs returns the tools that the turn may use, in the order in which they are offered.
	Specs() []ToolSpec
	// Call runs one call. It returns when ctx is done, never panics, and reports every failure as a
	// result with IsError, because the model decides how to continue. The same key means the same
	// call, also in a later attempt of the run.
	Call(ctx context.Context, key string, call chat.ToolCall) chat.ToolResult
}

// Journal keeps the rounds of one turn beyond the end of the process, so that no round is requested
// from a model twice. Its methods are called on the goroutine of Run. A recorded round does not
// change: recording it again has no effect.
type Journal interface {
	// Rounds returns what earlier attempts of the run recorded, oldest first, without gaps in their
	// numbers.
	Rounds() []Round
	// Record commits the calls of the model before any of them runs. An error ends the turn.
	Record(ctx context.Context, round chat.Round) error
	// RecordResult commits the result of a call; call counts from 0. An error ends the turn.
	RecordResult(ctx context.Context, round, call int, result chat.ToolResult) error
}

// Round is a recorded round with the messages that joined the turn after its results.
type Round struct {
	chat.Round

	Input []chat.Content
}

// ToolAccess is how the program of a turn reaches the tools of the turn: the URL of an MCP server
// (Streamable HTTP) and the bearer token for it, which is valid until the turn ends. A program that
// outlives its turn has the same token in each turn of its session; between turns the token gives
// no access. The zero value means no access.
type ToolAccess struct{ URL, Token string }

// ProgramTools opens the tools of the turn to the runner's program, until end is called. The access
// is zero if the turn has no tools for programs.
func (r Request) ProgramTools(ctx context.Context) (access ToolAccess, end func()) {
	if r.OpenTools == nil {
		return ToolAccess{}, func() {}
	}
	return r.OpenTools(ctx)
}

// Sessions stores the sessions of agents across restarts. A session is valid for the current
// transcript of its conversation only.
type Sessions interface {
	// AgentSession returns the session of the agent, or the zero value if no session is stored.
	AgentSession(ctx context.Context, key chat.SessionKey) (chat.AgentSession, error)
	// PutAgentSession stores a session in place of the previous one.
	PutAgentSession(ctx context.Context, key chat.SessionKey, s chat.AgentSession) error
}

// Error is a turn that failed.
type Error struct {
	Reason chat.FailReason
	// Message is one sentence for the person, without secrets, addresses or stack traces.
	Message string
	// Retryable is true when a later attempt may work (timeouts, 429, 5xx, resets).
	Retryable bool
	// Detail is the failure as the service behind the agent reported it, without secrets, at most
	// 500 bytes; "" if it reported nothing. Only administrators can read it.
	Detail string
	// Cause goes to the log.
	Cause error
}

// NewError makes an *Error whose Retryable follows from the reason. Cause may be nil.
func NewError(reason chat.FailReason, message string, cause error) *Error {
	return &Error{Reason: reason, Message: message, Retryable: Retryable(reason), Cause: cause}
}

// Error returns the sentence followed by the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable reports whether a later attempt may work after a failure of this kind. A failure that
// the caller, the operator or the model has to fix first is not retryable, and neither is a panic.
func Retryable(reason chat.FailReason) bool {
	switch reason {
	case chat.FailTimeout, chat.FailFirstByte, chat.FailSilence, chat.FailRateLimit, chat.FailOverloaded, chat.FailServer,
		chat.FailConnection:
		return true
	default:
		return false
	}
}

// Reasons returns the closed set of failures that a runner may return.
func Reasons() []chat.FailReason {
	return []chat.FailReason{
		chat.FailTimeout, chat.FailFirstByte, chat.FailSilence, chat.FailRateLimit, chat.FailOverloaded, chat.FailServer,
		chat.FailConnection, chat.FailAuth, chat.FailContextLength, chat.FailRefusal, chat.FailBadRequest, chat.FailBadResponse,
		chat.FailProgram, chat.FailOutputLimit, chat.FailBudget, chat.FailPanic, chat.FailUnknown,
	}
}

// ReasonOf returns the reason of the first *Error in err's chain: "" for nil, [chat.FailTimeout]
// for a deadline, and [chat.FailUnknown] for everything else.
func ReasonOf(err error) chat.FailReason {
	var failed *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failed):
		return failed.Reason
	case errors.Is(err, context.DeadlineExceeded):
		return chat.FailTimeout
	default:
		return chat.FailUnknown
	}
}

// Ended is what Run returns when its context is done, and nil while it is not. A deadline becomes
// an *Error with [chat.FailTimeout]; any other end is context.Cause(ctx) itself, so that the caller
// finds the cause that it set.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return NewError(chat.FailTimeout, "The turn took longer than it may; ask for less at once or raise the agent's timeout.", cause)
	}
	return cause
}
