package store

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// TocLevel is how much time a summary stands for.
type TocLevel string

// The levels. A day has a part for each session; a week is made of the parts of its days, a month of its weeks.
const (
	TocDay   TocLevel = "day"
	TocWeek  TocLevel = "week"
	TocMonth TocLevel = "month"
)

// The bounds of a page of the table of contents.
const (
	DefaultTocNodes = 20
	MaxTocNodes     = 100
)

// Toc is the table of contents of conversations, by day, week and month. It covers the sessions that have an owner, but not the gateway's
// own, and not those that runs of jobs and sub-turns have for themselves; so no run that is one row of the ledger is a part of it.
//
// Summaries leave with what they were made of: the deletion of a session removes its parts in its transaction, and the texts of the weeks and months that
// these belong to, which are then due again. The same holds when a session is given to another owner, who gets its parts.
type Toc interface {
	// TocBehind lists sessions with entries that no part stands for, by the time of the first such entry in the order of their numbers, the oldest first:
	// those whose entry is older than before, at most limit.
	TocBehind(ctx context.Context, before time.Time, limit int) ([]TocBehind, error)
	// TocEntries reads the entries of all transcripts of a session behind a number, ascending, at most limit and at most [ReadBytes] or maxBytes.
	TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) ([]TocEntry, error)
	// PutTocPart adds entries to the part of their day, see [TocPart]. added is false, and nothing is changed, when another call has passed p.After, or the
	// entries or the owner are not those of the session any more. The week and the month of the day are due from then on.
	PutTocPart(ctx context.Context, p TocPart) (added bool, err error)
	// TocDue lists weeks or months that are to be made, or to be made again, up to a period, the oldest first, at most limit.
	TocDue(ctx context.Context, level TocLevel, upto string, limit int) ([]TocRef, error)
	// BeginTocNode notes that a week or a month is being made; what is read for it afterwards may be used. ok is false when it is not due any more, or
	// another call has begun it less than [TocClaimTime] ago.
	BeginTocNode(ctx context.Context, ref TocRef, claim string) (ok bool, err error)
	// EndTocNode stores the text of a week or a month. ok is false, and nothing is changed, when what it is made of has changed since BeginTocNode, or
	// another call has begun it since. "" = nothing is left to make it of; it is removed.
	EndTocNode(ctx context.Context, ref TocRef, claim, text string) (ok bool, err error)
	// Toc reads summaries, the newest period first; within a period by owner and session. At most [ReadBytes].
	Toc(ctx context.Context, q TocQuery) ([]TocNode, error)
}

// TocClaimTime is how long the making of a week or a month is left to the process that has begun it.
const TocClaimTime = 5 * time.Minute

// TocBehind is a session with entries that no part stands for.
type TocBehind struct {
	Session chat.SessionKey
	Owner   string
	// After is the highest number that a part stands for; At is the time of the first entry behind it.
	After int64
	At    time.Time
}

// TocEntry is an entry and the transcript that it stands in.
type TocEntry struct {
	SessionID string
	chat.TranscriptEntry
}

// TocPart is what a session was about on a day, as PutTocPart stores it.
type TocPart struct {
	Session chat.SessionKey
	Owner   string
	// Day as in 2026-03-14, Week as in 2026-W11, Month as in 2026-03.
	Day, Week, Month string
	// After is the number up to which parts stood before. From and To are the first and the last entry that this call adds, LastID is the transcript of
	// the last one, Entries how many they are.
	After, From, To int64
	LastID          string
	Entries         int
	// Text stands for these entries and for those that the part stood for before; "" = they need no summary, and the part stays as it is.
	Text string
}

// TocRef names a week or a month of an owner.
type TocRef struct {
	Owner  string
	Level  TocLevel
	Period string
}

// TocQuery selects summaries.
type TocQuery struct {
	Level TocLevel
	// Visible restricts to one owner; "" = all. Session restricts to one session; only days have sessions.
	Visible string
	Session chat.SessionKey
	// From and To restrict the period, both inclusive; "" = open.
	From, To string
	// Limit is how many are returned; 0 = [DefaultTocNodes], at most [MaxTocNodes]. Offset is how many are passed over.
	Limit, Offset int
}

// Most is Limit within its bounds.
func (q TocQuery) Most() int { return within(q.Limit, DefaultTocNodes, MaxTocNodes) }

// TocNode is one summary.
type TocNode struct {
	Owner  string
	Level  TocLevel
	Period string
	Text   string
	// MadeAt is when it was made, Made how many times it was. Stale: it is to be made again, because entries have come since.
	MadeAt time.Time
	Made   int
	Stale  bool
	// Of a day only: the session, the first and the last entry, and how many there are.
	Session  chat.SessionKey
	From, To int64
	Entries  int
}
