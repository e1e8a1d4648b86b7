package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	// OutSuperseded is the final state of a row that waited for the end of quiet hours when a later
	// run of its job sent another.
	OutSuperseded = "superseded"
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
	// RunID and N are unique together. Notices outside a run use their own RunID "" and are unique
	// by ID alone.
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
	// File is sent instead of text. Its path is relative to the attachment directory. nil when the
	// row has no file.
	File *chat.Attachment
	// Origin is set for a row that another conversation than that of its address has made; nil for
	// others. See [Shown].
	Origin *chat.Origin
	// Coalesce is a word that joins notices. While a pending row with the same word exists whose
	// first attempt has not begun, Accept and EndWaiting raise its Count instead of adding a row.
	// TextMany is the text for Count > 1, with one %d.
	Coalesce, TextMany string
	Count              int
	// Delay postpones the first attempt, so that one notice covers a burst.
	Delay time.Duration
	// ExpiresAt is when the row expires: it is not sent afterwards. Zero = never.
	ExpiresAt time.Time
	// Quiet is set for a row that waits for the end of the quiet hours of its chat before its first
	// attempt. While it waits, a later row of another run with the same word supersedes it. "" = it
	// does not wait.
	Quiet string

	// ClaimOutgoing sets these: the number of this attempt, not counting
	// [UndeliveredParams].Uncounted ones; whether an earlier attempt may have arrived; whether the
	// row has expired.
	Attempt            int
	MaybeSent, Expired bool
	// Progress records, in the form of the channel, what of earlier attempts has arrived; "" =
	// nothing. Finish sets it for a reply that replaces a preview.
	Progress string
	// First is a node: during the first [FirstTime] no other node claims the row, because this one
	// may know more about the preview than Progress says.
	First     string
	CreatedAt time.Time
	Epoch     int64
}

// NotInTime is why a row that has expired was not delivered.
const NotInTime = "it was not sent in time"

// PartlySeen reports whether a person may have seen a part of a row that another conversation has
// made. The sender ends such a row when it expires, because only its channel knows what was seen.
func (o *Outgoing) PartlySeen() bool { return o.Origin != nil && (o.MaybeSent || o.Progress != "") }

// Words returns what a row says: the text for several notices when it has joined them.
func (o *Outgoing) Words() string {
	if o.Count > 1 && o.TextMany != "" {
		return fmt.Sprintf(o.TextMany, o.Count)
	}
	return o.Text
}

// SentMessage is a message of a chat network that shows a row, or a part of it.
type SentMessage struct {
	Outgoing

	chat.Part

	// FromOutside: the text of the row contains text from outside.
	FromOutside bool
	// SentAt is when the row ended, or was stored.
	SentAt time.Time
}

// ClaimOutgoingParams is what a node can send, and what it is sending. The claims of a node follow
// each other.
type ClaimOutgoingParams struct {
	Node     string
	Channels []string
	Limit    int
	// Sending are the ids of the rows that the node has claimed and whose attempt has not ended.
	Sending []string
	// Unrecorded are the ids of the rows whose attempt by the node has ended without a recorded
	// result.
	Unrecorded []string
}

// Shown is what a person has seen of a row with an origin. It becomes an entry of the conversation
// at the address, in the transaction that records the end of the row, and once for a row.
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
	// Parts are the messages that show the row, without those of its recorded progress.
	Parts []chat.Part
	// Shown is nil when nothing is added to a conversation. Its entry is then returned as stored.
	Shown *Shown
}

// UndeliveredParams is a failed attempt to send.
type UndeliveredParams struct {
	Node, ID  string
	Error     string // without secrets
	RetryIn   time.Duration
	Permanent bool
	// MaybeSent: the provider may have received the message although the attempt failed. The next
	// claim of the row has MaybeSent set. With Permanent the row ends as OutMaybeSent, and a cron
	// run whose answer it is gets the delivery state unknown.
	MaybeSent bool
	// Progress is what has arrived, in the form of the channel; "" keeps what is recorded.
	Progress string
	// Parts are the messages of Progress that were not recorded with it.
	Parts []chat.Part
	// Uncounted: the attempt does not count. The next claim has the same Attempt as this one, or 2
	// when this was the first.
	Uncounted bool
	// Gone: the address no longer exists. It is used with Permanent. nil when the address exists,
	// or the row is not an answer of a job.
	Gone *GoneAddress
	// Shown is what has arrived of a row that ends here, or may have; nil = nothing.
	Shown *Shown
	// Expired: the row ends because it has expired. It is used with Permanent.
	Expired bool
}

// State is the state of the row after the attempt.
func (p UndeliveredParams) State() string {
	switch {
	case !p.Permanent:
		return OutPending
	case p.Expired:
		return OutExpired
	case p.MaybeSent:
		return OutMaybeSent
	default:
		return OutFailed
	}
}

// GoneAddress is the change to the job whose answer could not be sent because its address no longer
// exists.
type GoneAddress struct {
	// Revision is the revision at which the job was found to send its answers to this address. When
	// the job has changed or was removed since, or its delivery to this address is paused already,
	// the job stays unchanged and Outgoing is not sent.
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

// OutboxCount is the number of rows of one channel in the outbox, by state: pending and sending,
// failed, maybe_sent.
type OutboxCount struct {
	Waiting, Failed, MaybeSent int
	// Oldest is when the oldest waiting row was stored; zero when no row waits.
	Oldest time.Time
	// FailedAt is when the newest failed row was given up; zero when none was.
	FailedAt time.Time
}

// MaxRest is the longest rest of a poll. After it the poll reads again, whatever its [Gate] has
// recorded.
const MaxRest = time.Minute

// Poll identifies a periodic query for due work.
type Poll struct {
	Kind string
	// Node is the polling node; "" when the poll needs no live node.
	Node string
	// Of is what else the poll depends on, such as the channels that it reads.
	Of string
}

// Gate tracks which polls can find nothing, in a process that makes every change of its store. A
// poll that has found nothing rests until a change, until the next instant at which something
// becomes due, or for [MaxRest]. So an idle process reads nothing.
//
// The store calls Changed after each commit that changed rows and before a caller receives its
// result. A heartbeat is no change, because a longer lease makes nothing due. Instead the poll of a
// node rests only while the gate knows that its lease is valid. All instants are of the store's
// clock; a clock that is set back ends a rest. The zero value is ready to use. A Gate is safe for
// concurrent use.
type Gate struct {
	mu      sync.Mutex
	changes uint64
	leases  map[string]time.Time // by node: when its lease ends
	rests   map[Poll]rest        // since the last change
}

type rest struct{ since, until, next time.Time }

// Changed ends every rest.
func (g *Gate) Changed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changes++
	clear(g.rests)
}

// Leased records how long the lease of a node is valid. The rests of its polls end with it.
func (g *Gate) Leased(node string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until.IsZero() {
		delete(g.leases, node)
		return
	}
	if g.leases == nil {
		g.leases = map[string]time.Time{}
	}
	g.leases[node] = until
}

// Changes is the number of changes so far. A poll takes it before it reads.
func (g *Gate) Changes() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
}

// Rest records that a poll found nothing at now, and that something becomes due at next; zero =
// never. changes is the number of changes before its read: when something has changed since, the
// poll does not rest. Nor does it when next has passed.
func (g *Gate) Rest(p Poll, changes uint64, now, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if changes != g.changes {
		return
	}
	until := now.Add(MaxRest)
	if !next.IsZero() && next.Before(until) {
		until = next
	}
	if g.rests == nil {
		g.rests = map[Poll]rest{}
	}
	g.rests[p] = rest{since: now, until: until, next: next}
}

// Resting reports whether a poll can find nothing at now, and the next that Rest recorded.
func (g *Gate) Resting(p Poll, now time.Time) (next time.Time, resting bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.rests[p]
	if !ok || now.Before(r.since) || !now.Before(r.until) {
		return time.Time{}, false
	}
	if p.Node != "" && !now.Before(g.leases[p.Node]) {
		return time.Time{}, false
	}
	return r.next, true
}

// Hint is what a node should read again.
type Hint string

// The hints. The value follows the id of the node in a notification; a process of an older version
// ignores unknown values.
const (
	HintMessage Hint = ""      // one of its sessions has a new message
	HintStop    Hint = " stop" // a stop of one of its runs was requested: [Store].Heartbeat returns the request
)

// MaxHinted is how many sessions hints name.
const MaxHinted = 64

// HintedSessions are the keys of sessions that hints name. All: there may be others.
type HintedSessions struct {
	Keys []string
	All  bool
}

// Add adds a session; "" = any.
func (h *HintedSessions) Add(key string) {
	switch {
	case h.All || slices.Contains(h.Keys, key):
	case key == "" || len(h.Keys) == MaxHinted:
		h.Keys, h.All = nil, true
	default:
		h.Keys = append(h.Keys, key)
	}
}

// Waker is an optional ability of a store: hints between processes that share it. A hint means
// "read again". Hints may be lost, duplicated or late; without a hint the same work happens later.
type Waker interface {
	// Notify sends a hint about a session to a node; "" = any session. It returns immediately and
	// never fails. Hints to a node are coalesced: at most one per 100 ms is sent.
	Notify(node string, h Hint, session string)
	// Hinted takes the sessions about which hints came for a node since the last call.
	Hinted(node string, h Hint) HintedSessions
	// Wakeups delivers the hints for a node that lives in this process. The channel holds at most
	// one hint and is never closed. The same node gets the same channel until it is unregistered.
	Wakeups(node string, h Hint) <-chan struct{}
}

// MaxBroadcast is the maximum size of one message of a [Broadcaster], in bytes.
const MaxBroadcast = 7_000

// Broadcaster is an optional ability of a store: short messages from every process to all others
// that share it. They carry events to clients that are connected to another process. A message may
// be lost; correctness does not depend on one.
type Broadcaster interface {
	// Broadcast sends a message without line feeds. It returns immediately and never fails.
	// Messages are joined and sent at most once per 100 ms, outside of any transaction. A message
	// longer than [MaxBroadcast] is not sent, nor is one that exceeds the bound of the send queue.
	Broadcast(text string)
	// Listen starts receiving and waits for the result of the first attempt, or for the end of ctx.
	// When it returns nil, every message that is sent from then on is received. After an error the
	// store retries by itself, and messages are received once an attempt succeeds.
	Listen(ctx context.Context) error
	// Broadcasts delivers the messages of other processes, in order for each process. It starts
	// receiving as Listen does, but does not wait. The channel is never closed. Messages are lost
	// while the connection is down, and when the reader is too slow. An empty message marks the
	// point at which messages are received again after some may have been lost.
	Broadcasts() <-chan string
}
