package gateway

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/strictjson"
)

// object is a JSON object whose members depend on what is known. encoding/json writes its names in order.
type object map[string]any

// put adds a member that is known.
func (o object) put(name string, value any, known bool) {
	if known {
		o[name] = value
	}
}

func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// jobView is a job as clients see it.
func jobView(j cron.Job, extended bool) object {
	o := object{
		"id": j.ID, "agentId": j.Agent, "name": j.Name, "enabled": j.MayFire(), "createdAtMs": millis(j.CreatedAt), "updatedAtMs": millis(j.UpdatedAt),
		"configRevision": j.Revision, "schedule": scheduleView(j), "sessionTarget": j.Session, "wakeMode": cmp.Or(j.WakeMode, "now"),
		"payload": payloadView(j), "delivery": deliveryView(j.Delivery), "state": jobState(j),
	}
	o.put("displayName", j.DisplayName, j.DisplayName != "")
	o.put("description", j.Description, j.Description != "")
	o.put("declarationKey", j.Key, !j.KeyDerived)
	o.put("deleteAfterRun", j.DeleteAfter, j.DeleteAfter || j.Schedule.Kind == schedule.KindAt)
	if alert := alertView(j.Alert); alert != nil {
		o["failureAlert"] = alert
	}
	st := j.State
	o.put("nextRunAtMs", millis(st.NextRunAt), j.MayFire() && !st.NextRunAt.IsZero())
	o.put("lastRunAtMs", millis(st.LastRunAt), !st.LastRunAt.IsZero())
	o.put("lastRunStatus", statusWord(st.LastState), st.LastState != "")
	o.put("lastDeliveryStatus", st.LastDelivery, st.LastDelivery != "")
	o.put("lastRunError", st.LastError, st.LastError != "")
	if extended {
		extendJob(o, j)
	}
	return o
}

// extendJob adds the members that the published definition does not have.
func extendJob(o object, j cron.Job) {
	missed := j.Missed.For(j.Schedule.Kind)
	window := any(int64(missed.Window / time.Second))
	if missed.Window == cron.NoWindow {
		window = nil
	}
	maps.Copy(o, object{
		"key": j.Key, "keyDerived": j.KeyDerived, "overlap": cmp.Or(string(j.Overlap), string(cron.OverlapSkip)),
		"missed":         object{"policy": missed.Rule, "maxCatchup": missed.MaxCatchup, "windowSeconds": window},
		"jitterMs":       j.JitterMs,
		"retry":          object{"maxRetries": j.Retry.Retries, "baseMs": j.Retry.Base.Milliseconds(), "maxMs": j.Retry.Max.Milliseconds()},
		"timeoutSeconds": int64(j.Timeout / time.Second), "lane": j.Lane, "pauseAfterFailures": j.PauseAfter, "atMostOnce": j.AtMostOnce,
		"principal": j.Principal, "runCount": j.State.RunCount, "errorCount": j.State.ErrorCount, "queuedRuns": j.State.Queued,
	})
	if j.Schedule.Kind == schedule.KindCron {
		if s, err := schedule.Compile(j.Schedule); err == nil {
			gap, fold := s.Rules()
			o["dst"] = object{"gap": gap, "overlap": fold}
		}
	}
	o.put("nextScheduledForMs", millis(j.State.Next), j.MayFire() && !j.State.Next.IsZero())
	o.put("startsAtMs", millis(j.StartsAt), !j.StartsAt.IsZero())
	o.put("endsAtMs", millis(j.EndsAt), !j.EndsAt.IsZero())
	o.put("maxRuns", j.MaxRuns, j.MaxRuns > 0)
	o.put("invalid", j.Invalid, j.Invalid != "")
	if p := j.State.DeliveryPause; !p.Since.IsZero() {
		o["deliveryPaused"] = object{"atMs": millis(p.Since), "reason": p.Reason, "channel": p.Channel, "to": p.ChatID}
	}
	if p := j.Pause; p != nil {
		paused := object{"note": p.Note, "by": p.By, "atMs": millis(p.At), "untilMs": nil, "enabled": j.Enabled}
		paused.put("untilMs", millis(p.Until), !p.Until.IsZero())
		o["paused"] = paused
	}
}

func scheduleView(j cron.Job) object {
	s := j.Schedule
	o := object{"kind": s.Kind}
	switch s.Kind {
	case schedule.KindAt:
		o["at"] = isoTime(s.At)
	case schedule.KindEvery:
		o["everyMs"], o["anchorMs"] = s.EveryMs, s.AnchorMs
	case schedule.KindCron:
		o["expr"], o["tz"], o["staggerMs"] = s.Expr, cmp.Or(s.TZ, "UTC"), j.JitterMs
	}
	return o
}

func payloadView(j cron.Job) object {
	o := object{}
	if len(j.Payload.Options) > 0 && json.Unmarshal(j.Payload.Options, &o) != nil {
		o = object{}
	}
	o["kind"] = j.Payload.Kind
	switch j.Payload.Kind {
	case cron.PayloadAgentTurn:
		o["message"], o["timeoutSeconds"] = j.Payload.Text, int64(j.Timeout/time.Second)
	case cron.PayloadSystemEvent:
		o["text"] = j.Payload.Text
	case cron.PayloadCommand:
		o.put("input", j.Payload.Text, j.Payload.Text != "")
		o["timeoutSeconds"] = int64(j.Timeout / time.Second)
	case cron.PayloadScript:
		o["script"], o["timeoutSeconds"] = j.Payload.Text, int64(j.Timeout/time.Second)
	}
	return o
}

func deliveryView(d cron.Delivery) object {
	o := object{"mode": cmp.Or(string(d.Mode), string(cron.DeliverNone))}
	o.put("channel", d.Channel, d.Channel != "")
	o.put("to", d.To, d.To != "")
	o.put("threadId", d.Thread, d.Thread != "")
	o.put("accountId", d.Account, d.Account != "")
	o.put("bestEffort", true, d.BestEffort)
	for name, of := range map[string]func() (cron.Delivery, bool){"failureDestination": d.Failure, "completionDestination": d.Completion} {
		if at, ok := of(); ok {
			o[name] = deliveryView(at)
		}
	}
	return o
}

func alertView(a cron.Alert) any {
	if a.Off {
		return false
	}
	if a.After == 0 && a.Cooldown == 0 && !a.IncludeSkipped && a.Delivery.Mode == "" {
		return nil
	}
	o := object{}
	o.put("after", a.After, a.After != 0)
	o.put("cooldownMs", a.Cooldown.Milliseconds(), a.Cooldown != 0)
	o.put("includeSkipped", true, a.IncludeSkipped)
	o.put("mode", a.Delivery.Mode, a.Delivery.Mode != "")
	o.put("channel", a.Delivery.Channel, a.Delivery.Channel != "")
	o.put("to", a.Delivery.To, a.Delivery.To != "")
	o.put("accountId", a.Delivery.Account, a.Delivery.Account != "")
	return o
}

func jobState(j cron.Job) object {
	st := j.State
	o := object{}
	o.put("nextRunAtMs", millis(st.NextRunAt), j.MayFire() && !st.NextRunAt.IsZero())
	o.put("scheduleActivatedAtMs", millis(st.ActivatedAt), !st.ActivatedAt.IsZero())
	o.put("runningAtMs", millis(st.RunningAt), !st.RunningAt.IsZero())
	o.put("lastRunAtMs", millis(st.LastRunAt), !st.LastRunAt.IsZero())
	o.put("lastRunStatus", statusWord(st.LastState), st.LastState != "")
	o.put("lastStatus", statusWord(st.LastState), st.LastState != "")
	o.put("lastError", st.LastError, st.LastError != "")
	o.put("lastErrorReason", st.LastErrorClass, st.LastErrorClass != "")
	o.put("lastDurationMs", st.LastDuration.Milliseconds(), !st.LastRunAt.IsZero())
	o.put("consecutiveErrors", st.ConsecutiveErrors, !st.LastRunAt.IsZero())
	o.put("consecutiveSkipped", st.ConsecutiveSkipped, st.ConsecutiveSkipped > 0)
	o.put("lastDelivered", st.LastDelivery == cron.DeliveryDone, st.LastDelivery != "")
	o.put("lastDeliveryStatus", st.LastDelivery, st.LastDelivery != "")
	o.put("lastDeliveryError", st.LastDeliveryError, st.LastDeliveryError != "")
	o.put("lastFailureAlertAtMs", millis(st.LastAlertAt), !st.LastAlertAt.IsZero())
	o.put("autoDisabled", true, j.AutoDisabled)
	return o
}

// statusWord is the three-valued status that clients know.
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

// runError is the error of an entry; ends that are none of the turn's say what they are.
func runError(r cron.Run) string {
	switch r.State { //nolint:exhaustive // the two with a word in front
	case cron.RunCancelled, cron.RunInterrupted:
		word := string(r.State) + ":"
		if !strings.HasPrefix(r.Error, word) {
			return strings.TrimSpace(word + " " + cmp.Or(strings.TrimPrefix(r.Error, string(r.State)), string(r.Reason)))
		}
	}
	return r.Error
}

// outcomeView is what an entry of the ledger and a finished event have in common.
func outcomeView(r cron.Run, job *cron.Job, extended bool) object {
	o := object{"runId": r.ID}
	if r.State.Final() {
		o["status"], o["completionStatus"] = statusWord(r.State), cronCompletion(r, job != nil && job.Delivery.BestEffort)
		o.put("deliveryStatus", r.Delivery, r.Delivery != "")
		o.put("delivered", r.Delivery == cron.DeliveryDone, r.Delivery != "" && r.Delivery != cron.DeliveryNotRequested)
	}
	message := runError(r)
	o.put("error", message, message != "")
	o.put("errorReason", r.ErrorClass, r.ErrorClass != "" && r.State != cron.RunOK)
	o.put("summary", r.Summary, r.Summary != "")
	o.put("runAtMs", millis(r.StartedAt), !r.StartedAt.IsZero())
	o.put("durationMs", r.Duration.Milliseconds(), r.State.Final() && !r.StartedAt.IsZero())
	switch {
	case !r.NextAttempt.IsZero():
		o["nextRunAtMs"] = millis(r.NextAttempt)
	case job != nil && job.MayFire() && !job.State.NextRunAt.IsZero():
		o["nextRunAtMs"] = millis(job.State.NextRunAt)
	}
	if !extended {
		return o
	}
	maps.Copy(o, object{"outcome": r.State, "trigger": r.Trigger.Kind(), "scheduledForMs": millis(r.ScheduledFor)})
	o.put("reason", r.Reason, r.Reason != "")
	return o
}

// entryView is an entry of the ledger.
func entryView(r cron.Run, job *cron.Job, extended bool) object {
	o := outcomeView(r, job, extended)
	o["ts"], o["jobId"], o["jobName"], o["action"] = entryTime(r), r.JobID, r.JobName, "finished"
	if r.State.Active() {
		o["action"] = "started"
	}
	ran := !r.StartedAt.IsZero()
	o.put("sessionKey", r.SessionKey, ran && r.SessionKey != "")
	o.put("model", r.Model, r.Model != "")
	o.put("provider", r.Provider, r.Provider != "")
	if r.InputTokens+r.OutputTokens > 0 {
		o["usage"] = object{"input_tokens": r.InputTokens, "output_tokens": r.OutputTokens, "total_tokens": r.InputTokens + r.OutputTokens}
	}
	o.put("deliveryError", r.DeliveryError, r.DeliveryError != "")
	o.put("deliverySuppressionReason", r.SuppressedBy, r.SuppressedBy != "")
	if !extended {
		return o
	}
	o["lane"], o["slotCount"] = r.Lane, max(1, r.SlotCount)
	o.put("slotUntilMs", millis(r.SlotUntil), !r.SlotUntil.IsZero())
	attempts := make([]object, 0, len(r.Attempts))
	for _, a := range r.Attempts {
		attempts = append(attempts, attemptView(a))
	}
	o.put("attempts", attempts, ran)
	return o
}

func entryTime(r cron.Run) int64 {
	for _, t := range []time.Time{r.FinishedAt, r.StartedAt, r.ClaimedAt} {
		if !t.IsZero() {
			return millis(t)
		}
	}
	return millis(r.ScheduledFor)
}

func attemptView(a cron.Attempt) object {
	o := object{"attempt": a.Number, "startedAtMs": millis(a.StartedAt), "nodeId": a.Node}
	o.put("status", a.State, a.State != "")
	o.put("finishedAtMs", millis(a.FinishedAt), !a.FinishedAt.IsZero())
	o.put("durationMs", a.FinishedAt.Sub(a.StartedAt).Milliseconds(), !a.FinishedAt.IsZero())
	o.put("error", a.Error, a.Error != "")
	o.put("errorReason", a.ErrorClass, a.ErrorClass != "")
	return o
}

// cronPayload is the payload of a cron event.
func cronPayload(ev cron.Event, extended bool) []byte {
	return strictjson.Encode(eventView(ev, extended))
}

func eventView(ev cron.Event, extended bool) object {
	o := object{}
	if ev.Run != nil {
		o = outcomeView(*ev.Run, &ev.Job, extended)
		if extended && ev.Run.Attempt > 0 {
			o["attempt"] = ev.Run.Attempt
		}
		if ev.Action != cron.ActionFinished {
			for _, name := range []string{"status", "completionStatus", "deliveryStatus", "delivered"} {
				delete(o, name)
			}
		}
	}
	o["jobId"], o["action"] = ev.Job.ID, ev.Action
	if ev.Run != nil {
		o["jobId"] = ev.Run.JobID
	}
	o.put("job", jobView(ev.Job, extended), ev.Job.Key != "")
	return o
}

// CronBody is the body of a webhook about a finished run: the payload of its event in the standard view. Of a run whose answer is not sent it has, instead
// of the text, the member suppressed: no_reply or empty.
func CronBody(job cron.Job, run cron.Run) []byte {
	if run.SuppressedBy != "" {
		run.Summary = ""
	}
	o := eventView(cron.Event{Action: cron.ActionFinished, Job: job, Run: &run}, false)
	o.put("suppressed", strings.ReplaceAll(run.SuppressedBy, "-", "_"), run.SuppressedBy != "")
	return strictjson.Encode(o)
}

// previewOf says in words where the answers of a job go.
func previewOf(d cron.Delivery) object {
	switch {
	case d.Mode == cron.DeliverWebhook:
		return object{"label": "webhook", "detail": d.To}
	case d.Mode == cron.DeliverAnnounce && d.Channel == webChannel && d.To != "":
		return object{"label": webChannel, "detail": d.To}
	case d.Mode == cron.DeliverAnnounce && (d.Channel == "" || d.Channel == "last" || d.Channel == webChannel):
		return object{"label": "last route", "detail": "main session"}
	case d.Mode == cron.DeliverAnnounce:
		return object{"label": d.Channel, "detail": strings.TrimSpace(d.Channel + " " + d.To + " " + d.Thread)}
	}
	return object{"label": "not requested", "detail": "not requested"}
}

// publishCron brings a cron event to everybody who reads and may see the job.
func (s *Server) publishCron(ev cron.Event) {
	v := views{build: func(extended bool) []byte { return cronPayload(ev, extended) }}
	for _, c := range s.hub.Opened() {
		id := c.who.Load()
		if id == nil || !c.sees(&chat.Event{Principal: ev.Job.Owner}) {
			continue
		}
		c.PutEvent(eventCron, v.of(id.extended))
	}
}
