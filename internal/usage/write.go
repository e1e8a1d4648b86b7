package usage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"laneway/internal/chat"
)

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

// add writes the batches, one transaction each, and reads the totals of scopes with the last one. A record that the store refuses permanently is
// dropped: it must block neither other records nor the totals of a turn.
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

// separate replaces the first batch, which the store refuses permanently: several records become separate batches, a single record is dropped.
func (m *Meter) separate(ctx context.Context, records []Record, err error) {
	m.batches = m.batches[1:]
	if len(records) == 1 {
		m.cfg.Observer.Dropped()
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
