package store

import (
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

// States of an outbox row.
const (
	OutPending   = "pending"
	OutSending   = "sending"
	OutDelivered = "delivered"
	OutFailed    = "failed"
	OutExpired   = "expired"
	OutDeleted   = "deleted" // the session was deleted before the row was sent
	// OutMaybeSent is the final state of a row that may have arrived and is not sent again.
	OutMaybeSent = "maybe_sent"
)

// Kinds of an outbox row.
const (
	KindReply  = "reply"
	KindNotice = "notice"
	// KindCommand is the answer to a chat command.
	KindCommand = "command"
	KindWebhook = "webhook"
)

// FirstTime is how long a row waits for the node [Outgoing].First.
const FirstTime = 5 * time.Second

// Outgoing is one outbox row.
type Outgoing struct {
	// ID is a UUIDv7; when empty, the store makes one.
	ID string
	// RunID and N are unique together. Notices outside a run use their own RunID "" and are unique by ID alone.
	RunID string
	N     int
	// Session is the session for which the row is sent; zero when it is sent for no session.
	Session chat.SessionKey
	// Principal is the receiver: it owns a session that the delivery creates. "" = no principal.
	Principal string
	Target    chat.Target
	Kind      string
	Text      string
	// Choice is offered below the text; nil when the row has no choice.
	Choice *chat.Choice
	// File is sent instead of text. Its path is relative to the attachment directory. nil when the row has no file.
	File *chat.Attachment
	// Origin is set for a row that another conversation than that of its address has made; nil for others. See [Shown].
	Origin *chat.Origin
	// Coalesce is a word that joins notices. While a pending row with the same word exists whose first attempt has not begun, Accept and EndWaiting raise its
	// Count instead of adding a row. TextMany is the text for Count > 1, with one %d.
	Coalesce, TextMany string
	Count              int
	// Delay postpones the first attempt, so that one notice covers a burst.
	Delay time.Duration
	// ExpiresAt is when the row expires: it is not sent afterwards. Zero = never.
	ExpiresAt time.Time

	// ClaimOutgoing sets these: the number of this attempt, not counting [UndeliveredParams].Uncounted ones; whether an earlier attempt may
	// have arrived; whether the row has expired.
	Attempt            int
	MaybeSent, Expired bool
	// Progress records, in the form of the channel, what of earlier attempts has arrived; "" = nothing. Finish sets it for a reply that replaces a preview.
	Progress string
	// First is a node: during the first [FirstTime] no other node claims the row, because this one may know more about the preview than Progress says.
	First     string
	CreatedAt time.Time
	Epoch     int64
}

// ClaimOutgoingParams is what a node can send, and what it is sending. The claims of a node follow each other.
type ClaimOutgoingParams struct {
	Node     string
	Channels []string
	Limit    int
	// Sending are the ids of the rows that the node has claimed and whose attempt has not ended.
	Sending []string
	// Unrecorded are the ids of the rows whose attempt by the node has ended without a recorded result.
	Unrecorded []string
}

// Shown is what a person has seen of a row with an origin. It becomes an entry of the conversation at the address, in the transaction that records the end of
// the row, and once for a row.
type Shown struct {
	Session chat.SessionKey
	// Principal owns the session if it does not exist yet; "" = its first writer will own it.
	Principal string
	Entry     chat.TranscriptEntry
}

// DeliveredParams is a message that has arrived.
type DeliveredParams struct {
	Node, ID string
	// ProviderID must not be empty.
	ProviderID string
	// Shown is nil when nothing is added to a conversation. Its entry is then returned as stored.
	Shown *Shown
}

// UndeliveredParams is a failed attempt to send.
type UndeliveredParams struct {
	Node, ID  string
	Error     string // without secrets
	RetryIn   time.Duration
	Permanent bool
	// MaybeSent: the provider may have received the message although the attempt failed. The next claim of the row has MaybeSent set. With Permanent the row
	// ends as OutMaybeSent, and a cron run whose answer it is gets the delivery state unknown.
	MaybeSent bool
	// Progress is what has arrived, in the form of the channel; "" keeps what is recorded.
	Progress string
	// Uncounted: the attempt does not count. The next claim has the same Attempt as this one, or 2 when this was the first.
	Uncounted bool
	// Gone: the address no longer exists. It is used with Permanent. nil when the address exists, or the row is not an answer of a job.
	Gone *GoneAddress
	// Shown is what has arrived of a row that ends here, or may have; nil = nothing.
	Shown *Shown
}

// State is the state of the row after the attempt.
func (p UndeliveredParams) State() string {
	switch {
	case !p.Permanent:
		return OutPending
	case p.MaybeSent:
		return OutMaybeSent
	default:
		return OutFailed
	}
}

// GoneAddress is the change to the job whose answer could not be sent because its address no longer exists.
type GoneAddress struct {
	// Revision is the revision at which the job was found to send its answers to this address. When the job has changed or was removed since, or its delivery
	// to this address is paused already, the job stays unchanged and Outgoing is not sent.
	JobID, Revision string
	// Outgoing are the notices about the pause.
	Outgoing []Outgoing
}

// Gone is the result of Undelivered.
type Gone struct {
	Job *cron.Job // with its delivery paused; nil when no job changed
	// Entry is [UndeliveredParams].Shown as stored; nil when it was not set.
	Entry *ShownEntry
}

// ShownEntry is an entry that a delivery has added to a conversation.
type ShownEntry struct {
	chat.TranscriptEntry

	Session   chat.SessionKey
	Principal string // of the session
}

// OutboxCount is the number of rows of one channel in the outbox, by state: pending and sending, failed, maybe_sent.
type OutboxCount struct {
	Waiting, Failed, MaybeSent int
	// Oldest is when the oldest waiting row was stored; zero when no row waits.
	Oldest time.Time
}
