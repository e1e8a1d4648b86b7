package jobs

import (
	"cmp"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

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

// runError returns the error of an entry. If something other than the turn ended the run, the error begins with its name.
func runError(r cron.Run) string {
	switch r.State { //nolint:exhaustive // the two with a prefix
	case cron.RunCancelled, cron.RunInterrupted:
		word := string(r.State) + ":"
		if !strings.HasPrefix(r.Error, word) {
			return strings.TrimSpace(word + " " + cmp.Or(strings.TrimPrefix(r.Error, string(r.State)), string(r.Reason)))
		}
	}
	return r.Error
}

// outcomeView returns the common members of a ledger entry and an event: an event without action and job.
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

// BriefView returns an event as clients with the capability cron-brief see it: without the job, its message and its answer.
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

// WebhookBody returns the body of a webhook about a finished run: the payload of its event in the standard view. For a run whose answer is
// not sent, it has the member suppressed (no_reply or empty) instead of the text.
func WebhookBody(job cron.Job, run cron.Run) []byte {
	if run.SuppressedBy != "" {
		run.Summary = ""
	}
	return strictjson.Encode(wire.WebhookBody{
		CronEvent: EventView(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run}, false), Suppressed: strings.ReplaceAll(run.SuppressedBy, "-", "_"),
	})
}

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
