// Package channel defines the boundary between the gateway and a chat network. A [Channel] receives
// messages from people and sends replies to them. It is one account on one network, for example one
// Telegram bot.
//
// A channel does not depend on lanes, stores or agents. It passes each message to its [Receiver].
// It acknowledges the message to its provider only after Receive has returned without an error,
// because only then is the message durable. Each further ability of a channel is a small interface
// that the dispatcher finds by type assertion ([Typer], [Streamer], [Queuer], [Asker], [Filer]);
// channels do not need stubs.
//
// Sending never happens inside a turn. Replies are rows of the outbox, and one loop sends them
// through [Channel.Send], in order per chat. The [SendError] of a failed attempt decides whether
// and when the outbox repeats it.
//
// The package also declares what channels keep in a store ([Records]): pairings, settings of
// groups, and buttons. Its contract tests are in channeltest. It starts no goroutine.
package channel

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Receiver takes the messages of a channel while the channel runs. It is a parameter of
// [Channel.Run] and not of a constructor, because the receiver sends through the channels: the
// process makes the channels first, then the receiver with them, and then runs them.
type Receiver interface {
	// Receive accepts one message. It blocks until the message is durable (milliseconds), but does
	// not wait for the answer. After [chat.ErrStoreUnavailable] and [chat.ErrDraining] the channel
	// offers the same message again. The message's idempotency key makes that safe.
	Receive(ctx context.Context, m chat.Message) (chat.Receipt, error)
	// Lease acquires or renews the right to poll the provider under name: one process holds it at a
	// time. ok is false while another process holds it. After an error it is unknown which process
	// holds it.
	Lease(ctx context.Context, name string) (ok bool, err error)
	// Alive returns nil while this process may act: its lease in the store has not ended. It does
	// not access the store. A channel calls it before it shows the preview of an answer.
	Alive() error
}

// Names of the channels of the gateway itself. Other channels are named by their network and
// account, see [Channel.Name].
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

// InWords returns text followed by its choice in words, for channels and transcripts without
// buttons.
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
	// Run passes messages to the receiver until ctx is done. It returns nil after all its
	// goroutines have ended. A failure of the network does not end it: it backs off and continues.
	// It returns an error only when the configuration can never work.
	Run(ctx context.Context, receiver Receiver) error
	// Send delivers one reply and returns the provider's id. Errors are [*SendError].
	Send(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
	// Status returns a snapshot for people; it never blocks.
	Status() Status
}

// Claim is the right of this process to send one reply, for one attempt. It is safe for concurrent
// use.
type Claim interface {
	// Check returns nil while no other process may send the reply. A channel that sends in several
	// requests, or waits before one, calls it directly before each request, and sends nothing after
	// an error, which is a [*SendError] and must be returned unchanged.
	Check() error
	// Record stores how much of the reply has arrived, in the channel's own form; the next attempt,
	// in any process, finds it as Progress of the reply. The channel calls it after each part
	// except the last, with the messages that have arrived since the last call. An error is a
	// [*SendError] and must be returned unchanged: the claim has ended.
	Record(ctx context.Context, progress string, arrived ...chat.Part) error
}

// Typer shows that an answer is being written. Typing is called every few seconds while a turn
// runs; it must not block longer than ctx.
type Typer interface {
	Typing(ctx context.Context, to chat.Target)
}

// Preview is the visible state of an answer that is being written.
type Preview struct {
	// Text is the answer so far.
	Text string
	// Step is the name of the agent's latest tool call without a result; "" if there is no such
	// call. Since is when it began.
	Step  string
	Since time.Time
	// Steps is how many tool calls the turn has made.
	Steps int
	// Shown is what an earlier attempt of the turn passed to Record; "" = nothing. The channel
	// continues the message that it names.
	Shown string
	// Record makes durable which message shows the answer, in the form of [chat.Reply].Progress, so
	// that any process can replace it. The channel calls it on its own goroutine when the provider
	// has confirmed a new message. nil = it is not recorded.
	Record func(ctx context.Context, shown string)
}

// Streamer shows an answer while it is being written. Update receives its latest state; it may skip
// states and never blocks. The final text comes through Send.
type Streamer interface {
	Update(to chat.Target, runID string, p Preview)
	// Close ends the updates of a run's preview and waits for a running call, at most until ctx
	// ends. It returns the Progress of the reply that replaces the preview; "" = no message is
	// known to show it. own is false when this process has no preview of the run. Otherwise its
	// Send may know more: it also waits for a call that had no result when ctx ended.
	Close(ctx context.Context, to chat.Target, runID string) (shown string, own bool)
	// Finish ends the preview of a run. If replaced is true, a reply with the final text follows
	// and replaces it; otherwise its text stays, and its step is removed.
	Finish(to chat.Target, runID string, replaced bool)
	// EndPreviews ends all previews permanently: later updates do nothing. When it returns, no call
	// of a preview is running, unless ctx ended first.
	EndPreviews(ctx context.Context)
}

// Queuer shows a person that a message of theirs has to wait for another turn or for a slot.
type Queuer interface {
	// Queued marks the message with the given id ([chat.Message] ID, the run id of its turn). It
	// may do nothing for a message that this process did not receive, and must not block longer
	// than ctx.
	Queued(ctx context.Context, to chat.Target, messageID string)
}

// Asker offers a choice as buttons. The buttons of a message work once, for [ButtonLife], for one
// person in one chat. A press sends the text of the button as a message of that person. For
// channels that do not implement Asker, the choice is part of the text of the reply.
type Asker interface {
	// Ask is [Channel.Send] for a reply with a choice. Control and bidirectional characters of a
	// label are shown as escapes; a button without a label or words is refused permanently.
	Ask(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
}

// Filer shows files. Channels that do not implement Filer receive a line of text instead of the
// file.
type Filer interface {
	// SendFile is [Channel.Send] for a reply with a file, whose path is below the directory for
	// attachments. When the file does not exist, for example because another replica made it in its
	// own directory, a line of text is sent instead.
	SendFile(ctx context.Context, r chat.Reply, claim Claim) (chat.Sent, error)
}

// Converser is a channel whose addresses are conversations. What other conversations send there
// becomes part of them, so that the agent knows what a person answers. Channels that do not
// implement it have no conversations, or write into them themselves.
type Converser interface {
	// Conversation returns the session that the next message of an address goes to, and the
	// principal that owns a new one; "" = its first writer.
	Conversation(at chat.Target) (key chat.SessionKey, principal string, err error)
	// Arrived returns the text of the parts of a reply that have arrived, according to its
	// Progress, and where they did; "" = none.
	Arrived(r chat.Reply) (text string, at chat.Target)
	// Shows returns what a [chat.Part] with these bounds shows of the text of a reply.
	Shows(text string, from, to int) string
}

// Status of a channel.
type Status struct {
	// Account is the configured name of the account, Label the name of the network for people.
	Account, Label                 string
	Configured, Running, Connected bool
	// State is `connected`, `degraded`, `conflict` (another program polls), `standby` (another node
	// of this gateway polls), `disabled` (the credential is refused) or `stopped`.
	State string
	// LastPollAge is the time since the last answer to a poll; negative before the first answer, or
	// if the channel does not poll.
	LastPollAge time.Duration
	// LastError is one sentence without secrets.
	LastError string
	Mode      string
	// Down is true when the last call that can be repeated without harm, such as a poll, did not
	// reach the provider. It is always false for a channel that makes no such call.
	Down bool
}

// SendError is a reply that was not delivered.
type SendError struct {
	// Reason is a word from a closed set per channel; it is the metric's label.
	Reason string
	// Permanent is true when a further attempt is useless.
	Permanent bool
	// Gone is true when the address no longer accepts messages: the bot is blocked or was removed,
	// or the chat does not exist. It implies Permanent. The refusal of one message does not make
	// its address gone.
	Gone bool
	// Unknown is true when the provider may have the message nevertheless. A further attempt may
	// send it twice, and is counted as such.
	Unknown bool
	// RetryAfter is the wait that the provider asked for; 0 means the outbox's own backoff.
	RetryAfter time.Duration
	// Global is true when RetryAfter applies to every chat of the channel.
	Global bool
	// Uncounted is true when the message is not the cause: the provider was not reached, is out of
	// service, or asked to wait. The failure does not count as an attempt; only the age of the
	// message bounds the attempts.
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

// Records is the durable state of channels besides messages. A store implements it; channeltest has
// its contract. All times are the store's. Every method is atomic and safe for concurrent use by
// several nodes.
type Records interface {
	// Which peers may talk and which have asked to. Each change of a right writes one row of the log
	// of changes in the same transaction, with hashes of the state of the peer before and after.

	// Paired reports whether exactly this peer (same channel, person and chat) was approved and not
	// revoked. With an error it reports false.
	Paired(ctx context.Context, p Peer) (bool, error)
	// CreatePairing opens a request under a new code of [NewPairingCode] for [PairingLife], or
	// renews the open request of the same peer, under its code. It first removes expired requests,
	// which count towards no bound. ErrPairingChatFull and ErrPairingBotFull change nothing else.
	CreatePairing(ctx context.Context, p Peer, name string) (Pairing, error)
	// OpenPairings lists the open requests of a channel, oldest first; "" means all channels.
	OpenPairings(ctx context.Context, channel string) ([]Pairing, error)
	// ApprovePairing uses up a request: its peer is allowed from now on, and every other open
	// request of the same peer ends. A second use, an expired request and an unknown one are
	// ErrPairingUnknown.
	ApprovePairing(ctx context.Context, ref PairingRef, by chat.ChangedBy) (Pairing, error)
	// DismissPairing ends an open request without a right. It returns the same errors as
	// ApprovePairing.
	DismissPairing(ctx context.Context, ref PairingRef, by chat.ChangedBy) (Pairing, error)
	// Grants lists the approved peers of a channel, oldest first; "" means all channels.
	Grants(ctx context.Context, channel string) ([]Grant, error)
	// RevokePairing removes a right. It reports whether the right existed; only then does it write
	// a row of the log.
	RevokePairing(ctx context.Context, p Peer, by chat.ChangedBy) (bool, error)

	// The settings that people chose for a group, and the ids that groups had before. channel is the
	// account's name, `telegram:<bot id>`.

	// GroupActivation returns the setting of a chat, "" if none was chosen.
	GroupActivation(ctx context.Context, channel string, chatID int64) (string, error)
	SetGroupActivation(ctx context.Context, channel string, chatID int64, activation string) error
	// GroupBefore returns the former id of a group, 0 if none.
	GroupBefore(ctx context.Context, channel string, chatID int64) (from int64, err error)
	// MoveGroup records that a group has a new id. Its settings move with it. Idempotent.
	MoveGroup(ctx context.Context, channel string, from, to int64) error

	// The text that each button under a message sends.

	// PutButtons stores the buttons of one message for [ButtonLife], after it has removed expired
	// ones. ErrButtonsFull stores none of them.
	PutButtons(ctx context.Context, s ButtonSet) error
	// TakeButton returns the text of a button to the peer who pressed it, and uses up its whole
	// set: only one button of a message works, once. press is the provider's number of the press,
	// never 0. A repetition of the same press returns the same text, because its message may not
	// have been durable before a crash. ErrButtonUnknown and ErrButtonNotYours change nothing.
	TakeButton(ctx context.Context, id string, by Peer, press int64) (text string, err error)
}

// Bounds of buttons.
const (
	// ButtonLife is how long the buttons of a message work.
	ButtonLife = 10 * time.Minute
	// MaxButtons is how many buttons of one account may be open at once.
	MaxButtons = 10_000
)

// Errors of [Records].
var (
	// ErrButtonUnknown means that no such button is open. The error does not distinguish a button
	// that never existed from one that was used or has expired.
	ErrButtonUnknown = errors.New("no open button like this")
	// ErrButtonNotYours means that the button is for another person, or belongs to another chat or
	// account. It stays open.
	ErrButtonNotYours = errors.New("this button is for another person")
	// ErrButtonsFull means that the account has [MaxButtons] open buttons.
	ErrButtonsFull = errors.New("too many buttons are open")
)

// ButtonSet is the buttons of one message.
type ButtonSet struct {
	// Peer may press them; UserID 0 means every person who may talk in the chat.
	Peer
	// Texts maps the id of a button to the words that it sends.
	Texts map[string]string
}

// CheckPress returns ErrButtonNotYours unless by may press the buttons of owner, and
// ErrButtonUnknown when another press (usedBy, 0 if none) has used up the button. again is true
// when this press has used it up.
func CheckPress(owner, by Peer, usedBy, press int64) (again bool, err error) {
	switch {
	case owner.Channel != by.Channel || owner.ChatID != by.ChatID || (owner.UserID != 0 && owner.UserID != by.UserID):
		return false, ErrButtonNotYours
	case usedBy != 0 && usedBy != press:
		return false, ErrButtonUnknown
	}
	return usedBy != 0, nil
}

// Bounds of pairing.
const (
	// PairingLife is how long a code can be approved.
	PairingLife = time.Hour
	// MaxPairingsPerChat and MaxPairingsPerBot are how many codes may be open at once.
	MaxPairingsPerChat = 3
	MaxPairingsPerBot  = 100
)

// Errors of [Records].
var (
	// ErrPairingChatFull means that the chat has the largest number of open codes.
	ErrPairingChatFull = errors.New("too many open pairing codes in this chat")
	// ErrPairingBotFull means that the bot has the largest number of open codes.
	ErrPairingBotFull = errors.New("too many open pairing codes for this bot")
	// ErrPairingUnknown means that no such code is open. The error does not distinguish a code that
	// never existed from one that was used or has expired.
	ErrPairingUnknown = errors.New("no open pairing code like this")
)

// Peer is a person in a chat, as the channel's provider identifies them. It is the whole identity;
// names are not a part of it.
type Peer struct {
	// Channel is the account's name, `telegram:<bot id>`.
	Channel string
	// UserID and ChatID are the provider's numbers.
	UserID, ChatID int64
}

// String returns `<channel>/<chat>/<person>`, the object in the log of changes.
func (p Peer) String() string {
	return p.Channel + "/" + strconv.FormatInt(p.ChatID, 10) + "/" + strconv.FormatInt(p.UserID, 10)
}

// Pairing is the request of a person to talk to the bot in one chat.
type Pairing struct {
	Peer
	// ID names the request for operators; Code was shown to the person. Neither can be derived from
	// the other.
	ID, Code string
	// Name is for display only, without control characters and of at most 64 characters.
	Name                 string
	CreatedAt, ExpiresAt time.Time
}

// State returns the request in the form of the log of changes.
func (p Pairing) State() string { return "asked " + p.Name }

// PairingRef names an open request by its ID or, if that is "", by its code, which is compared
// after [CleanPairingCode].
type PairingRef struct{ ID, Code string }

// Grant is a right that a pairing gave.
type Grant struct {
	Peer
	// Name is the name of the person at the time of the request.
	Name, ApprovedBy string
	ApprovedAt       time.Time
}

// State returns the right in the form of the log of changes; "" means no right.
func (g Grant) State() string {
	if g.ApprovedBy == "" {
		return ""
	}
	return "approved by " + g.ApprovedBy + " " + g.Name
}

// Verbs of the log of changes about pairings.
const (
	VerbPairApprove = "pair.approve"
	VerbPairDismiss = "pair.dismiss"
	VerbPairRevoke  = "pair.revoke"
)

// NewPairingCode makes a code of 8 characters (A-Z, 2-7; 40 random bits).
func NewPairingCode() string {
	var raw [5]byte
	_, _ = rand.Read(raw[:])
	return base32.StdEncoding.EncodeToString(raw[:])
}

// CleanPairingCode undoes the changes that people make to a code when they copy it: lower case,
// blanks and dashes.
func CleanPairingCode(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return -1
		}
		return r
	}, strings.ToUpper(strings.TrimSpace(s)))
}
