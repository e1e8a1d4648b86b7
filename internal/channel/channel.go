// Package channel defines the boundary between the gateway and a chat network. A [Channel] receives messages from people and sends replies
// to them. It is one account on one network, for example one Telegram bot.
//
// A channel does not depend on lanes, stores or agents. It passes each message to its [Receiver]. It acknowledges the message to its provider only
// after Receive has returned without an error, because only then is the message durable. Each further ability of a channel is a small interface
// that the dispatcher finds by type assertion ([Typer], [Streamer], [Queuer], [Asker], [Filer]); channels do not need stubs.
//
// Sending never happens inside a turn. Replies are rows of the outbox, and one loop sends them through [Channel.Send], in order per chat. The
// [SendError] of a failed attempt decides whether and when the outbox repeats it.
//
// The package also declares what channels keep in a store ([Records]): pairings, settings of groups, and buttons. Its contract tests are in
// channeltest. It starts no goroutine.
package channel

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// Receiver takes the messages of a channel while the channel runs. It is a parameter of [Channel.Run] and not of a constructor, because the
// receiver sends through the channels: the process makes the channels first, then the receiver with them, and then runs them.
type Receiver interface {
	// Receive accepts one message. It blocks until the message is durable (milliseconds), but does not wait for the answer.
	// After [chat.ErrStoreUnavailable] and [chat.ErrDraining] the channel offers the same message again. The message's idempotency key makes that safe.
	Receive(ctx context.Context, m chat.Message) (chat.Receipt, error)
	// Lease acquires or renews the right to poll the provider under name: one process holds it at a time. ok is false while another process
	// holds it. After an error it is unknown which process holds it.
	Lease(ctx context.Context, name string) (ok bool, err error)
	// Alive returns nil while this process may act: its lease in the store has not ended. It does not access the store. A channel calls it before
	// it shows the preview of an answer.
	Alive() error
}

// Names of the channels of the gateway itself. Other channels are named by their network and account, see [Channel.Name].
const (
	// Web delivers into transcripts, where browsers and RPC clients read them.
	Web = "web"
	// Webhook posts to URLs; it receives nothing.
	Webhook = "webhook"
)

// WebTarget returns the address of a session for replies that are delivered into its transcript.
func WebTarget(key chat.SessionKey) chat.Target {
	return chat.Target{Channel: Web, ChatID: key.String()}
}

// InWords returns text followed by its choice in words, for channels and transcripts without buttons.
func InWords(text string, choice *chat.Choice) string {
	if choice == nil || choice.Typed == "" {
		return text
	}
	return text + "\n\n" + choice.Typed
}

// Channel is one account on one network.
type Channel interface {
	// Name is the name in targets, tables and metrics: `web`, `telegram:<bot id>`.
	Name() string
	// Run passes messages to the receiver until ctx is done. It returns nil after all its goroutines have ended. A failure of the
	// network does not end it: it backs off and continues. It returns an error only when the configuration can never work.
	Run(ctx context.Context, receiver Receiver) error
	// Send delivers one reply and returns the provider's id. Errors are [*SendError].
	Send(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
	// Status returns a snapshot for people; it never blocks.
	Status() Status
}

// Claim is the right of this process to send one reply, for one attempt. It is safe for concurrent use.
type Claim interface {
	// Check returns nil while no other process may send the reply. A channel that sends in several requests, or waits before one, calls it directly
	// before each request, and sends nothing after an error, which is a [*SendError] and must be returned unchanged.
	Check() error
	// Record stores how much of the reply has arrived, in the channel's own form; the next attempt, in any process, finds it as Progress of the
	// reply. The channel calls it after each part except the last. An error is a [*SendError] and must be returned unchanged: the claim has ended.
	Record(ctx context.Context, progress string) error
}

// Typer shows that an answer is being written. Typing is called every few seconds while a turn runs; it must not block longer than ctx.
type Typer interface {
	Typing(ctx context.Context, to chat.Target)
}

// Preview is the visible state of an answer that is being written.
type Preview struct {
	// Text is the answer so far.
	Text string
	// Step is the name of the agent's latest tool call without a result; "" if there is no such call. Since is when it began.
	Step  string
	Since time.Time
	// Steps is how many tool calls the turn has made.
	Steps int
	// Shown is what an earlier attempt of the turn passed to Record; "" = nothing. The channel continues the message that it names.
	Shown string
	// Record makes durable which message shows the answer, in the form of [chat.Reply].Progress, so that any process can replace it. The channel calls it on
	// its own goroutine when the provider has confirmed a new message. nil = it is not recorded.
	Record func(ctx context.Context, shown string)
}

// Streamer shows an answer while it is being written. Update receives its latest state; it may skip states and never blocks. The final text comes
// through Send.
type Streamer interface {
	Update(to chat.Target, runID string, p Preview)
	// Close ends the updates of a run's preview and waits for a running call, at most until ctx ends. It returns the Progress of the reply that replaces the
	// preview; "" = no message is known to show it. own is false when this process has no preview of the run. Otherwise its Send may know more: it also
	// waits for a call that had no result when ctx ended.
	Close(ctx context.Context, to chat.Target, runID string) (shown string, own bool)
	// Finish ends the preview of a run. If replaced is true, a reply with the final text follows and replaces it; otherwise its text stays, and its
	// step is removed.
	Finish(to chat.Target, runID string, replaced bool)
	// EndPreviews ends all previews permanently: later updates do nothing. When it returns, no call of a preview is running, unless ctx ended first.
	EndPreviews(ctx context.Context)
}

// Queuer shows a person that a message of theirs has to wait for another turn or for a slot.
type Queuer interface {
	// Queued marks the message with the given id ([chat.Message] ID, the run id of its turn). It may do nothing for a message that this process did
	// not receive, and must not block longer than ctx.
	Queued(ctx context.Context, to chat.Target, messageID string)
}

// Asker offers a choice as buttons. The buttons of a message work once, for [ButtonLife], for one person in one chat. A press sends the text of the
// button as a message of that person. For channels that do not implement Asker, the choice is part of the text of the reply.
type Asker interface {
	// Ask is [Channel.Send] for a reply with a choice. Control and bidirectional characters of a label are shown as escapes; a button without a
	// label or words is refused permanently.
	Ask(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
}

// Filer shows files. Channels that do not implement Filer receive a line of text instead of the file.
type Filer interface {
	// SendFile is [Channel.Send] for a reply with a file, whose path is below the directory for attachments. When the file does not exist, for
	// example because another replica made it in its own directory, a line of text is sent instead.
	SendFile(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
}

// Converser is a channel whose addresses are conversations. What other conversations send there becomes part of them, so that the agent knows what a person
// answers. Channels that do not implement it have no conversations, or write into them themselves.
type Converser interface {
	// Conversation returns the session that the next message of an address goes to, and the principal that owns a new one; "" = its first writer.
	Conversation(at chat.Target) (key chat.SessionKey, principal string, err error)
	// Arrived returns the text of the parts of a reply that have arrived, according to its Progress; "" = none.
	Arrived(r chat.Reply) string
}

// Status of a channel.
type Status struct {
	// Account is the configured name of the account, Label the name of the network for people.
	Account, Label                 string
	Configured, Running, Connected bool
	// State is `connected`, `degraded`, `conflict` (another program polls), `standby` (another node of this gateway polls), `disabled`
	// (the credential is refused) or `stopped`.
	State string
	// LastPollAge is the time since the last answer to a poll; negative before the first answer, or if the channel does not poll.
	LastPollAge time.Duration
	// LastError is one sentence without secrets.
	LastError string
	Mode      string
	// Down is true when the last call that can be repeated without harm, such as a poll, did not reach the provider. It is always false for a
	// channel that makes no such call.
	Down bool
}

// SendError is a reply that was not delivered.
type SendError struct {
	// Reason is a word from a closed set per channel; it is the metric's label.
	Reason string
	// Permanent is true when a further attempt is useless.
	Permanent bool
	// Gone is true when the address no longer accepts messages: the bot is blocked or was removed, or the chat does not exist. It implies Permanent.
	// The refusal of one message does not make its address gone.
	Gone bool
	// Unknown is true when the provider may have the message nevertheless. A further attempt may send it twice, and is counted as such.
	Unknown bool
	// RetryAfter is the wait that the provider asked for; 0 means the outbox's own backoff.
	RetryAfter time.Duration
	// Global is true when RetryAfter applies to every chat of the channel.
	Global bool
	// Uncounted is true when the message is not the cause: the provider was not reached, is out of service, or asked to wait. The failure does not
	// count as an attempt; only the age of the message bounds the attempts.
	Uncounted bool
	Cause     error
}

// Error returns the reason with the cause.
func (e *SendError) Error() string {
	if e.Cause != nil {
		return "sending: " + e.Reason + ": " + e.Cause.Error()
	}
	return "sending: " + e.Reason
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Cause }
