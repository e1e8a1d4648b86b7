package cron

import (
	"reflect"
	"testing"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron/schedule"
)

func TestTheMessageOfARunIsThePayloadOfItsJob(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, 7, 1, 7, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(j *Job, r *PlannedRun)
		want   func(m *chat.Content)
	}{
		"as planned":                 {func(*Job, *PlannedRun) {}, func(*chat.Content) {}},
		"late by less than a minute": {func(_ *Job, r *PlannedRun) { r.Late = lateNote - 1 }, func(*chat.Content) {}},
		"late":                       {func(_ *Job, r *PlannedRun) { r.Late = lateNote }, func(m *chat.Content) { m.Text = "go\n\n(planned for 2026-07-01 09:00 +02:00)" }},
		"late by hand":               {func(_ *Job, r *PlannedRun) { r.Late, r.Trigger = time.Hour, TriggerManual }, func(*chat.Content) {}},
		"backfill": {func(j *Job, r *PlannedRun) { j.Schedule.TZ, r.Trigger = "UTC", TriggerBackfill }, func(m *chat.Content) {
			m.Text = "go\n\n(planned for 2026-07-01 07:00 +00:00)"
		}},
		"in a zone that is not known any more": {func(j *Job, r *PlannedRun) { j.Schedule.TZ, r.Late = "Mars/Base", time.Hour }, func(m *chat.Content) {
			m.Text = "go\n\n(planned for 2026-07-01 07:00 +00:00)"
		}},
		"without a limit": {func(j *Job, _ *PlannedRun) { j.Timeout = 0 }, func(m *chat.Content) { m.Options.TimeoutMs = -1 }},
		"at most once":    {func(j *Job, _ *PlannedRun) { j.AtMostOnce = true }, func(m *chat.Content) { m.Options.AtMostOnce = true }},
		"without text":    {func(j *Job, _ *PlannedRun) { j.Payload = Payload{Kind: PayloadCommand} }, func(m *chat.Content) { m.Text = "command" }},
		"an event":        {func(j *Job, _ *PlannedRun) { j.Payload.Kind = PayloadSystemEvent }, func(m *chat.Content) { m.System = true }},
		"options of a turn": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{"model":"big","thinking":"high"}`) }, func(m *chat.Content) {
			m.Options.Model, m.Options.Thinking = "big", "high"
		}},
		"options of its runner": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{"model":"big","lightContext":true}`) }, func(m *chat.Content) {
			m.Options.Model, m.Options.Params = "big", map[string]any{"lightContext": true}
		}},
		"options that are not JSON": {func(j *Job, _ *PlannedRun) { j.Payload.Options = []byte(`{`) }, func(*chat.Content) {}},
	} {
		j := Job{
			ID: "j", Name: "digest", Timeout: time.Minute, Payload: Payload{Kind: PayloadAgentTurn, Text: "go"},
			Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * *", TZ: "Europe/Berlin"},
		}
		r := PlannedRun{Fire: schedule.Fire{Slot: slot, At: slot}, Trigger: TriggerSchedule}
		c.change(&j, &r)
		want := chat.Content{
			Text: "go", Sender: chat.Sender{ID: "cron:j", Name: "digest"}, Options: chat.Options{NoMerge: true, Mode: chat.ModeQueue, TimeoutMs: 60_000},
		}
		c.want(&want)
		if got := j.content(r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}
