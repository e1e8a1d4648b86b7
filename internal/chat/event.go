package chat

import "time"

// EventKind is the kind of an event. The set is closed.
type EventKind string

// The kinds. The first group belongs to a run; exactly one of Final, Aborted and Failed ends it.
const (
	EventQueued  EventKind = "queued"  // the message has to wait for a turn or a slot
	EventStarted EventKind = "started" // its turn has begun
	EventDelta   EventKind = "delta"   // new text of the answer
	EventTool    EventKind = "tool"    // a tool call began, progressed or ended
	EventFinal   EventKind = "final"   // the answer is complete, or the message was merged into another
	EventAborted EventKind = "aborted" // stopped, superseded, stale, cleared, reset, draining
	EventFailed  EventKind = "failed"  // ended with an error, or was dropped

	EventSession   EventKind = "session"   // a session was created, reset, deleted, …; see Reason
	EventQuestions EventKind = "questions" // an agent asked a person, or a question was closed; see Reason
)

// Event is one change that subscribers receive. An event about a durable change is published after its commit. The events of a run are in
// order, and Seq is strictly increasing.
type Event struct {
	Kind    EventKind
	Session SessionKey
	// Principal owns the session, or is the one whose answer counts (Questions). It decides who sees the event.
	Principal string
	// RunID names the message. Each merged message has its own Final event with MergedInto set.
	RunID string
	Seq   int64
	Lane  string
	At    time.Time
	// Unattended: the run is of a job. Until its end it is not known whether its text is delivered, so only followers of the run receive what comes before.
	Unattended bool

	// Delta is new text; Text is the answer so far. Replace is true when Delta is the whole text again, as after the start of a second
	// attempt.
	Delta, Text string
	Replace     bool

	// Reason: for Aborted stop, stopall, superseded, stale, cleared, reset, draining; for Failed the [FailReason]; for
	// Session created, message, queued, run.started, run.finished, reset, delete; for Questions asked, answered, closed.
	Reason string
	// Message is a sentence for a person (Failed, and Final without text). Detail is the message of the agent's service, for
	// administrators; "" when there is no message.
	Message, Detail string
	// MergedInto is the run that includes the message (Final).
	MergedInto string
	// Command is true for the reply to a chat command.
	Command bool
	// EntrySeq is the transcript sequence of the final text; 0 = the text has no entry.
	EntrySeq int64
	Usage    Usage
	Tool     *ToolEvent
}

// ToolEvent is one step of a tool call.
type ToolEvent struct {
	Phase  string // start, update, result
	CallID string
	Name   string
	// Args and Result are JSON, cut to 16 KiB.
	Args, Result string
	IsError      bool
}

// FailReason is why a turn failed. The set is closed, and is also the metric label.
type FailReason string

// The reasons.
const (
	FailTimeout       FailReason = "timeout"        // the turn exceeded its time limit
	FailFirstByte     FailReason = "first_byte"     // the agent sent nothing within the limit
	FailSilence       FailReason = "silence"        // the agent stopped sending in the middle
	FailRateLimit     FailReason = "rate_limit"     // 429
	FailOverloaded    FailReason = "overloaded"     // 503, 529
	FailServer        FailReason = "server_error"   // other 5xx
	FailConnection    FailReason = "connection"     // refused, reset, DNS, TLS
	FailAuth          FailReason = "auth"           // 401, 403
	FailContextLength FailReason = "context_length" // the input does not fit
	FailRefusal       FailReason = "refusal"        // the model declined
	FailBadRequest    FailReason = "bad_request"    // other 4xx
	FailBadResponse   FailReason = "bad_response"   // the response does not follow the protocol
	FailProgram       FailReason = "program"        // a command ended with an error or cannot be started
	FailOutputLimit   FailReason = "output_limit"   // the answer is too long
	FailPanic         FailReason = "panic"          // a defect in a runner
	FailDead          FailReason = "dead"           // its process ended three times during the turn
	FailQueueFull     FailReason = "queue_full"     // dropped
	FailBudget        FailReason = "budget"         // a budget is exhausted
	FailUnknownAgent  FailReason = "unknown_agent"  // the process that should run it does not have the agent
	FailUnknown       FailReason = "unknown"
)
