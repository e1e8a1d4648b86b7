package storetest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"laneway/internal/store"
	"laneway/internal/usage"
)

func usageTests() []test {
	return []test{
		{"CountersAddUp", countersAddUp},
		{"ABatchCountsOnce", batchCountsOnce},
		{"WritersCountTogether", writersCountTogether},
		{"CountersOutliveTheProcess", countersOutlive},
		{"TotalsAreThoseOfADay", totalsOfADay},
		{"CountersAreSummedByColumn", countersBySum},
		{"OldCountersAreRemovedInSteps", countersArePruned},
		{"CountersTakeAnyName", countersTakeNames},
		{"CountersSaturate", countersSaturate},
	}
}

const usageDay = "2026-03-14"

func (w *world) usage() usage.Store { return usageOf(w, w.st) }

func usageOf(w *world, st store.Store) usage.Store {
	w.Helper()
	u, ok := st.(usage.Store)
	if !ok {
		w.Fatalf("the store counts no usage")
	}
	return u
}

// used is a record of one request.
func used(day, principal, job string, in, out int64) usage.Record {
	return usage.Record{
		Key:     usage.Key{Day: day, Principal: principal, Agent: "main", Model: "m", Job: job},
		Counted: usage.Counted{Turns: 1, Requests: 1, InputTokens: in, OutputTokens: out, CachedTokens: in / 2, Cost: usage.Money(10 * (in + out)), Unreported: time.Duration(in) * time.Second},
	}
}

func batchOf(writer string, number int64, records ...usage.Record) usage.Batch {
	return usage.Batch{Writer: writer, Number: number, Day: usageDay, Records: records}
}

func dayScope() usage.Scope               { return usage.Scope{Kind: usage.KindDay} }
func principalScope(n string) usage.Scope { return usage.Scope{Kind: usage.KindPrincipal, Name: n} }
func jobScope(n string) usage.Scope       { return usage.Scope{Kind: usage.KindJob, Name: n} }

func tokensOf(n int64) usage.Spent { return usage.Spent{Tokens: n, Cost: usage.Money(10 * n)} }

func countersAddUp(w *world) {
	u := w.usage()
	all := []usage.Scope{dayScope(), principalScope("anna"), principalScope("bert"), jobScope("j"), jobScope("none")}
	spent := try(u.AddUsage(w.ctx, usage.Batch{}, usageDay, all)).ok(w)
	equal(w, "totals of nothing", spent, map[usage.Scope]usage.Spent{})
	try(u.AddUsage(w.ctx, batchOf("a", 1, used(usageDay, "anna", "", 100, 20), used(usageDay, "bert", "j", 7, 3)), usageDay, nil)).ok(w)
	spent = try(u.AddUsage(w.ctx, batchOf("a", 2, used(usageDay, "anna", "", 1, 1)), usageDay, all)).ok(w)
	equal(w, "totals", spent, map[usage.Scope]usage.Spent{
		dayScope(): tokensOf(132), principalScope("anna"): tokensOf(122), principalScope("bert"): tokensOf(10), jobScope("j"): tokensOf(10),
	})
}

// batchCountsOnce covers a commit whose result was lost, and a batch that arrives after a later
// one.
func batchCountsOnce(w *world) {
	u := w.usage()
	read := []usage.Scope{dayScope()}
	for _, number := range []int64{1, 1, 2, 2, 1} {
		try(u.AddUsage(w.ctx, batchOf("a", number, used(usageDay, "anna", "", 5, 5)), usageDay, nil)).ok(w)
	}
	spent := try(u.AddUsage(w.ctx, batchOf("b", 1, used(usageDay, "anna", "", 5, 5)), usageDay, read)).ok(w)
	equal(w, "total", spent, map[usage.Scope]usage.Spent{dayScope(): tokensOf(30)})
	rows := try(u.UsageRows(w.ctx, usage.Query{From: usageDay, To: usageDay})).ok(w)
	equal(w, "rows", rows, []usage.Row{{Day: usageDay, Counted: usage.Counted{Turns: 3, Requests: 3, InputTokens: 15, OutputTokens: 15, CachedTokens: 6, Cost: 300, Unreported: 15 * time.Second}}})
}

func writersCountTogether(w *world) {
	const writers, batches = 6, 10
	var group sync.WaitGroup
	faults := make([]error, writers)
	for i := range writers {
		u := usageOf(w, w.h.Open())
		group.Go(func() {
			for n := range batches {
				_, err := u.AddUsage(w.ctx, batchOf(fmt.Sprint("w", i), int64(n+1),
					used(usageDay, "anna", "", 1, 0), used(usageDay, "bert", "j", 1, 1), used(usageDay, fmt.Sprint("p", i), "", 1, 1)), usageDay, []usage.Scope{dayScope()})
				faults[i] = errors.Join(faults[i], err)
			}
		})
	}
	group.Wait()
	w.ok(errors.Join(faults...))
	spent := try(w.usage().AddUsage(w.ctx, usage.Batch{}, usageDay, []usage.Scope{dayScope(), principalScope("anna"), jobScope("j")})).ok(w)
	equal(w, "totals", spent, map[usage.Scope]usage.Spent{
		dayScope(): tokensOf(5 * writers * batches), principalScope("anna"): tokensOf(writers * batches), jobScope("j"): tokensOf(2 * writers * batches),
	})
}

func countersOutlive(w *world) {
	try(w.usage().AddUsage(w.ctx, batchOf("a", 1, used(usageDay, "anna", "", 5, 5)), usageDay, nil)).ok(w)
	w.st = w.h.Reopen()
	spent := try(w.usage().AddUsage(w.ctx, usage.Batch{}, usageDay, []usage.Scope{principalScope("anna")})).ok(w)
	equal(w, "total", spent, map[usage.Scope]usage.Spent{principalScope("anna"): tokensOf(10)})
}

func totalsOfADay(w *world) {
	u := w.usage()
	const next = "2026-03-15"
	try(u.AddUsage(w.ctx, batchOf("a", 1, used(usageDay, "anna", "", 5, 5), used(next, "anna", "", 1, 0)), usageDay, nil)).ok(w)
	for day, want := range map[string]int64{usageDay: 10, next: 1} {
		spent := try(u.AddUsage(w.ctx, usage.Batch{}, day, []usage.Scope{principalScope("anna")})).ok(w)
		equal(w, "total of "+day, spent, map[usage.Scope]usage.Spent{principalScope("anna"): tokensOf(want)})
	}
}

func countersBySum(w *world) {
	u := w.usage()
	const next = "2026-03-15"
	other := used(usageDay, "bert", "j", 50, 0)
	other.Agent, other.Model = "second", "n"
	try(u.AddUsage(w.ctx, batchOf("a", 1, used(usageDay, "anna", "", 10, 10), other, used(next, "anna", "", 1, 0)), usageDay, nil)).ok(w)
	for _, tt := range []struct {
		query usage.Query
		want  []string
	}{
		{usage.Query{}, []string{"15  1", "14  70"}},
		{usage.Query{By: usage.ByPrincipal}, []string{"15 anna 1", "14 bert 50", "14 anna 20"}},
		{usage.Query{By: usage.ByAgent}, []string{"15 main 1", "14 second 50", "14 main 20"}},
		{usage.Query{By: usage.ByModel}, []string{"15 m 1", "14 n 50", "14 m 20"}},
		{usage.Query{By: usage.ByJob}, []string{"14 j 50"}},
		{usage.Query{By: usage.ByAgent, Principal: "anna"}, []string{"15 main 1", "14 main 20"}},
		{usage.Query{By: usage.ByAgent, Job: "j"}, []string{"14 second 50"}},
		{usage.Query{By: usage.ByPrincipal, Limit: 2}, []string{"15 anna 1", "14 bert 50"}},
		{usage.Query{By: usage.ByPrincipal, From: next}, []string{"15 anna 1"}},
		{usage.Query{By: usage.ByPrincipal, To: "2026-03-13"}, nil},
	} {
		q := tt.query
		if q.From == "" {
			q.From = usageDay
		}
		if q.To == "" {
			q.To = next
		}
		if q.To < q.From {
			q.From = q.To
		}
		rows := try(u.UsageRows(w.ctx, q)).ok(w)
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s %s %d", r.Day[8:], r.Name, r.Counted.Spent().Tokens))
		}
		equal(w, fmt.Sprintf("rows of %+v", tt.query), got, tt.want)
	}
}

func countersArePruned(w *world) {
	u := w.usage()
	old := batchOf("a", 1, used("2025-01-01", "anna", "", 1, 1), used("2025-01-02", "bert", "", 1, 1), used(usageDay, "anna", "", 5, 5))
	old.Day = "2025-01-02"
	try(u.AddUsage(w.ctx, old, usageDay, nil)).ok(w)
	removed := 0
	for range 20 {
		n := try(u.PruneUsage(w.ctx, "2025-02-01", 2)).ok(w)
		if removed += n; n > 2 {
			w.Fatalf("one step removed %d rows, the limit is 2", n)
		}
	}
	equal(w, "removed counters, totals and writers", removed, 2+4+1)
	rows := try(u.UsageRows(w.ctx, usage.Query{From: "2000-01-01", To: "2100-01-01"})).ok(w)
	equal(w, "days left", len(rows), 1)
	spent := try(u.AddUsage(w.ctx, usage.Batch{}, usageDay, []usage.Scope{dayScope()})).ok(w)
	equal(w, "total left", spent, map[usage.Scope]usage.Spent{dayScope(): tokensOf(10)})
}

func countersTakeNames(w *world) {
	u := w.usage()
	r := used(usageDay, script, script, math.MaxUint32, math.MaxUint32)
	r.Model, r.Cost = script, math.MaxInt64/4
	try(u.AddUsage(w.ctx, batchOf("a", 1, r), usageDay, nil)).ok(w)
	spent := try(u.AddUsage(w.ctx, batchOf("a", 2, r), usageDay, []usage.Scope{principalScope(script), jobScope(script)})).ok(w)
	want := usage.Spent{Tokens: 4 * math.MaxUint32, Cost: 2 * (math.MaxInt64 / 4)}
	equal(w, "totals", spent, map[usage.Scope]usage.Spent{principalScope(script): want, jobScope(script): want})
}

// countersSaturate adds records whose sum overflows an integer.
func countersSaturate(w *world) {
	u := w.usage()
	huge := func(principal, agent string) usage.Record {
		return usage.Record{
			Key:     usage.Key{Day: usageDay, Principal: principal, Agent: agent, Model: "m"},
			Counted: usage.Counted{Requests: 1, InputTokens: 1 << 62, OutputTokens: math.MaxInt64, CachedTokens: 1 << 62, Cost: 1 << 62},
		}
	}
	scopes := []usage.Scope{dayScope(), principalScope("anna"), principalScope("bert")}
	for n := range int64(3) {
		try(u.AddUsage(w.ctx, batchOf("a", n+1, huge("anna", "main"), huge("anna", "second")), usageDay, nil)).ok(w)
	}
	spent := try(u.AddUsage(w.ctx, batchOf("b", 1, used(usageDay, "bert", "", 5, 5)), usageDay, scopes)).ok(w)
	full := usage.Spent{Tokens: math.MaxInt64, Cost: math.MaxInt64}
	equal(w, "totals", spent, map[usage.Scope]usage.Spent{dayScope(): full, principalScope("anna"): full, principalScope("bert"): tokensOf(10)})
	rows := try(u.UsageRows(w.ctx, usage.Query{From: usageDay, To: usageDay, By: usage.ByPrincipal})).ok(w)
	equal(w, "rows", rows, []usage.Row{
		{Day: usageDay, Name: "anna", Counted: usage.Counted{Requests: 6, InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, CachedTokens: math.MaxInt64, Cost: math.MaxInt64}},
		{Day: usageDay, Name: "bert", Counted: usage.Counted{Turns: 1, Requests: 1, InputTokens: 5, OutputTokens: 5, CachedTokens: 2, Cost: 100, Unreported: 5 * time.Second}},
	})
}
