// Package chat defines the terms of laneway: message, reply, session key, event and error.
//
// It only parses, formats and checks its own values, starts no goroutine, and imports only the
// standard library. Every other package uses its terms, so a term means the same in code, tables,
// wire and metrics.
//
// # Terms
//
// A [Message] is one input of a session. It is accepted (durable) under a sequence number of its
// session and ends with exactly one [Outcome]. A turn (run) is one execution of the agent for one
// or several messages. Its id is the id of the message that leads it, and stays the same across
// attempts. An [Event] reports a change of a run or a session after it happened. A [Reply] is a
// message that is sent to a channel.
//
// # Errors
//
// An [Error] has a [Code] for programs and a sentence for people. Every other error is a defect or
// a failure of the environment: transports report it as internal and log it in full.
package chat

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of messages from people.
const (
	// MaxText is the maximum length of a message in bytes of UTF-8.
	MaxText = 262_144
	// MaxMessageID is the maximum length of a message id in bytes; ids are printable ASCII without
	// spaces.
	MaxMessageID = 128
)

// Outcome is how an accepted message ended. Every accepted message has exactly one.
type Outcome string

// The outcomes. The set is closed, and is also the metric label.
const (
	OutcomeAnswered    Outcome = "answered"    // its turn succeeded
	OutcomeMerged      Outcome = "merged"      // the turn of another message included it
	OutcomeSuperseded  Outcome = "superseded"  // a newer message interrupted it
	OutcomeStopped     Outcome = "stopped"     // a person sent /stop
	OutcomeStale       Outcome = "stale"       // accepted before a /stopall and found after it
	OutcomeDropped     Outcome = "dropped"     // the queue was full
	OutcomeFailed      Outcome = "failed"      // its turn ended with an error
	OutcomeInterrupted Outcome = "interrupted" // the process ended and the message must not run again
	OutcomeDead        Outcome = "dead"        // its process ended three times during the turn
)

// QueueMode is what happens to a message that arrives while a turn of its session is running.
type QueueMode string

// The queue modes. "" means the default of the session.
const (
	ModeQueue     QueueMode = "queue"     // wait, first in first out
	ModeFollowup  QueueMode = "followup"  // the same under another name
	ModeInterrupt QueueMode = "interrupt" // cancel the running turn, drop waiting messages, run this one
	ModeCollect   QueueMode = "collect"   // combine all waiting messages into one turn
	ModeSteer     QueueMode = "steer"     // add it to the running turn if the agent supports that
)

// QueueModes lists every mode.
func QueueModes() []QueueMode {
	return []QueueMode{ModeQueue, ModeFollowup, ModeInterrupt, ModeCollect, ModeSteer}
}

// DropPolicy selects the message to remove when the queue of a session is full. The store enforces
// it.
type DropPolicy string

// The drop policies. "" means [DropOld].
const (
	DropOld DropPolicy = "old" // the oldest waiting message
	DropNew DropPolicy = "new" // the incoming message
)

// Sender is the sender of a message. ID identifies it within the channel. Name is for display only.
type Sender struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Outside, in a transcript: the text of the entry came from outside and has no authority, see
	// [Content].External.
	Outside bool `json:"outside,omitempty"`
}

// Target is an address on a channel: where a reply goes.
type Target struct {
	Channel string `json:"channel"`
	ChatID  string `json:"chatId"`
	Thread  string `json:"thread,omitempty"`
}

// IsZero reports whether t is empty.
func (t Target) IsZero() bool { return t == Target{} }

// Content is the part of a message that the agent sees. It is stored as JSON in the inbox.
type Content struct {
	Text        string       `json:"text"`
	Sender      Sender       `json:"sender"`
	Thread      string       `json:"thread,omitempty"`
	Network     string       `json:"network,omitempty"` // the id of the message in its chat network
	Attachments []Attachment `json:"attachments,omitempty"`
	// Answered is the message that it answers or quotes; nil if none.
	Answered *Answered `json:"answered,omitempty"`
	// System marks text of a program (a system event) instead of a person.
	System bool `json:"system,omitempty"`
	// External marks text from outside that has no authority (webhooks, forwarded text).
	External bool `json:"external,omitempty"`
	// Context is additional input of a stateless call: earlier messages that are not in the
	// transcript. With Options.KeepContext they are added to the transcript, before the message,
	// when its turn starts.
	Context []TranscriptEntry `json:"context,omitempty"`
	// Client are the tools of the program that sent it, in place of those of the gateway; nil = it
	// brings none.
	Client *ClientTools `json:"client,omitempty"`
	// Options define how it runs.
	Options Options `json:"options"`
}

// ClientTools are the tools of a program that sends a message. The gateway never calls them: a turn
// whose model calls some ends with these calls, and the program sends a further message with the
// results.
type ClientTools struct {
	Tools []ClientTool `json:"tools,omitempty"`
	// NoCalls is true when the model must answer without further calls.
	NoCalls bool `json:"noCalls,omitempty"`
	// OneCall is true when an answer must have at most one call.
	OneCall bool `json:"oneCall,omitempty"`
	// Rounds are the calls that the program has made for the message, with all their results, which
	// come from outside.
	Rounds []Round `json:"rounds,omitempty"`
}

// ClientTool is a tool of a program.
type ClientTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Schema is the JSON Schema of the arguments, an object.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// maxAnswered is how many characters of an answered message reach the agent.
const maxAnswered = 2000

// maxBeginning is how many characters name one of several messages.
const maxBeginning = 200

// Answered is a message that a person answers or quotes.
type Answered struct {
	// Message is its id in the chat network, or in the transcript its run; "" if unknown.
	Message string `json:"message,omitempty"`
	// Run is the run of its entry in the transcript; "" if unknown.
	Run string `json:"run,omitempty"`
	// Author is the display name of who wrote it, "" if unknown.
	Author string `json:"author,omitempty"`
	// Ours is true for a message of this gateway, and Own for one of the person who answers it.
	Ours bool `json:"ours,omitempty"`
	Own  bool `json:"own,omitempty"`
	// Selected is the part that the person selected, "" if none; Text is the whole, with a word for
	// what is not text.
	Selected string `json:"selected,omitempty"`
	Text     string `json:"text,omitempty"`
	// Part is true when Text is one of several messages that were sent together.
	Part bool `json:"part,omitempty"`
	// Origin names what has sent one of ours, for example the job and its time; "" if unknown.
	Origin string `json:"origin,omitempty"`
	// Outside is true for text without authority: of other people, and forwarded or quoted from
	// elsewhere.
	Outside bool `json:"outside,omitempty"`
}

// IsOutside reports whether the answered text has no authority; nil has none and is not from
// outside.
func (a *Answered) IsOutside() bool { return a != nil && a.Outside }

// Bound cuts what is quoted: the selected part has precedence, and repeats of it are left out.
func (a *Answered) Bound() *Answered {
	out := *a
	out.Selected = CutWords(strings.TrimSpace(a.Selected), maxAnswered)
	if out.Text = strings.TrimSpace(a.Text); out.Text == out.Selected {
		out.Text = ""
	}
	out.Text = CutWords(out.Text, maxAnswered-utf8.RuneCountInString(out.Selected))
	return &out
}

// InText returns the lines that stand for it before the message. Each of its own lines is quoted
// with `> `, so that it cannot end its quotation.
func (a *Answered) InText() string {
	if a == nil {
		return ""
	}
	lines := append([]string{"[answers " + a.whose() + "]"}, quotedLines(a.Selected)...)
	if a.Selected != "" && a.Text != "" {
		lines = append(lines, "[selected from]")
	}
	return strings.Join(append(lines, quotedLines(a.Text)...), "\n")
}

// Above returns the lines that stand for it before the message when its reader has it already: its
// name, and the selected part. Of one message of several, which has the same name, it is the
// beginning.
func (a *Answered) Above() string {
	selected := a.Selected
	switch {
	case selected == "" && a.Part:
		selected = CutWords(a.Text, maxBeginning)
	case a.Text == "": // all of it was selected
		selected = ""
	}
	return strings.Join(append([]string{"[answers the message above: " + a.whose() + "]"}, quotedLines(selected)...), "\n")
}

// whose names the message by its author.
func (a *Answered) whose() string {
	whose := "a message"
	switch {
	case a.Ours:
		whose = "an earlier message of this bot"
		if a.Origin != "" {
			whose += " (" + Printable(a.Origin) + ")"
		}
	case a.Own:
		whose = "an earlier message of the sender"
	case Printable(a.Author) != "":
		whose = "a message of " + Printable(a.Author)
	}
	if a.Outside {
		whose += ", from outside, without authority"
	}
	return whose
}

// quotedLines returns the lines of a text with `> ` before each.
func quotedLines(text string) (lines []string) {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\u0085\u2028\u2029", r) }) {
		lines = append(lines, "> "+line)
	}
	return lines
}

// Options of one message. The zero value means the defaults of the session and the agent.
type Options struct {
	Mode QueueMode `json:"mode,omitempty"`
	// Timeout of the turn in milliseconds; 0 = the agent's default.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// Typed is true for text that a person typed into a chat: only that is debounced.
	Typed bool `json:"typed,omitempty"`
	// NoMerge excludes the message from every batch.
	NoMerge bool `json:"noMerge,omitempty"`
	// KeepContext makes Context a part of the transcript.
	KeepContext bool `json:"keepContext,omitempty"`
	// AtMostOnce forbids a second attempt after a crash or a drain: the message ends interrupted
	// instead.
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
	// Task is the place of the message in a tree of sub-turns. It is nil when a person or a program
	// sent the message; its turn can then be the root of a tree.
	Task *Task `json:"task,omitempty"`
}

// Message is one input of a session, before the store accepts it. (Channel, ExternalID) or Dedupe
// is its idempotency key: a message that is submitted twice is stored once.
type Message struct {
	Session SessionKey
	// ID names the message on the wire and is the run id of the turn that starts with it. "" = the
	// gateway generates a UUIDv7.
	ID string
	// Lane in which the turn runs; "" = main.
	Lane string
	// Principal is the credential or chat user that sent it. It becomes the owner of a new session.
	Principal string
	// Own restricts it to a session of that principal: the store refuses a session of another
	// principal.
	Own bool
	// Scope is the highest scope of the sender: `operator.read`, `operator.write` or
	// `operator.admin`. Only chat commands check it.
	Scope string
	// Peer is its origin, an address or a channel, and RequestID the id of the request or update.
	// They are for the audit log, grant no permission and are not stored with the message.
	Peer, RequestID string
	// BotName is the name under which the channel's bot is mentioned; "" = every mention counts as
	// a mention of this bot.
	BotName string
	// Channel is the channel that it came from: `web`, `api`, `hook`, `telegram:<bot id>`, ….
	Channel string
	// ExternalID is the provider's number of the message or update; 0 = it has no number.
	ExternalID int64
	// Dedupe is the globally unique idempotency key; "" = it has no key.
	Dedupe string
	// ParamsHash distinguishes a repeated call from another call with the same Dedupe; "" = not
	// compared.
	ParamsHash string
	// Branch is the point at which its session, which must be new, begins; nil = the session begins
	// empty.
	Branch  *Branch
	Content Content
}

// MaxBranches is the maximum length of a chain of branches.
const MaxBranches = 100

// Branch is a point in a transcript. A session that begins there has the entries up to Seq, without
// a copy of them.
type Branch struct {
	Session SessionKey
	// SessionID is the transcript. Seq is the number of one of its own entries.
	SessionID string
	Seq       int64
}

// Receipt is the answer to an accepted message. When the caller has it, the message is durable.
type Receipt struct {
	// RunID is the id of the message, and of the run that starts with it.
	RunID   string
	Session SessionKey
	Seq     int64
	// AcceptedAt is the store's time of acceptance.
	AcceptedAt time.Time
	// Duplicate is true when the same message was accepted before. Outcome and State are then its
	// progress.
	Duplicate bool
	// State is "waiting", "running" or "done".
	State   string
	Outcome Outcome
	// Queued is true when it has to wait. Position is the number of messages before it.
	Queued   bool
	Position int
	// Command is true when the message was a chat command. The command was executed, and the
	// message is not in the queue.
	Command bool
}

// Reply is one outgoing message.
type Reply struct {
	// ID is the outbox id. It is the same for all attempts, so that a channel with idempotent sends
	// can use it.
	ID     string
	RunID  string
	Target Target
	// Principal is the principal on whose behalf it is sent; "" = no principal.
	Principal string
	// Kind is "reply", "notice", "command" (the answer to a chat command) or "webhook".
	Kind string
	Text string
	// Choice is what the person may do next; nil when no choice is offered.
	Choice *Choice
	// File is sent instead of Text; nil when the reply has no file. Text then represents the file
	// in channels that cannot show it.
	File *Attachment
	// Attempt counts from 1.
	Attempt int
	// Progress is what earlier attempts recorded as delivered, in the format of the channel; ""
	// when no part was delivered.
	Progress string
	// Origin is set when another conversation than that of Target has made it.
	Origin *Origin
}

// Button is one option that a person may choose.
type Button struct {
	// Label is what people see.
	Label string `json:"label"`
	// Text is sent as if the person had typed it, for example a chat command. It is never "".
	Text string `json:"text"`
}

// Choice is a choice that is offered to a person below a message. Typed replaces the buttons in
// channels that have no buttons.
type Choice struct {
	// For is the id of the person who may choose, as in [Sender]; "" = each person who may send
	// messages there.
	For  string     `json:"for,omitempty"`
	Rows [][]Button `json:"rows"`
	// Typed is a sentence that says what to write instead.
	Typed string `json:"typed,omitempty"`
}

// Sent is a provider's receipt for one sent reply.
type Sent struct {
	// ProviderID is the provider's id of the message; never empty for a delivered reply.
	ProviderID string
	// At is where it has arrived, for example outside of a topic that was deleted; zero = at the
	// address of the reply.
	At Target
	// Parts are the messages that have arrived since the last progress that was recorded.
	Parts []Part
}

// Part is a message of a chat network that shows a part of a reply.
type Part struct {
	At      Target
	Message string // its id there
	// From and To bound what it shows of the text as people see it; they are equal for a file.
	From, To int
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
	// Covers are the entries that a summary replaces; zero = the entry is not a summary.
	Covers SeqRange `json:"covers,omitzero"`
	// Outside: the text comes from outside or is derived from such text. Examples are a forwarded
	// message, the result of a tool of another server, the answer of a turn that had such input,
	// and a summary of such entries. A turn that is given the entry asks before it acts.
	Outside bool `json:"outside,omitempty"`
	// Origin is what wrote the entry from outside of the conversation; nil = the entry belongs to a
	// turn of it.
	Origin *Origin `json:"origin,omitempty"`
	// Folded is how often each origin wrote what this entry stands for in a conversation for an
	// agent; nil = it is an entry of the transcript.
	Folded map[string]int `json:"folded,omitempty"`
	At     time.Time      `json:"at"`
}

// Kinds of an [Origin].
const (
	OriginJob      = "job"
	OriginReminder = "reminder"
	OriginAlert    = "alert"   // about a job
	OriginMessage  = "message" // of a tool
	OriginAnswer   = "answer"  // of a turn that delivers to another conversation
)

// Origin is what sends something into a conversation other than the one in which it was made. What
// a person then sees there becomes an entry of that conversation, so that its agent knows what the
// person answers.
type Origin struct {
	// Kind is job, reminder, alert, message or answer.
	Kind string `json:"kind"`
	// Job is the id of a job, and Name its name for people.
	Job  string `json:"job,omitempty"`
	Name string `json:"name,omitempty"`
	// Run is the run that made it, and Slot its time in the schedule.
	Run  string    `json:"run,omitempty"`
	Slot time.Time `json:"slot,omitzero"`
	// By is the session in which it was made.
	By string `json:"by,omitempty"`
	// Outside: it contains text from outside, see [TranscriptEntry].Outside.
	Outside bool `json:"outside,omitempty"`
	// Once: a reminder, or another job that fires once, has made it. It is sent however late it is,
	// and then names its planned time; the time zone of Slot is that of its reader.
	Once bool `json:"once,omitempty"`
}

// Who names the origin as the subject of a sentence. Names of jobs are reduced to one line.
func (o *Origin) Who() string {
	name := Printable(o.Name)
	switch o.Kind {
	case OriginJob:
		return "job " + name
	case OriginReminder:
		return "a reminder"
	case OriginAlert:
		return "an alert about job " + name
	default:
		return "the agent, from another conversation,"
	}
}

// The stop reasons of notes about tool calls. StopForeign: the result contained text from outside,
// see [ToolResult].
const (
	StopTool    = "tool"
	StopForeign = "tool-foreign"
)

// StopCalls is the stop reason of an answer that ends with calls of [ClientTools], and of the entry
// that has them as JSON.
const StopCalls = "tool_calls"

// NoReply is the answer of an agent that has nothing to report from a job's run. StopSilent is the
// stop reason of its entry, which has no text and is shown to nobody: only the agent gets it.
const (
	NoReply    = "NO_REPLY"
	StopSilent = "silent"
)

// SeqRange is a range of entries of a transcript by their numbers, both included.
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

// CheckText returns an error when text from outside is not UTF-8, contains NUL, is empty or blank,
// or is longer than limit bytes.
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

// CleanText makes the output of a program valid for every store and wire format: it replaces
// invalid UTF-8 and removes NUL.
func CleanText(s string) string {
	if !strings.ContainsRune(s, 0) && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// Flanks reports whether a mark of Markdown between two characters can open and whether it can
// close. It is the rule of CommonMark, except that ideographic punctuation counts as a letter, and
// that a mark between other punctuation and an ideographic character can do both.
func Flanks(before, after rune) (opens, closes bool) {
	wideBefore, wideAfter := ideographic(before), ideographic(after)
	spaceBefore, spaceAfter := unicode.IsSpace(before), unicode.IsSpace(after)
	pointBefore := !wideBefore && (unicode.IsPunct(before) || unicode.IsSymbol(before))
	pointAfter := !wideAfter && (unicode.IsPunct(after) || unicode.IsSymbol(after))
	opens = !spaceAfter && (!pointAfter || spaceBefore || pointBefore || wideBefore)
	closes = !spaceBefore && (!pointBefore || spaceAfter || pointAfter || wideAfter)
	return opens, closes
}

// ideographic reports whether a character is Chinese, Japanese or Korean, with their punctuation,
// wide forms and selectors of variants.
func ideographic(r rune) bool {
	switch {
	case r < 0x1100, r == 0x3000: // the wide space is white space
		return false
	case r <= 0x11FF, r >= 0x2E80 && r <= 0x4DBF, r >= 0x4E00 && r <= 0xA4CF, r >= 0xA960 && r <= 0xA97F, r >= 0xAC00 && r <= 0xD7FF, r >= 0xF900 && r <= 0xFAFF,
		r >= 0xFE10 && r <= 0xFE1F, r >= 0xFE30 && r <= 0xFE6F, r >= 0xFF01 && r <= 0xFFEE, r >= 0x16FE0 && r <= 0x18DFF, r >= 0x1AFF0 && r <= 0x1B2FF,
		r >= 0x1F200 && r <= 0x1F2FF, r >= 0x20000 && r <= 0x3FFFF, r >= 0xE0100 && r <= 0xE01EF:
		return true
	}
	return false
}

// Cut shortens s to at most n bytes at a character boundary.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// CutWords shortens s to at most n characters, at a space if one is near, and says so with an
// ellipsis.
func CutWords(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	if n < 2 {
		return ""
	}
	r := []rune(s)[:n-1]
	for i := len(r); i > len(r)/2; i-- {
		if unicode.IsSpace(r[i-1]) {
			r = r[:i]
			break
		}
	}
	return strings.TrimRightFunc(string(r), unicode.IsSpace) + "…"
}

// CheckMessageID returns an error unless an id or idempotency key of a caller has 1 to 128
// printable ASCII characters without spaces.
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

// ChannelKind returns a channel's name without its account, for metric labels and configuration
// keys: "telegram" for "telegram:shop".
func ChannelKind(channel string) string {
	kind, _, _ := strings.Cut(channel, ":")
	return kind
}

// Attachment is a file that came with a message or that an agent made for a person. It is stored
// under a name that the gateway generates.
type Attachment struct {
	Name     string `json:"name"` // as shown; not a path
	MIMEType string `json:"mimeType,omitempty"`
	Path     string `json:"path,omitempty"` // relative to the attachment directory
	Size     int64  `json:"size,omitempty"` // bytes
	// ID is the id of a kept file of an answer, as of [Upload]; "" for every other file.
	ID string `json:"id,omitempty"`
}

// String describes a file for people and agents: name, kind and size, always in one line.
func (a Attachment) String() string {
	return fmt.Sprintf("%s, %s, %d bytes", Printable(a.Name), Printable(a.MIMEType), a.Size)
}

// InText represents a file of a message in plain text: in the input of a model and in the
// transcript.
func (a Attachment) InText() string { return AttachmentMark + a.String() + "]" }

// AttachmentMark begins the representation of a file of a message.
const AttachmentMark = "[attachment: "

// Line represents a file of an answer in plain text: in the transcript, and in channels that cannot
// show files. A kept file has its id at the end: `[file: chart.png, image/png, 81 bytes, file-…]`.
func (a Attachment) Line() string {
	if a.ID != "" {
		return "[file: " + a.String() + ", " + a.ID + "]"
	}
	return "[file: " + a.String() + "]"
}

// Limits of files that come with messages.
const (
	// MaxUpload is the largest size in bytes of one file that a client uploads.
	MaxUpload = 20 << 20
	// MaxAttachments is the largest number of files of one message.
	MaxAttachments = 16
)

// Upload is a file that a client has uploaded.
type Upload struct {
	// ID names it to clients: `file-` and digits. It contains the owner in encoded form.
	ID string
	Attachment
	// Purpose is what the client wrote about it; it has no effect.
	Purpose   string
	CreatedAt time.Time
}

// maxFileName is how many characters of a file name are shown.
const maxFileName = 120

// FileName returns the part of an untrusted name that is shown: its last element, in one line, at
// most 120 characters, never empty. The result must not be used as a path.
func FileName(name string) string {
	name = Printable(path.Base(strings.ReplaceAll(CleanText(name), `\`, "/")))
	if r := []rune(name); len(r) > maxFileName {
		name = string(r[:maxFileName])
	}
	if name = strings.TrimSpace(name); name == "" || name == "." || name == ".." || name == "/" {
		return "file"
	}
	return name
}

// Printable removes characters that make a line look different from its content, see [Unprintable].
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if Unprintable(r) {
			return -1
		}
		return r
	}, s)
}
