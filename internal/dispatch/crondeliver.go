package dispatch

import (
	"context"
	"strings"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// answer sent as nothing: the agent had nothing to say.
const noReply = "NO_REPLY"

// suppressed says why an answer is not sent, "" when it is.
func suppressed(text string) string {
	switch strings.TrimSpace(text) {
	case "":
		return "empty"
	case noReply:
		return "no-reply"
	}
	return ""
}

// deliver decides what becomes of the answer, and puts it into the outbox; nothing goes out while the run is tried again.
func (d *Dispatcher) deliver(t *turn, end ending, e *cron.AttemptEnd, job *cron.Job, p *store.FinishParams) {
	if !e.State.Final() || job == nil {
		p.Outgoing = nil
		return
	}
	switch job.Delivery.Mode {
	case cron.DeliverWebhook:
		p.Outgoing, e.Delivery = nil, cron.DeliveryNot
		if row, ok := d.webhookRow(t, e, job, job.Delivery.To); ok {
			p.Outgoing, e.Delivery = []store.Outgoing{row}, cron.DeliveryUnknown
		}
	case cron.DeliverAnnounce:
		d.deliverAnnounced(t.cron, end, e, job, p)
	default:
		p.Outgoing = nil
	}
	if also, ok := job.Delivery.Completion(); ok {
		if row, ok := d.webhookRow(t, e, job, also.To); ok {
			row.Kind, row.N = store.KindNotice, len(p.Outgoing) // it tells of the answer, and is not the answer: the ledger does not wait for it
			p.Outgoing = append(p.Outgoing, row)
		}
	}
}

func (*Dispatcher) deliverAnnounced(c *cronTurn, end ending, e *cron.AttemptEnd, job *cron.Job, p *store.FinishParams) {
	if e.State == cron.RunOK {
		if e.SuppressedBy = suppressed(end.text); e.SuppressedBy != "" {
			p.Outgoing = nil
			return
		}
	}
	if len(p.Outgoing) > 0 {
		if e.DeliveryError = c.heldBack(p.Outgoing[0].Target); e.DeliveryError != "" {
			p.Outgoing, e.Delivery = nil, cron.DeliveryNot
			return
		}
	}
	switch {
	case len(p.Outgoing) > 0:
		e.Delivery = cron.DeliveryUnknown // until the outbox knows better
		if p.Outgoing[0].Kind == store.KindNotice {
			e.Delivery = cron.DeliveryNot
		}
	case e.State == cron.RunOK && toWeb(*job):
		e.Delivery = cron.DeliveryDone // with the commit: tellWeb appends it
	case e.State == cron.RunOK:
		e.Delivery = cron.DeliveryNot
	}
}

// toWeb tells a job whose answer goes to a session, where it is read.
func toWeb(j cron.Job) bool {
	return j.Delivery.Mode == cron.DeliverAnnounce && (j.Delivery.Channel == "" || j.Delivery.Channel == lastRoute || j.Delivery.Channel == webRoute)
}

const (
	lastRoute    = "last"
	webRoute     = "web"
	webhookRoute = "webhook"
)

// webhookRow is the payload of the finished event on its way to a URL, for runs that started; false where this gateway has no webhooks.
func (d *Dispatcher) webhookRow(t *turn, e *cron.AttemptEnd, job *cron.Job, to string) (store.Outgoing, bool) {
	if d.cfg.CronBody == nil || d.channels[webhookRoute] == nil {
		return store.Outgoing{}, false
	}
	now := t.storeNow()
	run := cron.Run{
		ID: e.RunID, JobID: job.ID, JobName: job.Name, JobKey: job.Key, Owner: job.Owner, Agent: job.Agent, Lane: t.run.lane, Trigger: t.cron.trigger,
		SessionKey: t.run.session.String(), State: e.State, Reason: e.Reason, StartedAt: t.started.StartedAt, FinishedAt: now,
		Duration: now.Sub(t.started.StartedAt), Attempt: e.Attempt.Number, Error: e.Error, ErrorClass: e.ErrorClass, Summary: chat.Cut(e.Summary, 16_384),
		Model: e.Usage.Model, Provider: e.Usage.Provider, InputTokens: int64(e.Usage.InputTokens), OutputTokens: int64(e.Usage.OutputTokens),
		Delivery: cron.DeliveryUnknown, SlotCount: 1,
	}
	return store.Outgoing{
		ID: newID(), RunID: t.run.runID, Session: t.run.session, Target: chat.Target{Channel: webhookRoute, ChatID: to},
		Kind: store.KindWebhook, Text: string(d.cfg.CronBody(*job, run)), Count: 1,
	}, true
}

// webSession is where a job tells what goes to the web: the session that it names, else the main session of its agent.
func webSession(job cron.Job) chat.SessionKey {
	if job.Delivery.Channel == webRoute && job.Delivery.To != "" {
		if key, err := chat.ParseSessionKey(job.Delivery.To, job.Agent); err == nil {
			return key
		}
	}
	return chat.MainKey(job.Agent)
}

// tellWeb puts a text into the web session of the job.
func (d *Dispatcher) tellWeb(ctx context.Context, job cron.Job, runID, text string) {
	key := webSession(job)
	err := d.final(ctx, "announcing the answer of a job", func(ctx context.Context) error {
		entries, err := d.store.AppendTranscript(ctx, key, job.Owner, []chat.TranscriptEntry{announced(runID, text)})
		if err == nil {
			d.saidOnTheWeb(job, key, runID, text, entries)
		}
		return err
	})
	if err != nil {
		d.log.ErrorContext(ctx, "the answer of a job is not in the main session", "job_id", job.ID, "run_id", runID, "err", err)
	}
}

// alertTarget is where a note about the job goes: the alert's own target, else where the job tells failures, else where its answers go. A chat that is
// gone is passed over.
func (d *Dispatcher) alertTarget(job cron.Job) (at cron.Delivery, own bool) {
	if at = job.Alert.Delivery; at.Mode != "" && !job.State.DeliveryPause.Holds(d.routeTo(at)) {
		return at, true
	}
	if at, own = job.Delivery.Failure(); own && !job.State.DeliveryPause.Holds(d.routeTo(at)) {
		return at, true
	}
	return job.Delivery, false
}

// noteOf is a note about the job on its way to its people; nil = it is for the web session of the job. ok is false where nobody wants it: a webhook of the
// job's own has been told of the run already.
func (d *Dispatcher) noteOf(job cron.Job, run cron.Run, text string) (row *store.Outgoing, ok bool) {
	at, own := d.alertTarget(job)
	to := d.routeTo(at)
	switch {
	case at.Mode == "" || at.Mode == cron.DeliverNone:
		return nil, false
	case at.Mode == cron.DeliverWebhook:
		if !own || d.cfg.CronBody == nil || d.channels[webhookRoute] == nil {
			return nil, false
		}
		to, text = chat.Target{Channel: webhookRoute, ChatID: at.To}, string(d.cfg.CronBody(job, run))
	case to.IsZero() || job.State.DeliveryPause.Holds(to):
		return nil, true
	}
	return &store.Outgoing{ID: newID(), Target: to, Kind: store.KindNotice, Text: text, Count: 1}, true
}

// alert sends a note about the job.
func (d *Dispatcher) alert(ctx context.Context, job cron.Job, run cron.Run, told cron.Told) {
	text := told.Sentence(job)
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "told", string(told), "errors_in_a_row", job.State.ConsecutiveErrors)
	row, ok := d.noteOf(job, run, text)
	switch {
	case !ok:
		return
	case row == nil:
		d.tellWeb(ctx, job, run.ID, text)
		return
	}
	err := d.final(ctx, "sending an alert", func(ctx context.Context) error { return d.store.Enqueue(ctx, []store.Outgoing{*row}) })
	if err != nil {
		d.log.ErrorContext(ctx, "an alert was not sent", "job_id", job.ID, "err", err)
	}
	wake(d.outboxNow)
}

// routeTo is the address on a channel that a delivery names; zero when it goes elsewhere. A bare channel name means the account that there is.
func (d *Dispatcher) routeTo(at cron.Delivery) chat.Target {
	if at.Mode != cron.DeliverAnnounce || at.Channel == "" || at.Channel == lastRoute || at.Channel == webRoute {
		return chat.Target{}
	}
	name := at.Channel
	if d.channels[name] == nil {
		for _, have := range d.channelNames() {
			if channelKind(have) == channelKind(name) && (at.Account == "" || have == channelKind(name)+":"+at.Account) {
				name = have
				break
			}
		}
	}
	return chat.Target{Channel: name, ChatID: at.To, Thread: at.Thread}
}
