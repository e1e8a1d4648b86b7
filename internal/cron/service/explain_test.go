package service_test

import (
	"errors"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
)

func TestASlotIsExplainedByWhatTheStoreKeeps(t *testing.T) {
	t.Parallel()
	p := open(t)
	by := chat.Caller{Principal: "ann", Scopes: []string{chat.ScopeAdmin}}
	put, err := p.Editor.Add(t.Context(), members(t, map[string]any{"schedule": map[string]any{"kind": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}}), by, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(a cron.ExplainParams) cron.Explained {
		t.Helper()
		a.ID = put.Job.ID
		found, err := p.Editor.Explain(t.Context(), a, by)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if x := ask(cron.ExplainParams{At: "9:00"}); x.Zone != "Europe/Berlin" || x.Slots[0].Why != cron.WhyMadeLater || !x.Slots[0].Slot.Equal(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("the slot before the job was made: %+v", x)
	}
	p.now = p.now.Add(10 * time.Hour)
	if _, err := p.Editor.Pause(t.Context(), put.Job.ID, "holidays", time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	p.now = noon.Add(24 * time.Hour)
	x := ask(cron.ExplainParams{At: "9:00"}).Slots[0]
	if want := "The job has been paused since Fri 20 Nov 23:00 by ann (holidays)."; x.Text != want || x.Why != cron.WhyPaused {
		t.Errorf("got %s: %s, want %s", x.Why, x.Text, want)
	}
	whole := ask(cron.ExplainParams{From: noon, Until: noon.Add(26 * time.Hour)})
	if len(whole.Slots) != 1 || whole.Slots[0].Text != x.Text || len(whole.Slots[0].Changes) == 0 || whole.Slots[0].Changes[0].Who != "ann" {
		t.Errorf("the slots of 26 hours are %+v", whole.Slots)
	}
	for name, bad := range map[string]cron.ExplainParams{
		"no time":   {ID: put.Job.ID, At: "soon"},
		"too long":  {ID: put.Job.ID, From: noon, Until: noon.Add(27 * time.Hour)},
		"backwards": {ID: put.Job.ID, From: noon, Until: noon.Add(-time.Hour)},
		"no job":    {ID: "none", At: "9:00"},
	} {
		if _, err := p.Editor.Explain(t.Context(), bad, by); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	if _, err := p.Editor.Explain(t.Context(), cron.ExplainParams{ID: put.Job.ID, At: "9:00"}, bob); errors.Is(err, nil) {
		t.Error("another person can read about the job")
	}
}
