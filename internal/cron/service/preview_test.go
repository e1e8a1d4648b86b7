package service_test

import (
	"reflect"
	"testing"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/service"
)

// An edit keeps the fires that a job has had, its jitter, and the anchor of an interval that stays. A preview that knew the schedule alone promised other fires.
func TestThePreviewOfAnEditHasTheFiresOfTheEditedJob(t *testing.T) {
	t.Parallel()
	hour := func(n int) int64 { return noon.Add(time.Duration(n) * time.Hour).UnixMilli() }
	hourly := map[string]any{"kind": "cron", "expr": "0 * * * *", "tz": "UTC"}
	for name, c := range map[string]struct {
		job, patch map[string]any
		fires      int
	}{
		"another schedule":     {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "30 * * * *"}}, 1},
		"more runs":            {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"maxRuns": 4}, 2},
		"runs without a bound": {map[string]any{"schedule": hourly, "maxRuns": 3}, map[string]any{"maxRuns": nil}, 5},
		"a start and an end":   {map[string]any{"schedule": hourly, "maxRuns": 9}, map[string]any{"startsAtMs": hour(4), "endsAtMs": hour(5)}, 2},
		"the same interval":    {map[string]any{"schedule": map[string]any{"kind": "every", "everyMs": 7_000_000}}, map[string]any{"schedule": map[string]any{"kind": "every", "everyMs": 7_000_000}, "maxRuns": 9}, 5},
		"with jitter":          {map[string]any{"schedule": hourly, "jitterMs": 600_000}, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "30 * * * *"}}, 5},
	} {
		p := open(t)
		j := p.add(c.job)
		_, err := p.store.ChangeJob(t.Context(), cron.ChangeParams{ID: j.ID, Change: func(old cron.Job, _ time.Time) (*cron.Job, error) {
			old.State.Fired = 2
			return &old, nil
		}})
		if err != nil {
			t.Fatal(name, err)
		}
		p.now = noon.Add(time.Minute)
		ask := func(m cron.Members) cron.Preview {
			t.Helper()
			got, err := p.Editor.Preview(t.Context(), service.PreviewParams{ID: j.ID, Schedule: m, Count: 5}, operator)
			if err != nil {
				t.Fatal(name, err)
			}
			return got
		}
		patch := only(t, c.patch)
		before := ask(patch)
		if _, err := p.Editor.Update(t.Context(), j.ID, patch, "", operator); err != nil {
			t.Fatal(name, err)
		}
		if after := ask(nil); len(before.Fires) != c.fires || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the preview of the edit is %+v, that of the edited job %+v; want %d fires", name, before, after, c.fires)
		}
	}
	if _, err := open(t).Editor.Preview(t.Context(), service.PreviewParams{ID: "none", Schedule: only(t, map[string]any{"maxRuns": 4})}, operator); err == nil {
		t.Error("the edit of a job that does not exist has a preview")
	}
}
