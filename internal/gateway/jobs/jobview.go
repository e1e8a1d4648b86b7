package jobs

import (
	"cmp"
	"encoding/json"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

// jobView returns a job as clients see it.
func jobView(j cron.Job, extended bool) wire.Job {
	st := j.State
	out := wire.Job{
		AgentID: j.Agent, ConfigRevision: j.Revision, CreatedAtMs: rpc.Millis(j.CreatedAt), Delivery: deliveryView(j.Delivery), Description: j.Description,
		DisplayName: j.DisplayName, Enabled: j.MayFire(), FailureAlert: alertView(j.Alert), ID: j.ID, LastDeliveryStatus: string(st.LastDelivery),
		LastRunAtMs: rpc.Millis(st.LastRunAt), LastRunError: st.LastError, LastRunStatus: statusWord(st.LastState), Name: j.Name, Payload: payloadView(j),
		Schedule: scheduleView(j), SessionTarget: j.Session, State: jobState(j), UpdatedAtMs: rpc.Millis(j.UpdatedAt), WakeMode: cmp.Or(j.WakeMode, "now"),
	}
	if !j.KeyDerived {
		out.DeclarationKey = &j.Key
	}
	if j.DeleteAfter || j.Schedule.Kind == schedule.KindAt {
		out.DeleteAfterRun = &j.DeleteAfter
	}
	if j.MayFire() {
		out.NextRunAtMs = rpc.Millis(st.NextRunAt)
	}
	if extended {
		extendJob(&out, j)
	}
	return out
}

// extendJob adds the members of the extended view.
func extendJob(out *wire.Job, j cron.Job) {
	out.Key, out.KeyDerived, out.Overlap = j.Key, &j.KeyDerived, cmp.Or(string(j.Overlap), string(cron.OverlapSkip))
	out.Missed, out.JitterMs, out.Lane, out.AtMostOnce, out.Principal = missedView(j), &j.JitterMs, &j.Lane, &j.AtMostOnce, &j.Principal
	out.Retry = &wire.JobRetry{BaseMs: j.Retry.Base.Milliseconds(), MaxMs: j.Retry.Max.Milliseconds(), MaxRetries: j.Retry.Retries}
	out.TimeoutSeconds, out.PauseAfterFailures = new(int64(j.Timeout/time.Second)), &j.PauseAfter
	out.RunCount, out.ErrorCount, out.QueuedRuns = &j.State.RunCount, &j.State.ErrorCount, &j.State.Queued
	out.StartsAtMs, out.EndsAtMs, out.MaxRuns, out.Invalid = rpc.Millis(j.StartsAt), rpc.Millis(j.EndsAt), max(0, j.MaxRuns), j.Invalid
	if j.MayFire() {
		out.NextScheduledForMs = rpc.Millis(j.State.Next)
	}
	if j.Schedule.Kind == schedule.KindCron {
		if s, err := schedule.Compile(j.Schedule); err == nil {
			gap, fold := s.Rules()
			out.DST = &wire.JobDST{Gap: string(gap), Overlap: string(fold)}
		}
	}
	if p := j.State.DeliveryPause; !p.Since.IsZero() {
		out.DeliveryPaused = &wire.JobDeliveryPaused{AtMs: rpc.Millis(p.Since), Channel: p.Channel, Reason: p.Reason, To: p.ChatID}
	}
	if p := j.Pause; p != nil {
		out.Paused = &wire.JobPause{AtMs: rpc.Millis(p.At), By: p.By, Enabled: j.Enabled, Note: p.Note, UntilMs: rpc.Instant(p.Until)}
	}
}

// briefJob returns the brief form of a job for lists.
func briefJob(j *wire.Job) wire.Job {
	return wire.Job{
		AgentID: j.AgentID, ConfigRevision: j.ConfigRevision, CreatedAtMs: j.CreatedAtMs, Delivery: j.Delivery, DeliveryPaused: j.DeliveryPaused, DisplayName: j.DisplayName,
		Enabled: j.Enabled, ID: j.ID, Invalid: j.Invalid, LastRunAtMs: j.LastRunAtMs, LastRunError: j.LastRunError, LastRunStatus: j.LastRunStatus, Name: j.Name,
		NextRunAtMs: j.NextRunAtMs, Paused: j.Paused, Payload: wire.JobPayload{Kind: j.Payload.Kind}, QueuedRuns: j.QueuedRuns, Schedule: j.Schedule,
		SessionTarget: j.SessionTarget, State: wire.JobState{AutoDisabled: j.State.AutoDisabled, ConsecutiveErrors: j.State.ConsecutiveErrors, LastErrorReason: j.State.LastErrorReason, RunningAtMs: j.State.RunningAtMs},
		UpdatedAtMs: j.UpdatedAtMs, WakeMode: j.WakeMode,
	}
}

func outcomesView(list []cron.RunOutcome) []wire.JobOutcome {
	out := make([]wire.JobOutcome, 0, len(list))
	for _, o := range list {
		out = append(out, wire.JobOutcome{DurationMs: o.Duration.Milliseconds(), Outcome: string(o.State), Reason: string(o.Reason), SlotMs: o.Slot.UnixMilli()})
	}
	return out
}

func missedView(j cron.Job) *wire.JobMissed {
	missed := j.Missed.For(j.Schedule.Kind)
	out := &wire.JobMissed{MaxCatchup: missed.MaxCatchup, Policy: string(missed.Rule)}
	if missed.Window != cron.NoWindow {
		out.WindowSeconds = new(int64(missed.Window / time.Second))
	}
	return out
}

func scheduleView(j cron.Job) wire.JobSchedule {
	s := j.Schedule
	out := wire.JobSchedule{Kind: string(s.Kind)}
	switch s.Kind {
	case schedule.KindAt:
		out.At = rpc.ISOTime(s.At)
	case schedule.KindEvery:
		out.EveryMs, out.AnchorMs = s.EveryMs, &s.AnchorMs
	case schedule.KindCron:
		out.Expr, out.TZ, out.StaggerMs = s.Expr, cmp.Or(s.TZ, "UTC"), &j.JitterMs
	}
	return out
}

func payloadView(j cron.Job) wire.JobPayload {
	out := wire.JobPayload{Kind: string(j.Payload.Kind)}
	if len(j.Payload.Options) > 0 && json.Unmarshal(j.Payload.Options, &out.Options) != nil {
		out.Options = nil
	}
	seconds := int64(j.Timeout / time.Second)
	switch j.Payload.Kind {
	case cron.PayloadAgentTurn:
		out.Message, out.TimeoutSeconds = &j.Payload.Text, &seconds
	case cron.PayloadSystemEvent:
		out.Text = &j.Payload.Text
	case cron.PayloadCommand:
		out.Input, out.TimeoutSeconds = j.Payload.Text, &seconds
	case cron.PayloadScript:
		out.Script, out.TimeoutSeconds = &j.Payload.Text, &seconds
	}
	return out
}

func deliveryView(d cron.Delivery) wire.JobDelivery {
	out := wire.JobDelivery{
		AccountID: d.Account, BestEffort: d.BestEffort, Channel: d.Channel, Mode: cmp.Or(string(d.Mode), string(cron.DeliverNone)), ThreadID: d.Thread, To: d.To,
	}
	if at, ok := d.Failure(); ok {
		out.FailureDestination = new(deliveryView(at))
	}
	if at, ok := d.Completion(); ok {
		out.CompletionDestination = new(deliveryView(at))
	}
	return out
}

func alertView(a cron.Alert) *wire.FailureAlert {
	if a.Off {
		return &wire.FailureAlert{Of: wire.NoAlert(false)}
	}
	if a.After == 0 && a.Cooldown == 0 && !a.IncludeSkipped && a.Delivery.Mode == "" {
		return nil
	}
	return &wire.FailureAlert{Of: wire.AlertRule{
		AccountID: a.Delivery.Account, After: a.After, Channel: a.Delivery.Channel, CooldownMs: a.Cooldown.Milliseconds(), IncludeSkipped: a.IncludeSkipped,
		Mode: string(a.Delivery.Mode), To: a.Delivery.To,
	}}
}

func jobState(j cron.Job) wire.JobState {
	st := j.State
	out := wire.JobState{
		AutoDisabled: j.AutoDisabled, ConsecutiveSkipped: max(0, st.ConsecutiveSkipped), LastDeliveryError: st.LastDeliveryError,
		LastDeliveryStatus: string(st.LastDelivery), LastError: st.LastError, LastErrorReason: st.LastErrorClass, LastFailureAlertAtMs: rpc.Millis(st.LastAlertAt),
		LastRunAtMs: rpc.Millis(st.LastRunAt), LastRunStatus: statusWord(st.LastState), LastStatus: statusWord(st.LastState), RunningAtMs: rpc.Millis(st.RunningAt),
		ScheduleActivatedAtMs: rpc.Millis(st.ActivatedAt),
	}
	if j.MayFire() {
		out.NextRunAtMs = rpc.Millis(st.NextRunAt)
	}
	if !st.LastRunAt.IsZero() {
		out.LastDurationMs, out.ConsecutiveErrors = new(st.LastDuration.Milliseconds()), &st.ConsecutiveErrors
	}
	if st.LastDelivery != "" {
		out.LastDelivered = new(st.LastDelivery == cron.DeliveryDone)
	}
	return out
}

// statusWord returns the three-valued status of the standard protocol.
func statusWord(s cron.RunState) string {
	switch s {
	case cron.RunOK:
		return "ok"
	case cron.RunSkipped, cron.RunMissed:
		return "skipped"
	case cron.RunError, cron.RunCancelled, cron.RunInterrupted, cron.RunQueued, cron.RunRunning, cron.RunRetrying:
		return "error"
	}
	return ""
}
