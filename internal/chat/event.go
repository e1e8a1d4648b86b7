package chat

import "time"

// EventKind sorts events. The set is closed.
type EventKind string

// The kinds. The first group belongs to a run; exactly one of Final, Aborted and Failed ends it.
const (
	EventQueued  EventKind = "queued"  // the message has to wait for a turn or a slot
	EventStarted EventKind = "started" // its turn has begun
	EventDelta   EventKind = "delta"   // new text of the answer
	EventTool    EventKind = "tool"    // a tool call began, went on or ended
	EventFinal   EventKind = "final"   // the answer is complete, or the message was merged into another
	EventAborted EventKind = "aborted" // stopped, superseded, stale, cleared, reset, draining
	EventFailed  EventKind = "failed"  // ended with an error, or was dropped

	EventSession   EventKind = "session"   // a session was created, reset, deleted, …: Reason is which
	EventQuestions EventKind = "questions" // an agent has asked a person, or a question has ended: Reason is which
)

// Event is one change that watchers get. An event about a durable change is published after its commit. Events of a
// run keep their order; Seq only grows.
type Event struct {
	Kind    EventKind
	Session SessionKey
	// Principal owns the session, or is whose answer counts (Questions); visibility is decided by it.
	Principal string
	// RunID names the message; of merged messages each has its own Final with Merged set.
	RunID string
	Seq   int64
	Lane  string
	At    time.Time

	// Delta is new text; Text is the answer so far. Replace is true when Delta is the whole text again (a second attempt).
	Delta, Text string
	Replace     bool

	// Reason: for Aborted stop, stopall, superseded, stale, cleared, reset, draining; for Failed the [FailReason]; for
	// Session created, message, queued, run.started, run.finished, reset, delete; for Questions asked, answered, closed.
	Reason string
	// Message is a sentence for a person (Failed, and Final without text). Detail is what the service behind the agent wrote, for administrators; "" = nothing.
	Message, Detail string
	// MergedInto is the run that took the message along (Final).
	MergedInto string
	// Command is true for the reply to a chat command.
	Command bool
	// EntrySeq is the transcript sequence of the final text; 0 = none.
	EntrySeq int64
	Usage    Usage
	Tool     *ToolEvent
}

// ToolEvent is one step of a tool call.
type ToolEvent struct {
	Phase  string // start, update, result
	CallID string
	Name   string
	// Args and Result are JSON texts, cut to 16 KiB.
	Args, Result string
	IsError      bool
}

// FailReason is why a turn failed: a closed set, also the metric label.
type FailReason string

// The reasons.
const (
	FailTimeout       FailReason = "timeout"        // the turn's time was over
	FailFirstByte     FailReason = "first_byte"     // the agent sent nothing in time
	FailSilence       FailReason = "silence"        // the agent stopped in the middle
	FailRateLimit     FailReason = "rate_limit"     // 429
	FailOverloaded    FailReason = "overloaded"     // 503, 529
	FailServer        FailReason = "server_error"   // other 5xx
	FailConnection    FailReason = "connection"     // refused, reset, DNS, TLS
	FailAuth          FailReason = "auth"           // 401, 403
	FailContextLength FailReason = "context_length" // the input does not fit
	FailRefusal       FailReason = "refusal"        // the model declined
	FailBadRequest    FailReason = "bad_request"    // other 4xx
	FailBadResponse   FailReason = "bad_response"   // not the protocol it should be
	FailProgram       FailReason = "program"        // a command ended with an error or cannot be started
	FailOutputLimit   FailReason = "output_limit"   // the answer is too long
	FailPanic         FailReason = "panic"          // a defect in a runner
	FailDead          FailReason = "dead"           // it ended its process three times
	FailQueueFull     FailReason = "queue_full"     // dropped
	FailBudget        FailReason = "budget"         // a budget is used up
	FailUnknownAgent  FailReason = "unknown_agent"  // the process that was to run it lacks the agent
	FailUnknown       FailReason = "unknown"
)
