package teste2e

import (
	"slices"
	"testing"
	"time"

	"laneway/internal/testrun"
	"laneway/internal/wire"
)

// The gateway sorts, filters, counts and pages: a client that shows a hundred jobs reads only these.
func TestAListOfJobsIsSortedFilteredAndCountedByTheGateway(t *testing.T) {
	onBothStores(t, func(t *testing.T, database string) {
		g := Install(t, database, cronConfig)
		g.Start()
		c := connect(t, g)
		list := func(params map[string]any) (names []string, page wire.CronListResult) {
			t.Helper()
			params["extended"] = true
			if err := c.Into(&page, "cron.list", params); err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				names = append(names, j.Name)
			}
			return names, page
		}
		is := func(what string, params map[string]any, want ...string) {
			t.Helper()
			if got, _ := list(params); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		for _, name := range []string{"delta", "alpha", "beta", "gamma"} {
			addJob(t, c, name, every(time.Hour), map[string]any{"description": "a job called " + name})
		}
		failing := addJob(t, c, "failing", every(time.Hour), map[string]any{
			"payload": map[string]any{"kind": "agentTurn", "message": "fail"}, "retry": map[string]any{"maxRetries": 0},
			"delivery": map[string]any{"mode": "announce", "channel": "web", "to": "agent:main:reports"},
		})
		runByHand(t, c, failing.ID)
		testrun.Eventually(t, "the run has failed", func() bool {
			names, _ := list(map[string]any{"condition": "failing"})
			return slices.Equal(names, []string{"failing"})
		})
		paused, _ := list(map[string]any{"query": "beta"})
		if len(paused) != 1 {
			t.Fatalf("jobs with beta: %v", paused)
		}
		_, page := list(map[string]any{"query": "beta"})
		object(t, c, "cron.pause", map[string]any{"id": page.Jobs[0].ID, "note": "holidays"})
		is("jobs that are paused", map[string]any{"condition": "paused"}, "beta")
		is("jobs by name", map[string]any{"sortBy": "name"}, "alpha", "delta", "failing", "gamma")
		is("the latest run first", map[string]any{"sortBy": "lastRunAtMs", "sortDir": "desc", "limit": 1}, "failing")
		is("the most failures first", map[string]any{"sortBy": "failing", "sortDir": "desc", "limit": 1}, "failing")
		is("jobs that answer there", map[string]any{"target": "agent:main:reports"}, "failing")
		is("jobs by id", map[string]any{"ids": []string{failing.ID, page.Jobs[0].ID}, "sortBy": "name"}, "beta", "failing")

		first, page := list(map[string]any{"sortBy": "name", "limit": 3, "includeDisabled": true, "counts": true, "outcomes": 14, "brief": true})
		if want := (wire.JobCounts{All: 5, Failing: 1, Paused: 1}); page.Counts == nil || *page.Counts != want {
			t.Errorf("counts %+v, want %+v", page.Counts, want)
		}
		for _, j := range page.Jobs {
			if j.Payload.Message != nil || j.Description != "" {
				t.Errorf("the brief job %s has the message %v and the description %q", j.Name, j.Payload.Message, j.Description)
			}
		}
		second, last := list(map[string]any{"sortBy": "name", "limit": 3, "includeDisabled": true, "cursor": page.NextCursor, "outcomes": 14})
		if all := append(first, second...); !slices.Equal(all, []string{"alpha", "beta", "delta", "failing", "gamma"}) || last.NextCursor != "" || last.HasMore || last.Total != 5 {
			t.Errorf("pages by cursor have %v, then %q, %v, total %d", all, last.NextCursor, last.HasMore, last.Total)
		}
		if o := last.Jobs[0].Outcomes; len(o) != 1 || o[0].Outcome != "error" || o[0].SlotMs == 0 {
			t.Errorf("the outcomes of the failing job are %+v", o)
		}
		if err := c.Into(nil, "cron.list", map[string]any{"sortBy": "failing", "cursor": page.NextCursor}); err == nil {
			t.Error("a cursor of another order is taken")
		}
	})
}
