package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

func fullJob() cron.Job {
	return cron.Job{
		ID:       "j1",
		Schedule: schedule.Spec{Kind: schedule.KindCron, Expr: "0 9 * * 1", TZ: "Europe/Berlin", Gap: schedule.GapSkip, Fold: schedule.FoldBoth},
		Payload:  cron.Payload{Kind: cron.PayloadAgentTurn, Text: "a <b> & \u2028 \x00 日本", Options: []byte(`{"model":"m <1>"}`)},
		Delivery: cron.Delivery{
			Mode: cron.DeliverAnnounce, Channel: "telegram", To: "4711", Thread: "7", Account: "bot", BestEffort: true, Options: []byte(`[1]`),
		},
		Alert: cron.Alert{
			Off: true, After: 3, Cooldown: time.Minute, IncludeSkipped: true,
			Delivery: cron.Delivery{Mode: cron.DeliverWebhook, To: "https://example.org/x?a=1&b=2"},
		},
		Overlap: cron.OverlapBufferOne, Missed: cron.MissedPolicy{Rule: cron.MissedFireAll, MaxCatchup: 7, Window: cron.EmptyWindow},
		Retry: cron.DefaultRetry(), Timeout: cron.DefaultTimeout, AtMostOnce: true, DeleteAfter: true, PauseAfter: 4,
	}
}

func jobs() map[string]cron.Job {
	at := time.Date(2027, 3, 2, 8, 0, 0, 123e6, time.UTC)
	least := cron.Job{Schedule: schedule.Spec{Kind: schedule.KindEvery, EveryMs: 60_000, AnchorMs: -5}, Payload: cron.Payload{Kind: cron.PayloadScript}}
	once := cron.Job{
		Schedule: schedule.Spec{Kind: schedule.KindAt, At: at}, Payload: cron.Payload{Kind: cron.PayloadSystemEvent, Text: "tea"},
		Missed: cron.MissedPolicy{Window: cron.NoWindow}, Delivery: cron.Delivery{Mode: cron.DeliverNone},
	}
	return map[string]cron.Job{"everything": fullJob(), "little": least, "once": once}
}

func TestPartsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for name, job := range jobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts, err := cron.EncodeParts(job)
			if err != nil {
				t.Fatal(err)
			}
			if parts.TZ != job.Schedule.TZ {
				t.Errorf("zone %q", parts.TZ)
			}
			got := cron.Job{ID: job.ID}
			if err := cron.DecodeParts(parts, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(job, got); diff != "" {
				t.Fatalf("(- want, + got):\n%s", diff)
			}
			again, err := cron.EncodeParts(got)
			if err != nil || again != parts {
				t.Fatalf("written again: %v, %+v, want %+v", err, again, parts)
			}
		})
	}
}

func TestOptionsMustBeJSON(t *testing.T) {
	t.Parallel()
	job := fullJob()
	job.Payload.Options = []byte("{broken")
	if _, err := cron.EncodeParts(job); err == nil || !strings.Contains(err.Error(), "payload of job j1") {
		t.Fatalf("got %v", err)
	}
}

func TestRowsThatCannotBeUnderstood(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, want string
		spoil      func(p *cron.Parts)
	}{
		{"no JSON", "schedule", func(p *cron.Parts) { p.Schedule = "99 99 * * *" }},
		{"nothing", "schedule", func(p *cron.Parts) { p.Schedule = "" }},
		{"null", "kind", func(p *cron.Parts) { p.Schedule = "null" }},
		{"another shape", "payload", func(p *cron.Parts) { p.Payload = `["agentTurn"]` }},
		{"two values", "payload", func(p *cron.Parts) { p.Payload += " {}" }},
		{"unknown kind of schedule", "kind weekly", func(p *cron.Parts) { p.Schedule = `{"kind":"weekly"}` }},
		{"unknown kind of payload", "kind heartbeat", func(p *cron.Parts) { p.Payload = `{"kind":"heartbeat"}` }},
		{"unknown mode", "mode pigeon", func(p *cron.Parts) { p.Delivery = `{"mode":"pigeon"}` }},
		{"unknown mode of the alert", "mode pigeon", func(p *cron.Parts) { p.Alert = `{"delivery":{"mode":"pigeon"}}` }},
		{"unknown member", "policy", func(p *cron.Parts) { p.Policy = `{"budget":1}` }},
		{"unknown policy", "overlap", func(p *cron.Parts) { p.Policy = `{"overlap":"maybe"}` }},
		{"number out of bounds", "maxCatchup", func(p *cron.Parts) { p.Policy = `{"maxCatchup":1000}` }},
		{"retries out of bounds", "retry", func(p *cron.Parts) { p.Policy = `{"retries":99,"retryBase":"2s","retryMax":"30s"}` }},
		{"no length of time", "length of time", func(p *cron.Parts) { p.Policy = `{"timeout":"soon"}` }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parts, err := cron.EncodeParts(fullJob())
			if err != nil {
				t.Fatal(err)
			}
			tt.spoil(&parts)
			job := cron.Job{ID: "j1", Name: "before"}
			err = cron.DecodeParts(parts, &job)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), tt.want) {
				t.Fatalf("got %v, want a word about %s", err, tt.want)
			}
			if diff := cmp.Diff(cron.Job{ID: "j1", Name: "before"}, job); diff != "" {
				t.Fatalf("a refused row changed the job:\n%s", diff)
			}
		})
	}
}

func TestAttemptsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 3, 2, 8, 0, 0, 120e6, time.UTC)
	want := []cron.Attempt{
		{Number: 1, State: cron.AttemptError, StartedAt: at, FinishedAt: at.Add(time.Second), Error: `said "no"`, ErrorClass: "overloaded", Node: "gw-1"},
		{Number: 2, StartedAt: at.Add(time.Minute), Node: "gw-2"},
	}
	text, err := cron.EncodeAttempts(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cron.DecodeAttempts(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(- want, + got):\n%s", diff)
	}
	if text, err := cron.EncodeAttempts(nil); err != nil || text != "[]" {
		t.Fatalf("no attempts are %q, %v", text, err)
	}
	for _, none := range []string{"", "[]"} {
		if got, err := cron.DecodeAttempts(none); err != nil || got != nil {
			t.Fatalf("%q is %v, %v", none, got, err)
		}
	}
	if _, err := cron.DecodeAttempts("{"); err == nil {
		t.Fatal("broken JSON was read")
	}
}

// TestARememberedJobIsTheOneThatItsTextsMean checks a cached job: decoded again, with other members
// around it, and after a caller changed it.
func TestARememberedJobIsTheOneThatItsTextsMean(t *testing.T) {
	t.Parallel()
	var d cron.PartsDecoder
	for range 3 {
		for name, job := range jobs() {
			parts, err := cron.EncodeParts(job)
			if err != nil {
				t.Fatal(err)
			}
			got := cron.Job{ID: job.ID, Name: "another"}
			if err := d.Decode(parts, &got); err != nil {
				t.Fatal(err)
			}
			want := job
			want.Name = "another"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s (- want, + got):\n%s", name, diff)
			}
			got.Schedule.EveryMs++
			for i := range got.Payload.Options {
				got.Payload.Options[i] = 'x'
			}
		}
	}
	if err := d.Decode(cron.Parts{Schedule: `{"kind":"never"}`}, &cron.Job{}); err == nil {
		t.Error("meaningless parts are a job")
	}
}
