// Package agent defines what answers a session: a [Runner] takes a [Request] and answers.
//
// A runner knows nothing of lanes, stores or channels. It gets everything by value, reports what it does through emit while it
// works, and returns the whole answer. The contract that every runner keeps, and that package agenttest checks:
//
//   - Run ends within two seconds after its context is over, and then returns context.Cause(ctx) or an [*Error].
//   - emit is called from the goroutine of Run only, never after Run has returned. Deltas joined are Result.Text, with an
//     error too: then it is the text before the failure. Text is valid UTF-8 without NUL, also across deltas.
//   - Nothing that Run started goes on with the turn when it has returned: no goroutine, no process, no connection that is read. A runner may keep a process
//     that waits for the next turn of its session; it bounds their number and time, and ends them in its method Close().
//   - A failure is an [*Error] with a [chat.FailReason] from the closed set and a sentence without secrets or internals.
//   - Run retries a request to what is behind it only before anything of its answer was emitted, and never with Request.CallOnce.
//   - A runner that calls tools records each round in Request.Journal before the first call of it runs, and each result when it is there. Given recorded
//     rounds, it goes on behind them: the first delta is their text, and a call without a result is repeated under its key only when its
//     tool is idempotent. An [EventTool] with phase start and one with phase result are emitted for each call.
//   - An answer over the runner's limit is cut there and ends with [chat.FailOutputLimit].
//   - Files for the person lie below the directory that Request.OutputDir has made, and Result.Attachments names them by paths relative to
//     it, in the order in which they are to be sent. The gateway takes them over after Run has returned without an error; what it
//     does not take (links, ways out of the directory, what is too large) it leaves out and reports that.
//
// What every runner needs is here: [Answer] collects and streams text, [Conversation] turns a request into the alternating
// messages that models want, [Ended] is the error of a turn whose context is over, package secret keeps keys out of logs.
//
// A smallest runner:
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
	"time"

	"laneway/internal/chat"
)

// Runner executes turns. It is safe for concurrent use.
type Runner interface {
	// Run executes one turn. See the package comment for the contract.
	Run(ctx context.Context, req Request, emit func(Event)) (Result, error)
}

// Host is a runner with processes that outlive turns.
type Host interface {
	Processes() Processes
	// EndSession frees what the runner holds for a conversation that was deleted or begun anew. It returns at once, and a turn that runs goes on.
	EndSession(session chat.SessionKey)
}

// Processes are those of one agent.
type Processes struct {
	// Living are at most Most.
	Living, Most int
	// Memory is what they and their children have in memory, in bytes; 0 = unknown.
	Memory int64
	// Evicted is how many have ended to make room for another session.
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
	// History is the transcript before Messages, oldest first, already cut to the agent's context window.
	History []chat.TranscriptEntry
	// Clock is what the clock of the person shows, with its zone, for a model whose tools read times; "" = it needs none. See [Conversation].
	Clock string
	// Deadline of the turn; also on the context.
	Deadline time.Time
	// SystemPrompt goes before everything else; "" = the runner's own.
	SystemPrompt string
	// Dir is the working directory that was chosen for the session, in the form of the runner's own; "" = the runner's own. Runners without programs ignore it.
	Dir string
	// Model, Thinking and Params override the runner's own where they are set.
	Model, Thinking string
	Params          map[string]any
	// TakeInput returns messages that arrived in the session while the turn runs (mode steer); nil = none can arrive. A runner
	// that can use it calls it between rounds, when all results of a round are recorded: the messages are recorded behind the last round.
	TakeInput func() []chat.Content
	// Tools are what the model may call; nil = nothing. A runner without models ignores them.
	Tools Toolbox
	// Journal is where a runner that calls tools records its rounds; nil only where Tools is nil.
	Journal Journal
	// OpenTools lets a program reach Tools until end is called, which waits for calls under way; nil = it cannot. A runner calls it when its program begins to work
	// for the turn, and end before Run returns, see [Request.ProgramTools].
	OpenTools func(ctx context.Context) (access ToolAccess, end func())
	// OutputDir makes the directory in which the runner may leave files for the person, at the first call, and returns its absolute path. It is fresh,
	// empty, for this turn alone, and gone when the turn has ended. nil = the caller takes no files. It is called on the goroutine of Run.
	OutputDir func() (string, error)
	// BeforeRound is called before each request to a model, on the goroutine of Run; its error ends the turn and is returned as it is. nil = every
	// request is allowed. A runner that knows no rounds does not call it.
	BeforeRound func(ctx context.Context) error
	// Files reads the files that came with the messages; nil = they cannot be read.
	Files Files
	// Asker asks the person of the turn; nil = there is no person who can be asked, and what needs a permission is refused.
	Asker Asker
	// Awaited: another turn, which may be one of this runner, waits for this one. The runner fails it as overloaded where it would have to wait for the end of others.
	Awaited bool
	// CallOnce: the caller repeats a failed turn by rules of its own (a job does). The runner makes each call to what is behind it once, and
	// returns the failure, with Retryable as it is.
	CallOnce bool
}

// Files are the files that came with messages, by [chat.Attachment.Path].
type Files interface {
	// Read returns the content of a file; an error when there is none, or more than limit bytes.
	Read(path string, limit int64) ([]byte, error)
	// Path is the absolute path of a file on this host.
	Path(path string) string
}

// Asker asks the person of one turn. It is safe for concurrent use.
type Asker interface {
	// Ask sends a question and blocks until the person has chosen one of its options, whose number it returns, or ctx is over: a runner sets the time that
	// a person has. After any error nothing was chosen, and the runner takes the option that does nothing.
	Ask(ctx context.Context, q Question) (option int, err error)
}

// Question is what a person is asked: whether the agent may do something, and how.
type Question struct {
	// Text is what the agent wants to do. The asker shows it as it is: the runner takes out what is not printable.
	Text string
	// Act is Text without the details that differ from call to call: an answer that allows it always is kept for the next question with the same. "" = none is kept.
	Act string
	// Options are at least one.
	Options []Option
}

// Option is one answer to a question.
type Option struct {
	// Label is short.
	Label string `json:"label"`
	// Allow: with it the agent does what it asks about, in some way; otherwise it does not.
	Allow bool `json:"allow,omitempty"`
	// Always: the answer counts for every later question with the same Act in the conversation.
	Always bool `json:"always,omitempty"`
}

// OpenQuestion is a question that its person has not answered.
type OpenQuestion struct {
	Question

	ID, Agent string
	// Principal is whose answer counts, Session where it was asked.
	Principal string
	Session   chat.SessionKey
	// RunID is the turn that waits for the answer; "" = it has ended, and the call is made when it is allowed.
	RunID string

	AskedAt, ExpiresAt time.Time
}

// EventKind sorts what a runner reports while it works.
type EventKind string

// The kinds.
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
	// Attachments are files that go to the person behind the text; see the package comment. Path is needed, the rest is found out where it is missing.
	Attachments []chat.Attachment
	Usage       chat.Usage
	// StopReason is [StopNormal], or [StopLength] when the model ran into its limit.
	StopReason string
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
}
