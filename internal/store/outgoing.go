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
	OutDeleted   = "deleted" // the session was deleted before it was sent
	// OutMaybeSent is the end of a row that may have arrived or not, and is not sent again.
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

// Outgoing is one outbox row.
type Outgoing struct {
	// ID is a UUIDv7; "" = the store makes one.
	ID string
	// RunID and N are unique together. Notices outside a run use their own RunID "" and are unique by ID alone.
	RunID string
	N     int
	// Session for which it is sent; zero = none.
	Session chat.SessionKey
	// Principal is the receiver: it owns a session that the delivery makes. "" = no principal.
	Principal string
	Target    chat.Target
	Kind      string
	Text      string
	// Choice is offered below the text; nil = nothing.
	Choice *chat.Choice
	// File is what the row sends instead of a text, below the directory for attachments; nil = none.
	File *chat.Attachment
	// Coalesce joins notices. While a pending row of the same word exists that no attempt was made to send, Accept and EndWaiting raise its
	// Count instead of adding a row. TextMany is the text for Count > 1, with one %d.
	Coalesce, TextMany string
	Count              int
	// Delay before the first attempt, so that one notice covers a burst.
	Delay time.Duration
	// ExpiresAt: not sent after that; zero = never expires.
	ExpiresAt time.Time

	// ClaimOutgoing sets these: the number of this attempt, not counting [UndeliveredParams].Uncounted ones; whether an earlier attempt may
	// have arrived; whether the row has expired.
	Attempt            int
	MaybeSent, Expired bool
	// Progress is what earlier attempts have recorded as arrived, in the form of the channel; "" = nothing. Only the store sets it.
	Progress  string
	CreatedAt time.Time
	Epoch     int64
}

// UndeliveredParams is a failed attempt to send.
type UndeliveredParams struct {
	Node, ID  string
	Error     string // without secrets
	RetryIn   time.Duration
	Permanent bool
	// MaybeSent: the provider may have received the message although the attempt failed. The next claim of the row has MaybeSent set. With
	// Permanent the row ends as OutMaybeSent; a cron run whose answer ends so has the delivery state unknown.
	MaybeSent bool
	// Progress is what has arrived, in the form of the channel; "" = what is recorded stays.
	Progress string
	// Uncounted: the attempt does not count. Attempt of the next claim is the same as in this one, or 2 when this was the first.
	Uncounted bool
	// Gone: the address does not exist any more. It goes with Permanent; nil = it does, or the row is no answer of a job.
	Gone *GoneAddress
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

// GoneAddress is what the end of a row whose address is gone does to the job whose answer it is.
type GoneAddress struct {
	// Revision is that of the job when it was found to send its answers to this address. When the job was changed or removed meanwhile, or its delivery to this
	// address is paused already, the job stays unchanged and Outgoing is not sent.
	JobID, Revision string
	// Outgoing are the notices about the pause.
	Outgoing []Outgoing
}

// Gone is the result of Undelivered.
type Gone struct {
	Job *cron.Job // with its delivery paused; nil = no job was changed
}

// OutboxCount is the number of rows of one channel in the outbox, by state: pending and sending, failed, maybe_sent.
type OutboxCount struct {
	Waiting, Failed, MaybeSent int
	// Oldest is when the first of those that wait was stored; zero = none waits.
	Oldest time.Time
}
