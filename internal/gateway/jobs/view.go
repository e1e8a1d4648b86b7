package jobs

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
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
	if j.Unserved != "" {
		out.Warnings = []string{j.Unserved}
	}
	out.ScheduleWords = j.Schedule.Words(j.Schedule.TZ)
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
		AccountID: d.Account, BestEffort: d.BestEffort, Channel: d.Channel, Mode: cmp.Or(string(d.Mode), string(cron.DeliverNone)), ThreadID: d.Thread, To: d.To, Urgent: d.Urgent,
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

func cronCompletion(r cron.Run, bestEffort bool) string {
	switch {
	case r.State == cron.RunInterrupted:
		return "unknown"
	case r.State != cron.RunOK:
		return "failed"
	case bestEffort:
		return "succeeded"
	case r.Delivery == cron.DeliveryNot:
		return "failed"
	case r.Delivery == cron.DeliveryUnknown:
		return "unknown"
	}
	return "succeeded"
}

// runError returns the error of an entry. If something other than the turn ended the run, the error
// begins with its name.
func runError(r cron.Run) string {
	switch r.State {
	case cron.RunCancelled, cron.RunInterrupted:
		word := string(r.State) + ":"
		if !strings.HasPrefix(r.Error, word) {
			return strings.TrimSpace(word + " " + cmp.Or(strings.TrimPrefix(r.Error, string(r.State)), string(r.Reason)))
		}
	default: // the two with a prefix
	}
	return r.Error
}

// outcomeView returns the common members of a ledger entry and an event: an event without action
// and job.
func outcomeView(r cron.Run, job *cron.Job, extended bool) wire.CronEvent {
	out := wire.CronEvent{RunID: r.ID, Error: runError(r), Summary: r.Summary, RunAtMs: rpc.Millis(r.StartedAt)}
	if r.State.Final() {
		out.Status, out.CompletionStatus = statusWord(r.State), cronCompletion(r, job != nil && job.Delivery.BestEffort)
		out.DeliveryStatus = string(r.Delivery)
		if r.Delivery != "" && r.Delivery != cron.DeliveryNotRequested {
			out.Delivered = new(r.Delivery == cron.DeliveryDone)
		}
		if !r.StartedAt.IsZero() {
			out.DurationMs = new(r.Duration.Milliseconds())
		}
	}
	if r.State != cron.RunOK {
		out.ErrorReason = r.ErrorClass
	}
	switch {
	case !r.NextAttempt.IsZero():
		out.NextRunAtMs = rpc.Millis(r.NextAttempt)
	case job != nil && job.MayFire():
		out.NextRunAtMs = rpc.Millis(job.State.NextRunAt)
	}
	if extended {
		out.Outcome, out.Trigger, out.ScheduledForMs, out.Reason = string(r.State), string(r.Trigger.Kind()), rpc.Millis(r.ScheduledFor), string(r.Reason)
	}
	return out
}

// EntryView returns an entry of the ledger as clients see it.
func EntryView(r cron.Run, job *cron.Job, extended bool) wire.LedgerEntry {
	o := outcomeView(r, job, extended)
	out := wire.LedgerEntry{
		Action: "finished", CompletionStatus: o.CompletionStatus, Delivered: o.Delivered, DeliveryError: r.DeliveryError, DeliveryStatus: o.DeliveryStatus,
		DeliverySuppressionReason: r.SuppressedBy, DurationMs: o.DurationMs, Error: o.Error, ErrorReason: o.ErrorReason, JobID: r.JobID, JobName: r.JobName,
		Model: r.Model, NextRunAtMs: o.NextRunAtMs, Outcome: o.Outcome, Provider: r.Provider, Reason: o.Reason, RunAtMs: o.RunAtMs, RunID: o.RunID,
		ScheduledForMs: o.ScheduledForMs, Status: o.Status, Summary: o.Summary, Trigger: o.Trigger, TS: entryTime(r),
	}
	if r.State.Active() {
		out.Action = "started"
	}
	ran := !r.StartedAt.IsZero()
	if ran {
		out.SessionKey = r.SessionKey
	}
	if total := r.InputTokens + r.OutputTokens; total > 0 {
		out.Usage = &wire.LedgerUsage{InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, TotalTokens: total}
	}
	if !extended {
		return out
	}
	out.Lane, out.SlotCount, out.SlotUntilMs = &r.Lane, new(max(1, r.SlotCount)), rpc.Millis(r.SlotUntil)
	out.Policy = r.Policy(job)
	if job != nil {
		out.Timezone = job.Schedule.TZ
	}
	if ran {
		out.Attempts = make([]wire.LedgerAttempt, 0, len(r.Attempts))
		for _, a := range r.Attempts {
			out.Attempts = append(out.Attempts, attemptView(a))
		}
	}
	return out
}

func entryTime(r cron.Run) int64 {
	for _, t := range []time.Time{r.FinishedAt, r.StartedAt, r.ClaimedAt} {
		if !t.IsZero() {
			return rpc.Millis(t)
		}
	}
	return rpc.Millis(r.ScheduledFor)
}

func attemptView(a cron.Attempt) wire.LedgerAttempt {
	out := wire.LedgerAttempt{
		Attempt: a.Number, Error: a.Error, ErrorReason: a.ErrorClass, FinishedAtMs: rpc.Millis(a.FinishedAt), NodeID: a.Node, StartedAtMs: rpc.Millis(a.StartedAt),
		Status: string(a.State),
	}
	if !a.FinishedAt.IsZero() {
		out.DurationMs = new(a.FinishedAt.Sub(a.StartedAt).Milliseconds())
	}
	return out
}

// EventView returns an event as clients see it.
func EventView(ev cron.Event, extended bool) wire.CronEvent {
	out := runEventView(ev, extended)
	if ev.Job.Key != "" {
		out.Job = new(jobView(ev.Job, extended))
	}
	return out
}

// BriefView returns an event as clients with the capability cron-brief see it: without the job, its
// message and its answer.
func BriefView(ev cron.Event) wire.CronEvent {
	out := runEventView(ev, true)
	out.Error, out.Summary = "", ""
	return out
}

func runEventView(ev cron.Event, extended bool) wire.CronEvent {
	out := wire.CronEvent{JobID: ev.Job.ID}
	if ev.Run != nil {
		out = outcomeView(*ev.Run, &ev.Job, extended)
		out.JobID = ev.Run.JobID
		if extended {
			out.Attempt = max(0, ev.Run.Attempt)
		}
		if ev.Action != cron.ActionFinished {
			out.Status, out.CompletionStatus, out.DeliveryStatus, out.Delivered = "", "", "", nil
		}
	}
	out.Action = string(ev.Action)
	return out
}

// WebhookBody returns the body of a webhook about a finished run: the payload of its event in the
// standard view, with its slot and session. For a run whose answer is not sent, it has the member
// suppressed (no_reply or empty) instead of the text.
func WebhookBody(job cron.Job, run cron.Run) []byte {
	if run.SuppressedBy != "" {
		run.Summary = ""
	}
	out := wire.WebhookBody{
		CronEvent: EventView(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run}, false), SessionKey: run.SessionKey,
		Suppressed: strings.ReplaceAll(run.SuppressedBy, "-", "_"),
	}
	out.ScheduledForMs = rpc.Millis(run.ScheduledFor)
	for limit := maxAnswer; ; limit /= 2 {
		out.Summary = chat.Cut(run.Summary, limit)
		out.Truncated = len(out.Summary) < len(run.Summary)
		if body := strictjson.Encode(out); len(body) <= maxWebhook || limit == 0 {
			return body
		}
	}
}

const (
	// maxAnswer bounds the text of an answer in a webhook, in bytes, and maxWebhook the body, in
	// which a character may take six.
	maxAnswer  = 256 << 10
	maxWebhook = 1_000_000
)

// previewOf describes where the answers of a job go.
func previewOf(d cron.Delivery) wire.DeliveryPreview {
	switch {
	case d.Mode == cron.DeliverWebhook:
		return wire.DeliveryPreview{Label: "webhook", Detail: d.To}
	case d.Mode == cron.DeliverAnnounce && d.Channel == wire.ChannelWeb && d.To != "":
		return wire.DeliveryPreview{Label: wire.ChannelWeb, Detail: d.To}
	case d.Mode == cron.DeliverAnnounce && (d.Channel == "" || d.Channel == "last" || d.Channel == wire.ChannelWeb):
		return wire.DeliveryPreview{Label: "last route", Detail: "main session"}
	case d.Mode == cron.DeliverAnnounce:
		return wire.DeliveryPreview{Label: d.Channel, Detail: strings.TrimSpace(d.Channel + " " + d.To + " " + d.Thread)}
	}
	return wire.DeliveryPreview{Label: "not requested", Detail: "not requested"}
}
