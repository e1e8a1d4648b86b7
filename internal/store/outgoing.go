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
	// Principal for whom it is sent: it owns a session that the delivery makes. "" = nobody in particular.
	Principal string
	Target    chat.Target
	Kind      string
	Text      string
	// Choice is offered below the text; nil = nothing.
	Choice *chat.Choice
	// File is what the row sends instead of a text, below the directory for attachments; nil = none.
	File *chat.Attachment
	// Coalesce joins notices: while a pending row with the same word exists that was never tried, Accept and EndWaiting raise its Count
	// instead of adding a row. TextMany is the text for Count > 1, with one %d.
	Coalesce, TextMany string
	Count              int
	// Delay before the first attempt (a burst is told once).
	Delay time.Duration
	// ExpiresAt: not sent after that; zero = never expires.
	ExpiresAt time.Time

	// Set by ClaimOutgoing: attempts so far that count plus one, whether an earlier attempt may have arrived, whether it is too late.
	Attempt            int
	MaybeSent, Expired bool
	CreatedAt          time.Time
	Epoch              int64
}

// UndeliveredParams is a failed attempt to send.
type UndeliveredParams struct {
	Node, ID  string
	Error     string // without secrets
	RetryIn   time.Duration
	Permanent bool
	// MaybeSent: the provider may have it all the same. A further attempt is told so, and the answer of a cron run that ends here is unknown.
	MaybeSent bool
	// Uncounted: the attempt does not count, so Attempt of the next claim is what it was in this one, or 2 when this was the first.
	Uncounted bool
}

// GoneParams is an attempt to send that found the address gone.
type GoneParams struct {
	Node, ID string
	Error    string // the channel's word for it
	// JobID is the job whose answer it was, Revision the job that sends its answers to this address. A job that was changed or removed meanwhile, or
	// whose delivery to this address is paused already, stays as it is, and nobody is told.
	JobID, Revision string
	// Outgoing tells of the pause.
	Outgoing []Outgoing
}

// Gone is what became of the job.
type Gone struct {
	Job *cron.Job // with its delivery paused; nil = nothing was paused
}

// OutboxCount is how much is in the outbox.
type OutboxCount struct{ Waiting, Failed int }
