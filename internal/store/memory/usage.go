package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"laneway/internal/usage"
)

var _ usage.Store = (*Store)(nil)

// counted is what agents use.
type counted struct {
	counters map[usage.Key]usage.Counted
	totals   map[string]map[usage.Scope]usage.Spent // by day
	writers  map[string]usage.Batch                 // the last of each, without records
}

func newCounted() counted {
	return counted{counters: map[usage.Key]usage.Counted{}, totals: map[string]map[usage.Scope]usage.Spent{}, writers: map[string]usage.Batch{}}
}

// AddUsage adds a batch and reads totals, see usage.Store.
func (s *Store) AddUsage(ctx context.Context, b usage.Batch, day string, read []usage.Scope) (map[usage.Scope]usage.Spent, error) {
	spent := map[usage.Scope]usage.Spent{}
	err := s.do(ctx, "AddUsage", func(time.Time) error {
		if s.used.writers[b.Writer].Number < b.Number {
			s.used.add(b)
		}
		for _, scope := range read {
			if one, ok := s.used.totals[day][scope]; ok {
				spent[scope] = one
			}
		}
		return nil
	})
	return spent, err
}

func (u *counted) add(b usage.Batch) {
	for _, r := range b.Records {
		was := u.counters[r.Key]
		was.Add(r.Counted)
		u.counters[r.Key] = was
	}
	for day, scopes := range b.Totals() {
		if u.totals[day] == nil {
			u.totals[day] = map[usage.Scope]usage.Spent{}
		}
		for scope, one := range scopes {
			u.totals[day][scope] = u.totals[day][scope].Plus(one)
		}
	}
	b.Records = nil
	u.writers[b.Writer] = b
}

// UsageRows sums counters, see usage.Store.
func (s *Store) UsageRows(ctx context.Context, q usage.Query) ([]usage.Row, error) {
	type group struct{ day, name string }
	sums := map[group]usage.Row{}
	err := s.do(ctx, "UsageRows", func(time.Time) error {
		for k, c := range s.used.counters {
			if k.Day < q.From || k.Day > q.To || (q.Principal != "" && k.Principal != q.Principal) || (q.Job != "" && k.Job != q.Job) ||
				(q.By == usage.ByJob && k.Job == "") {
				continue
			}
			g := group{k.Day, map[usage.Grouping]string{
				usage.ByPrincipal: k.Principal, usage.ByAgent: k.Agent, usage.ByModel: k.Model, usage.ByJob: k.Job,
			}[q.By]}
			row := sums[g]
			row.Day, row.Name = g.day, g.name
			row.Add(c)
			sums[g] = row
		}
		return nil
	})
	rows := slices.SortedFunc(maps.Values(sums), func(a, b usage.Row) int {
		return cmp.Or(strings.Compare(b.Day, a.Day), cmp.Compare(b.Counted.Spent().Tokens, a.Counted.Spent().Tokens), strings.Compare(a.Name, b.Name))
	})
	return rows[:min(len(rows), q.Most())], err
}

// PruneUsage deletes old counters, see usage.Store.
func (s *Store) PruneUsage(ctx context.Context, before string, limit int) (n int, err error) {
	err = s.do(ctx, "PruneUsage", func(time.Time) error {
		for k := range s.used.counters {
			if k.Day < before && n < limit {
				delete(s.used.counters, k)
				n++
			}
		}
		for day, scopes := range s.used.totals {
			for scope := range scopes {
				if day < before && n < limit {
					delete(scopes, scope)
					n++
				}
			}
		}
		for name, b := range s.used.writers {
			if b.Day < before && n < limit {
				delete(s.used.writers, name)
				n++
			}
		}
		return nil
	})
	return n, err
}
