package usage

import (
	"context"
	"math"
	"time"
)

// Store keeps the counters. Days are dates such as 2026-03-14, which sort by time.
type Store interface {
	// AddUsage adds the records of a batch to their counters and reads the totals of scopes after that, in one transaction. A batch that was written
	// before adds nothing. A scope without a total is left out. Sums saturate at math.MaxInt64. After chat.ErrStoreUnavailable or an error of ctx the
	// same call may succeed later; after any other error it never does.
	AddUsage(ctx context.Context, b Batch, day string, read []Scope) (map[Scope]Spent, error)
	// UsageRows sums counters, see [Query]. It returns at most Limit rows, those of the newest days and the most tokens first. Sums saturate as in
	// AddUsage.
	UsageRows(ctx context.Context, q Query) ([]Row, error)
	// PruneUsage deletes at most limit counters and totals of days before a day, and the writers whose last batch is older. It returns how many rows
	// it deleted.
	PruneUsage(ctx context.Context, before string, limit int) (int, error)
}

// Batch has the records that a writer adds at once. The zero value adds nothing.
type Batch struct {
	// Writer is the process, a new one at each start; Number counts its batches from 1.
	Writer string
	Number int64
	// Day on which the batch is written.
	Day     string
	Records []Record
}

// Counted is an amount of usage.
type Counted struct { //nolint:recvcheck // Add changes it, the other methods only read it
	// Turns that have ended, and Requests to models.
	Turns, Requests int64
	// CachedTokens are a part of InputTokens.
	InputTokens, OutputTokens, CachedTokens int64
	Cost                                    Money
	// Unreported is how long turns ran whose agent reported no tokens, in whole milliseconds. It counts in no budget.
	Unreported time.Duration
}

// Add adds other. Sums saturate.
func (c *Counted) Add(other Counted) {
	c.Turns = saturated(c.Turns, other.Turns)
	c.Requests = saturated(c.Requests, other.Requests)
	c.InputTokens = saturated(c.InputTokens, other.InputTokens)
	c.OutputTokens = saturated(c.OutputTokens, other.OutputTokens)
	c.CachedTokens = saturated(c.CachedTokens, other.CachedTokens)
	c.Cost = saturated(c.Cost, other.Cost)
	c.Unreported = saturated(c.Unreported, other.Unreported)
}

// saturated returns the sum of two non-negative amounts, bounded by the largest int64.
func saturated[N ~int64](a, b N) N { return a + min(b, math.MaxInt64-a) }

// Spent returns the part that counts for budgets.
func (c Counted) Spent() Spent {
	return Spent{Tokens: saturated(c.InputTokens, c.OutputTokens), Cost: c.Cost}
}

// Record is what a batch adds to one counter.
type Record struct {
	Key
	Counted
}

// Key names a counter. Job is "" for the turns of people.
type Key struct{ Day, Principal, Agent, Model, Job string }

// Scopes returns the totals to which the counter belongs.
func (k Key) Scopes() []Scope {
	list := []Scope{{Kind: KindDay}, {Kind: KindPrincipal, Name: k.Principal}}
	if k.Job != "" {
		list = append(list, Scope{Kind: KindJob, Name: k.Job})
	}
	return list
}

// Totals returns the sums of the records of a batch by day and scope.
func (b Batch) Totals() map[string]map[Scope]Spent {
	days := map[string]map[Scope]Spent{}
	for _, r := range b.Records {
		if days[r.Day] == nil {
			days[r.Day] = map[Scope]Spent{}
		}
		for _, s := range r.Scopes() {
			days[r.Day][s] = days[r.Day][s].Plus(r.Counted.Spent())
		}
	}
	return days
}

// Grouping is the key by which counters are summed in addition to their day.
type Grouping string

// The groupings.
const (
	ByNothing   Grouping = ""
	ByPrincipal Grouping = "principal"
	ByAgent     Grouping = "agent"
	ByModel     Grouping = "model"
	ByJob       Grouping = "job" // of jobs only
)

// Query selects counters.
type Query struct {
	// From and To are the first and the last day.
	From, To string
	By       Grouping
	// Principal restricts to one principal, Job to one job; "" means all.
	Principal, Job string
	// Limit of rows; 0 means [DefaultRows].
	Limit int
}

// DefaultRows is the default of [Query].Limit, MaxRows the most.
const (
	DefaultRows = 200
	MaxRows     = 1000
)

// Most returns Limit with its default and its bound.
func (q Query) Most() int {
	if q.Limit <= 0 {
		return DefaultRows
	}
	return min(q.Limit, MaxRows)
}

// Row is a sum of counters of one day.
type Row struct {
	Day string
	// Name is the principal, the agent, the model or the job; "" for [ByNothing].
	Name string
	Counted
}

// DayOf returns the day of a moment in a zone.
func DayOf(at time.Time, zone *time.Location) string { return at.In(zone).Format(time.DateOnly) }
