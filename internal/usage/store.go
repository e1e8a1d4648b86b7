package usage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
)

// Store keeps the counters. Days are dates such as 2026-03-14, which sort by time.
type Store interface {
	// AddUsage adds the records of a batch to their counters and reads the totals of scopes after
	// that, in one transaction. A batch that was written before adds nothing. A scope without a
	// total is left out. Sums saturate at math.MaxInt64. After chat.ErrStoreUnavailable or an error
	// of ctx the same call may succeed later; after any other error it never does.
	AddUsage(ctx context.Context, b Batch, day string, read []Scope) (map[Scope]Spent, error)
	// UsageRows sums counters, see [Query]. It returns at most Limit rows, those of the newest days
	// and the most tokens first. Sums saturate as in AddUsage.
	UsageRows(ctx context.Context, q Query) ([]Row, error)
	// PruneUsage deletes at most limit counters and totals of days before a day, and the writers
	// whose last batch is older. It returns how many rows it deleted.
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
type Counted struct {
	// Turns that have ended, and Requests to models.
	Turns, Requests int64
	// CachedTokens are a part of InputTokens.
	InputTokens, OutputTokens, CachedTokens int64
	Cost                                    Money
	// Unreported is how long turns ran whose agent reported no tokens, in whole milliseconds. It
	// counts in no budget.
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

// write writes the counters, and answers the waiting checks. It reports whether no batch is left.
func (m *Meter) write(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	m.mu.Lock()
	checks := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	if len(m.batches) > 0 { // the totals also include what was counted later
		if _, err := m.add(ctx, nil); err != nil {
			answer(checks, nil, err)
			return false
		}
	}
	m.mu.Lock()
	if len(m.pending) > 0 {
		m.enqueue(sorted(m.pending))
		m.pending = map[Key]Counted{}
	}
	m.mu.Unlock()
	if len(m.batches) == 0 && len(checks) == 0 {
		return true
	}
	spent, err := m.add(ctx, scopesOf(checks))
	answer(checks, spent, err)
	return err == nil
}

// enqueue adds a batch.
func (m *Meter) enqueue(records []Record) {
	m.number++
	m.batches = append(m.batches, Batch{Writer: m.writer, Number: m.number, Day: m.Today(), Records: records})
}

// add writes the batches, one transaction each, and reads the totals of scopes with the last one. A
// record that the store refuses permanently is dropped: it must block neither other records nor the
// totals of a turn.
func (m *Meter) add(ctx context.Context, scopes []Scope) (map[Scope]Spent, error) {
	for {
		var b Batch
		if len(m.batches) > 0 {
			b = m.batches[0]
		}
		spent, err := m.store.AddUsage(ctx, b, m.Today(), scopes)
		switch {
		case err == nil && len(m.batches) <= 1:
			m.batches = nil
			return spent, nil
		case err == nil:
			m.batches = m.batches[1:]
		case len(b.Records) == 0 || passing(err):
			m.cfg.Logger.WarnContext(ctx, "the usage of agents was not written; trying again", "records", len(b.Records), "err", err)
			return nil, err
		default:
			m.separate(ctx, b.Records, err)
		}
	}
}

// passing reports whether a write may succeed later, see [Store].
func passing(err error) bool {
	return errors.Is(err, chat.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// separate replaces the first batch, which the store refuses permanently: several records become
// separate batches, a single record is dropped.
func (m *Meter) separate(ctx context.Context, records []Record, err error) {
	m.batches = m.batches[1:]
	if len(records) == 1 {
		m.counters.dropped.Inc()
		m.cfg.Logger.ErrorContext(ctx, "a record of usage cannot be stored and is dropped", "agent", records[0].Agent, "err", err)
		return
	}
	for i := range records {
		m.enqueue(records[i : i+1])
	}
}

func answer(checks []*check, spent map[Scope]Spent, err error) {
	for _, c := range checks {
		c.spent, c.err = spent, err
		close(c.done)
	}
}

// scopesOf returns the scopes of checks, each once.
func scopesOf(checks []*check) []Scope {
	all := map[Scope]bool{}
	for _, c := range checks {
		for _, s := range c.scopes {
			all[s] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), compareScopes)
}

func compareScopes(a, b Scope) int {
	return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
}

// sorted returns the counters in the same order for all writers, so that no two deadlock.
func sorted(counters map[Key]Counted) []Record {
	list := make([]Record, 0, len(counters))
	for k, c := range counters {
		list = append(list, Record{k, c})
	}
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Principal, b.Principal), strings.Compare(a.Agent, b.Agent),
			strings.Compare(a.Model, b.Model), strings.Compare(a.Job, b.Job))
	})
	return list
}

// prune removes some old counters and reports whether none are left.
func (m *Meter) prune(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	n, err := m.store.PruneUsage(ctx, DayOf(m.cfg.Now().AddDate(0, 0, -keepDays), m.cfg.Zone), pruned)
	if err != nil {
		m.cfg.Logger.WarnContext(ctx, "old counters of usage were not removed; trying again", "err", err)
		return false
	}
	return n == 0
}
