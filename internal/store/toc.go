package store

import (
	"context"
	"time"

	"laneway/internal/chat"
)

// TocLevel is the length of the period that a summary covers.
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

// Toc is the table of contents of conversations, by day, week and month. It covers the sessions that have an owner, except the gateway's own sessions and those
// of single cron runs and sub-turns. So a run that is a row of the ledger is never a part.
//
// Summaries are deleted with their sources: the deletion of a session removes its parts in the same transaction, and the summaries of their weeks and months,
// which are then due again. The same happens when a session is given to another owner, which receives its parts.
type Toc interface {
	// TocBehind lists at most limit sessions whose first entry that no part covers is older than before, ordered by the time of that entry, the oldest first.
	TocBehind(ctx context.Context, before time.Time, limit int) ([]TocBehind, error)
	// TocEntries reads the entries of all transcripts of a session after a number, ascending, at most limit and at most [ReadBytes] or maxBytes.
	TocEntries(ctx context.Context, key chat.SessionKey, after int64, limit, maxBytes int) ([]TocEntry, error)
	// PutTocPart adds entries to the part of their day, see [TocPart]. added is false, and nothing changes, when another call has moved past p.After, or the
	// entries or the owner no longer match the session. The week and the month of the day become due.
	PutTocPart(ctx context.Context, p TocPart) (added bool, err error)
	// TocDue lists at most limit weeks or months, up to a period, whose summaries are missing or outdated, the oldest first.
	TocDue(ctx context.Context, level TocLevel, upto string, limit int) ([]TocRef, error)
	// BeginTocNode records that the summary of a week or a month is being made; data read afterwards may be used for it. ok is false when it is no longer due,
	// or another call began it less than [TocClaimTime] ago.
	BeginTocNode(ctx context.Context, ref TocRef, claim string) (ok bool, err error)
	// EndTocNode stores the summary of a week or a month. ok is false, and nothing changes, when its sources have changed since BeginTocNode, or another call
	// has begun it since. text "" means that no sources are left: the summary is removed.
	EndTocNode(ctx context.Context, ref TocRef, claim, text string) (ok bool, err error)
	// Toc reads summaries, the newest period first; within a period by owner and session. At most [ReadBytes].
	Toc(ctx context.Context, q TocQuery) ([]TocNode, error)
}

// TocClaimTime is how long the process that began the summary of a week or a month may exclusively work on it.
const TocClaimTime = 5 * time.Minute

// TocBehind is a session with entries that no part covers.
type TocBehind struct {
	Session chat.SessionKey
	Owner   string
	// After is the highest number that a part covers; At is the time of the first entry after it.
	After int64
	At    time.Time
}

// TocEntry is an entry and the transcript that contains it.
type TocEntry struct {
	SessionID string
	chat.TranscriptEntry
}

// TocPart is the summary of a session for one day, as PutTocPart stores it.
type TocPart struct {
	Session chat.SessionKey
	Owner   string
	// Day as in 2026-03-14, Week as in 2026-W11, Month as in 2026-03.
	Day, Week, Month string
	// After is the number up to which parts existed before. From and To are the first and the last entry that this call adds, LastID is the transcript of the
	// last one, Entries is their number.
	After, From, To int64
	LastID          string
	Entries         int
	// Text summarizes these entries and those that the part covered before; "" when they need no summary: the part then keeps its text.
	Text string
}

// TocRef identifies a week or a month of an owner.
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
	// From and To restrict the period, both inclusive; "" = unrestricted.
	From, To string
	// Limit bounds the result; 0 = [DefaultTocNodes], at most [MaxTocNodes]. Offset is the number of nodes to skip.
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
	// MadeAt is when the summary was last made, Made how many times it was. Stale: it is due again, because entries were added since.
	MadeAt time.Time
	Made   int
	Stale  bool
	// Only of a day: the session, the first and the last entry, and their number.
	Session  chat.SessionKey
	From, To int64
	Entries  int
}
