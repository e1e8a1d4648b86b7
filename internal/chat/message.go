package chat

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of what people may send.
const (
	// MaxText is the longest text of one message in bytes of UTF-8.
	MaxText = 262_144
	// MaxMessageID is the longest id of a message in bytes; ids are printable ASCII without blanks.
	MaxMessageID = 128
)

// Outcome is how an accepted message ended. Every accepted message gets exactly one.
type Outcome string

// The outcomes; the set is closed and is also the metric label.
const (
	OutcomeAnswered    Outcome = "answered"    // its turn ended well
	OutcomeMerged      Outcome = "merged"      // another message's turn took it along
	OutcomeSuperseded  Outcome = "superseded"  // a newer message interrupted it
	OutcomeStopped     Outcome = "stopped"     // a person sent /stop
	OutcomeStale       Outcome = "stale"       // accepted before a /stopall, surfaced after it
	OutcomeDropped     Outcome = "dropped"     // the queue was full
	OutcomeFailed      Outcome = "failed"      // its turn ended with an error
	OutcomeInterrupted Outcome = "interrupted" // the process ended and the message must not run again
	OutcomeDead        Outcome = "dead"        // it ended its process three times
)

// QueueMode is what happens to a message that arrives while a turn of its session runs.
type QueueMode string

// The queue modes. "" means the session's default.
const (
	ModeQueue     QueueMode = "queue"     // wait, first in first out
	ModeFollowup  QueueMode = "followup"  // the same under another name
	ModeInterrupt QueueMode = "interrupt" // cancel what runs, drop what waits, run this
	ModeCollect   QueueMode = "collect"   // everything that waits becomes one turn
	ModeSteer     QueueMode = "steer"     // add it to the running turn if that can take it
)

// QueueModes lists every mode.
func QueueModes() []QueueMode {
	return []QueueMode{ModeQueue, ModeFollowup, ModeInterrupt, ModeCollect, ModeSteer}
}

// DropPolicy is which message loses its place when a session's queue is full. The store enforces it.
type DropPolicy string

// The drop policies. "" means [DropOld].
const (
	DropOld DropPolicy = "old" // the oldest waiting message
	DropNew DropPolicy = "new" // the incoming one
)

// Sender is who sent a message. Identity is ID within the channel; Name is decoration and never identity.
type Sender struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Target is an address on a channel: where a reply goes.
type Target struct {
	Channel string `json:"channel"`
	ChatID  string `json:"chatId"`
	Thread  string `json:"thread,omitempty"`
}

// IsZero reports whether t is no address.
func (t Target) IsZero() bool { return t == Target{} }

// Content is the part of a message that the agent sees. It is stored as JSON in the inbox.
type Content struct {
	Text        string       `json:"text"`
	Sender      Sender       `json:"sender"`
	Thread      string       `json:"thread,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
	// System marks text of a program (a system event), not of a person.
	System bool `json:"system,omitempty"`
	// External marks text that comes from outside and has no authority (webhooks, forwarded text).
	External bool `json:"external,omitempty"`
	// Context is further input of a stateless call: earlier messages that are not in the transcript. With Options.KeepContext they go into the
	// transcript, before the message, when its turn starts.
	Context []TranscriptEntry `json:"context,omitempty"`
	// Options are how it is to be run.
	Options Options `json:"options"`
}

// Options of one message. The zero value means the session's and the agent's defaults.
type Options struct {
	Mode QueueMode `json:"mode,omitempty"`
	// Timeout of the turn in milliseconds; 0 = the agent's default.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// Typed is true for text that a person typed into a chat: only that is debounced.
	Typed bool `json:"typed,omitempty"`
	// NoMerge keeps the message out of every batch.
	NoMerge bool `json:"noMerge,omitempty"`
	// KeepContext makes Context a part of the transcript.
	KeepContext bool `json:"keepContext,omitempty"`
	// AtMostOnce forbids a second attempt after a crash or a drain: the message ends interrupted instead.
	AtMostOnce bool `json:"atMostOnce,omitempty"`
	// ReplyTo is where the answer goes besides the transcript; zero = nowhere.
	ReplyTo Target `json:"replyTo,omitzero"`
	// StopOwn restricts a /stop or /stopall in this message to turns and messages of its sender.
	StopOwn bool `json:"stopOwn,omitempty"`
	// Model, Thinking, SystemPrompt and Params are passed to the runner.
	Model        string         `json:"model,omitempty"`
	Thinking     string         `json:"thinking,omitempty"`
	SystemPrompt string         `json:"systemPrompt,omitempty"`
	Params       map[string]any `json:"params,omitempty"`
	// Task places the message in a tree of sub-turns; nil = a person or a program sent it, and its turn can be the root of one.
	Task *Task `json:"task,omitempty"`
}

// Message is one input of a session, before the store accepts it. (Channel, ExternalID) or Dedupe is its
// idempotency key: the same message offered twice is one message.
type Message struct {
	Session SessionKey
	// ID names the message on the wire and becomes the run id of the turn that it leads. "" = the gateway makes a UUIDv7.
	ID string
	// Lane in which the turn runs; "" = main.
	Lane string
	// Principal is the credential or chat user that sent it. It owns the session if the session is new.
	Principal string
	// Own restricts it to a session of that principal: the store refuses a session of another principal.
	Own bool
	// Scope is the most that the sender may do: `operator.read`, `operator.write` or `operator.admin`. Only chat commands ask for it.
	Scope string
	// Peer is where it came from, an address or a channel, and RequestID which request or update it was there. They are for the log of changes, give no
	// right and are not kept with the message.
	Peer, RequestID string
	// BotName is the name under which the channel's bot is mentioned; "" = every mention means us.
	BotName string
	// Channel is where it came from: `web`, `api`, `hook`, `telegram:<bot id>`, ….
	Channel string
	// ExternalID is the provider's number of the message or update; 0 = none.
	ExternalID int64
	// Dedupe is the idempotency key, unique over everything; "" = none.
	Dedupe string
	// ParamsHash distinguishes a repeated call from another call with the same Dedupe; "" = not compared.
	ParamsHash string
	// Branch is where its session begins, which must be a new one; nil = with nothing.
	Branch  *Branch
	Content Content
}

// MaxBranches is how many times one after the other a conversation may branch.
const MaxBranches = 100

// Branch is a point in a transcript: a session that begins there has the entries up to Seq, without a copy.
type Branch struct {
	Session SessionKey
	// SessionID is the transcript, Seq the number of an entry of its own.
	SessionID string
	Seq       int64
}

// Receipt is the answer to an accepted message. The message is durable when the caller has it.
type Receipt struct {
	// RunID is the id of the message (and of the run that it leads).
	RunID   string
	Session SessionKey
	Seq     int64
	// AcceptedAt is the store's time of acceptance.
	AcceptedAt time.Time
	// Duplicate is true when the same message had been accepted before; Outcome and State are how far it got.
	Duplicate bool
	// State is "held", "waiting", "running" or "done".
	State   string
	Outcome Outcome
	// Queued is true when it has to wait; Position is how many messages are before it.
	Queued   bool
	Position int
	// Command is true when the message was a chat command; it was executed and has no place in the queue.
	Command bool
}

// Reply is one outgoing message.
type Reply struct {
	// ID is the outbox id; stable over attempts, so that a channel with idempotent sends can use it.
	ID     string
	RunID  string
	Target Target
	// Principal for whom it is sent; "" = no principal.
	Principal string
	// Kind is "reply", "notice", "command" (the answer to a chat command) or "webhook".
	Kind string
	Text string
	// Choice is what the person may go on with; nil = nothing.
	Choice *Choice
	// File is sent instead of Text, which is the line that stands for it where files cannot be shown; nil = none.
	File *Attachment
	// Attempt counts from 1.
	Attempt int
	// Progress is what earlier attempts have recorded as arrived, in the form of the channel; "" = nothing.
	Progress string
}

// Button is one of the things that a person may choose.
type Button struct {
	// Label is what people see.
	Label string `json:"label"`
	// Text is sent as if the person had typed it: a chat command for example. Never "".
	Text string `json:"text"`
}

// Choice is what a person is offered below a message. Where there are no buttons, Typed takes their place.
type Choice struct {
	// For is the person who may choose, an id as in [Sender]; "" = each person who may send messages there.
	For  string     `json:"for,omitempty"`
	Rows [][]Button `json:"rows"`
	// Typed is a sentence with what to write instead.
	Typed string `json:"typed,omitempty"`
}

// Sent is a provider's receipt for one sent reply.
type Sent struct {
	// ProviderID is the provider's id of the message; never empty for a delivered reply.
	ProviderID string
}

// TranscriptEntry is one line of a conversation.
type TranscriptEntry struct {
	Seq        int64  `json:"seq"`
	RunID      string `json:"runId,omitempty"`
	Role       string `json:"role"` // user, assistant, system
	Text       string `json:"text"`
	Sender     Sender `json:"sender,omitzero"`
	Tokens     int    `json:"tokens,omitempty"`
	StopReason string `json:"stopReason,omitempty"` // stop, stopped, error, …
	Command    bool   `json:"command,omitempty"`
	// Covers are the rows that a summary stands for; zero = it is no summary.
	Covers SeqRange `json:"covers,omitzero"`
	// Outside: the text comes from outside, or was made from text that does: a forwarded message, the result of a tool of another server, what a turn answered
	// that was given some, a summary of such rows. A turn that is given the row asks before it acts.
	Outside bool      `json:"outside,omitempty"`
	At      time.Time `json:"at"`
}

// The stop reasons of notes about calls of tools. StopForeign: the result had text from outside, see [ToolResult].
const (
	StopTool    = "tool"
	StopForeign = "tool-foreign"
)

// SeqRange is rows of a transcript by their numbers, both included.
type SeqRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Roles of a transcript entry.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
)

// CheckText returns what is wrong with text that came from outside: not UTF-8, a NUL, empty or blank, or longer than limit bytes.
func CheckText(field, text string, limit int) error {
	switch {
	case !utf8.ValidString(text):
		return Errorf(CodeInvalid, "%s is not valid UTF-8", field)
	case strings.ContainsRune(text, 0):
		return Errorf(CodeInvalid, "%s must not contain U+0000", field)
	case len(text) > limit:
		return Errorf(CodeLimit, "%s has %d bytes; the limit is %d", field, len(text), limit).With("field", field).With("limit", limit)
	case strings.TrimSpace(text) == "":
		return Errorf(CodeInvalid, "%s must not be blank", field)
	}
	return nil
}

// CleanText makes text that a program produced fit for every store and wire: invalid UTF-8 is replaced, NUL removed.
func CleanText(s string) string {
	if !strings.ContainsRune(s, 0) && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// Cut shortens s to at most n bytes at a character border.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// CheckMessageID returns what is wrong with an id or idempotency key that a caller chose: 1 to 128 printable ASCII characters without blanks.
func CheckMessageID(field, id string) error {
	if id == "" || len(id) > MaxMessageID {
		return Errorf(CodeInvalid, "%s must have 1 to %d characters", field, MaxMessageID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return Errorf(CodeInvalid, "%s must be printable ASCII without blanks", field)
		}
	}
	return nil
}
