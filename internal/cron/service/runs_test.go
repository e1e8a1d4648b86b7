package service_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"laneway/internal/cron"
)

func TestRunsByHandOfOneMillisecondGetSlotsOfTheirOwn(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(map[string]any{"overlap": "concurrent"})
	var ids []string
	for range 3 {
		id, reason, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil)
		if err != nil || reason != "" {
			t.Fatalf("started: %q, %v", reason, err)
		}
		ids = append(ids, id)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 3 || len(p.launched) != 3 {
		t.Errorf("runs %q, %d launched; want three", ids, len(p.launched))
	}
}

func TestARunByHandNamesWhyItDidNotStart(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	start := func(mode cron.RunMode) string {
		_, reason, err := p.Runs.Start(t.Context(), j.ID, mode, operator, nil)
		if err != nil {
			t.Fatal(err)
		}
		return reason
	}
	equal(t, "not due", start(cron.RunDue), "not-due")
	equal(t, "forced", start(cron.RunForce), "")
	equal(t, "beside it", start(cron.RunForce), "already-running")
	if _, err := p.Editor.Pause(t.Context(), j.ID, "", time.Time{}, operator); err != nil {
		t.Fatal(err)
	}
	equal(t, "paused", start(cron.RunIfEnabled), "disabled")
	if _, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, bob, nil); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a run of another one's job: %v", err)
	}
	equal(t, "launched", len(p.launched), 1)
}

func TestACancelStopsTheRunsAndNamesThem(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	id, _, err := p.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := p.Runs.Cancel(t.Context(), cron.CancelParams{JobID: j.ID}, operator)
	if err != nil || len(ids) != 1 || ids[0] != id {
		t.Errorf("cancelled %q, %v", ids, err)
	}
	equal(t, "stopped", strings.Join(p.stopped, ";"), id+" stop gateway")
	if _, err := p.Runs.Cancel(t.Context(), cron.CancelParams{RunID: "manual:none:1"}, operator); err == nil || !strings.Contains(err.Error(), "cron run not found") {
		t.Errorf("an unknown run: %v", err)
	}
}

func TestABackfillDoesWhatItsDryRunLists(t *testing.T) {
	t.Parallel()
	p := open(t)
	j := p.add(nil)
	p.now = p.now.Add(10 * time.Minute)
	params := cron.BackfillParams{ID: j.ID, From: noon.Add(time.Minute), To: noon.Add(4 * time.Minute), MaxRuns: 10, DryRun: true}
	plan, err := p.Runs.Backfill(t.Context(), params, operator)
	if err != nil || len(plan) != 4 || len(p.launched) != 0 {
		t.Fatalf("planned %+v, %v; %d launched", plan, err, len(p.launched))
	}
	params.DryRun = false
	done, err := p.Runs.Backfill(t.Context(), params, operator)
	if err != nil || !slices.Equal(done, plan) {
		t.Errorf("done %+v, %v; planned %+v", done, err, plan)
	}
	params.MaxRuns = 3
	if _, err := p.Runs.Backfill(t.Context(), params, operator); err == nil || !strings.Contains(err.Error(), "there are 4 fires") {
		t.Errorf("more fires than maxRuns: %v", err)
	}
	params.To = p.now.Add(time.Hour)
	if _, err := p.Runs.Backfill(t.Context(), params, operator); err == nil || !strings.Contains(err.Error(), "not in the future") {
		t.Errorf("a backfill of the future: %v", err)
	}
	params.From, params.To = params.From.Add(time.Hour), params.From
	if _, err := p.Runs.Backfill(t.Context(), params, operator); err == nil {
		t.Error("a backfill that ends before it begins is accepted")
	}
}

// TestAnEventReachesTheSubscribersOfAnotherReplica covers a replica that reads the job and the run
// from the shared store.
func TestAnEventReachesTheSubscribersOfAnotherReplica(t *testing.T) {
	t.Parallel()
	here := open(t)
	there := &process{t: t, now: noon}
	there.join(here.store)
	j := here.add(nil)
	if _, _, err := here.Runs.Start(t.Context(), j.ID, cron.RunForce, operator, nil); err != nil {
		t.Fatal(err)
	}
	if err := here.Editor.Remove(t.Context(), j.ID, true, operator); err != nil {
		t.Fatal(err)
	}
	for _, text := range append(here.sent, "{", `{"a":"added","j":"unknown"}`) {
		there.Events.Receive(t.Context(), text)
	}
	// The job was removed before the other replica reads it: the added event is lost, and the
	// others have enough data in the run and the event.
	equal(t, "events", there.takeEvents(), "finished digest cancelled, removed digest")
	equal(t, "sent again", len(there.sent), 0)
}

func TestBuiltInJobsAreMadeOnceAndAPausedOneStaysPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := open(t)
		second := &process{t: t, now: noon}
		second.join(p.store)
		list := func(s *process) []cron.Job { // lists the built-in jobs, after the loop of a process has started and ended
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run ended with %v", err)
			}
			page, err := p.Editor.Jobs(t.Context(), cron.JobFilter{IncludeSystem: true, SortBy: "name", Limit: 10}, operator)
			var names []string
			for _, j := range page.Jobs {
				names = append(names, j.Name)
			}
			if err != nil || !slices.Equal(names, []string{"ledger retention", "message retention", "store compaction", "store upkeep"}) {
				t.Fatalf("built-in jobs %q, %v", names, err)
			}
			return page.Jobs
		}
		if _, err := p.Editor.Pause(t.Context(), list(p)[0].ID, "", time.Time{}, operator); err != nil {
			t.Fatal(err)
		}
		if again := list(second); again[0].Pause == nil || again[1].Pause != nil {
			t.Errorf("after the start of a second process: %+v", again)
		}
	})
}
