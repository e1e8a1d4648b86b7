package cron

import (
	"fmt"
	"math"
	"testing"
	"time"

	"laneway/internal/cron/schedule"
)

func TestOverlapPolicyDecidesByActiveAndWaitingRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy           OverlapPolicy
		active, buffered int
		action           OverlapAction
		reason           Reason
	}{
		{OverlapSkip, 0, 0, ActionRun, ReasonNone},
		{OverlapSkip, 1, 0, ActionSkip, ReasonOverlap},
		{"", 1, 0, ActionSkip, ReasonOverlap},
		{"later", 1, 0, ActionSkip, ReasonOverlap},
		{OverlapConcurrent, 9, 0, ActionRun, ReasonNone},
		{OverlapConcurrent, 10, 0, ActionSkip, ReasonOverlap},
		{OverlapBufferOne, 0, 0, ActionRun, ReasonNone},
		{OverlapBufferOne, 1, 0, ActionBuffer, ReasonNone},
		{OverlapBufferOne, 1, 1, ActionSkip, ReasonBufferFull},
		{OverlapBufferOne, 0, 1, ActionSkip, ReasonBufferFull},
		{OverlapCancelPrevious, 0, 0, ActionRun, ReasonNone},
		{OverlapCancelPrevious, 3, 1, ActionReplace, ReasonNone},
	} {
		action, reason := c.policy.Decide(c.active, c.buffered)
		if action != c.action || reason != c.reason {
			t.Errorf("%q.Decide(%d, %d) = %s, %q, want %s, %q", c.policy, c.active, c.buffered, action, reason, c.action, c.reason)
		}
	}
	refused(t, "unknown", OverlapPolicy("later").Check(), "overlap", schedule.InvalidChoice, "skip, concurrent, buffer_one and cancel_previous")
}

func TestRetryWaitsTwiceAsLongEachTime(t *testing.T) {
	t.Parallel()
	r := DefaultRetry()
	r.Retries = 10
	for n, seconds := range []int64{2, 4, 8, 16, 30, 30, 30, 30, 30, 30} {
		want := time.Duration(seconds) * time.Second
		for random, factor := range map[float64]float64{0: 0.75, 0.5: 1, math.Nextafter(1, 0): 1.25} {
			got, ok := r.Delay(n+1, func() float64 { return random })
			if off := math.Abs(float64(got) - float64(want)*factor); !ok || off > 1e3 {
				t.Errorf("Delay(%d) with %v = %s, want %s", n+1, random, got, time.Duration(float64(want)*factor))
			}
		}
	}
	for _, n := range []int{-1, 0, 11, math.MaxInt} {
		if d, ok := r.Delay(n, func() float64 { return 0 }); ok {
			t.Errorf("Delay(%d) = %s, want none", n, d)
		}
	}
	if d, ok := (Retry{Base: time.Second, Max: time.Second}).Delay(1, func() float64 { return 0 }); ok {
		t.Errorf("without retries Delay(1) = %s", d)
	}
}

func TestSettingsAreBounded(t *testing.T) {
	t.Parallel()
	good := Job{Retry: DefaultRetry(), Timeout: DefaultTimeout, PauseAfter: DefaultPauseAfter}
	if err := good.CheckSettings(); err != nil {
		t.Fatalf("defaults: %v", err)
	}
	for field, edit := range map[string]func(*Job){
		"overlap":              func(j *Job) { j.Overlap = "no" },
		"missed.policy":        func(j *Job) { j.Missed.Rule = "no" },
		"missed.maxCatchup":    func(j *Job) { j.Missed.MaxCatchup = 101 },
		"missed.windowSeconds": func(j *Job) { j.Missed.Window = MaxWindow + 1 },
		"retry.maxRetries":     func(j *Job) { j.Retry.Retries = 11 },
		"retry.baseMs":         func(j *Job) { j.Retry.Base = 99 * time.Millisecond },
		"retry.maxMs":          func(j *Job) { j.Retry.Max = time.Second },
		"timeoutSeconds":       func(j *Job) { j.Timeout = MaxTimeout + 1 },
		"pauseAfterFailures":   func(j *Job) { j.PauseAfter = -1 },
		"description":          func(j *Job) { j.Description = fmt.Sprintf("%2001d", 1) },
	} {
		bad := good
		edit(&bad)
		err := bad.CheckSettings()
		reason := schedule.InvalidRange
		if field == "overlap" || field == "missed.policy" {
			reason = schedule.InvalidChoice
		}
		refused(t, field, err, field, reason, field)
	}
}

func TestRunIDsCanBeTakenApart(t *testing.T) {
	t.Parallel()
	slot := time.UnixMilli(1803895260000).UTC()
	id := RunID(TriggerManual, "019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4", slot)
	if id != "manual:019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4:1803895260000" {
		t.Errorf("RunID = %s", id)
	}
	trigger, job, at, err := ParseRunID(id)
	if err != nil || trigger != TriggerManual || job != "019c2a7e-41d0-7c2b-9a55-7be0c1d2e3f4" || !at.Equal(slot) {
		t.Errorf("ParseRunID = %s, %s, %s, %v", trigger, job, at, err)
	}
	for _, bad := range []string{"", "manual", "manual:a", "often:a:1", "manual::1", "manual:a:b:1", "manual:a:01", "manual:a:+1", "manual:a:1x"} {
		if _, _, _, err := ParseRunID(bad); err == nil {
			t.Errorf("ParseRunID(%q) is accepted", bad)
		}
	}
}

func TestStatesAreActiveOrFinal(t *testing.T) {
	t.Parallel()
	active := map[RunState]bool{RunQueued: true, RunRunning: true, RunRetrying: true}
	for _, s := range []RunState{RunQueued, RunRunning, RunRetrying, RunOK, RunError, RunSkipped, RunMissed, RunCancelled, RunInterrupted} {
		if s.Active() != active[s] || s.Final() == active[s] || !s.Valid() {
			t.Errorf("%s: active %v, final %v, valid %v", s, s.Active(), s.Final(), s.Valid())
		}
	}
	if RunState("done").Valid() || Reason("because").Valid() || Trigger("often").Valid() {
		t.Error("an unknown word is valid")
	}
	if !ReasonGap.Valid() || !ReasonNone.Valid() || TriggerManual.Planned() || TriggerBackfill.Planned() || !TriggerCatchup.Planned() {
		t.Error("a known word is misread")
	}
}

func TestAJobGivesItsTimetable(t *testing.T) {
	t.Parallel()
	j := Job{ID: "j", JitterMs: 5, MaxRuns: 2, EndsAt: noon, State: JobState{Fired: 1}, Enabled: true}
	s := mustCompile(t, cronSpec("0 * * * *", "UTC"))
	want := Timetable{Schedule: s, JobID: "j", JitterMs: 5, MaxRuns: 2, Fired: 1, EndsAt: noon}
	if got := j.Timetable(s); got != want {
		t.Errorf("Timetable = %+v, want %+v", got, want)
	}
	if !j.MayFire() {
		t.Error("an enabled job may not fire")
	}
	j.Pause = &Pause{Note: "holidays"}
	if j.MayFire() {
		t.Error("a paused job may fire")
	}
}
