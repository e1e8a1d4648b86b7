package dispatch

import (
	"context"
	"strings"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// answer sent as nothing: the agent had nothing to say.
const noReply = "NO_REPLY"

// suppressed says why an answer is not sent, "" when it is.
func suppressed(end *ending) string {
	switch strings.TrimSpace(end.reply()) {
	case "":
		if end.lines != "" {
			return ""
		}
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
	why := ""
	if e.State == cron.RunOK {
		why = suppressed(&end)
	}
	switch job.Delivery.Mode {
	case cron.DeliverWebhook:
		p.Outgoing, e.Delivery, e.SuppressedBy = nil, cron.DeliveryNot, why
		if row, ok := d.webhookRow(t, e, job, job.Delivery.To, why); ok {
			p.Outgoing, e.Delivery = []store.Outgoing{row}, cron.DeliveryUnknown
		}
	case cron.DeliverAnnounce:
		d.deliverAnnounced(t, why, e, job, p)
	default:
		p.Outgoing = nil
	}
	if also, ok := job.Delivery.Completion(); ok {
		if row, ok := d.webhookRow(t, e, job, also.To, why); ok {
			row.Kind, row.N = store.KindNotice, nextN(p.Outgoing) // it tells of the answer, and is not the answer: the ledger does not wait for it
			p.Outgoing = append(p.Outgoing, row)
		}
	}
}

func (*Dispatcher) deliverAnnounced(t *turn, why string, e *cron.AttemptEnd, job *cron.Job, p *store.FinishParams) {
	if e.SuppressedBy = why; why != "" {
		p.Outgoing = nil
		return
	}
	if len(p.Outgoing) > 0 {
		if e.DeliveryError = t.cron.heldBack(p.Outgoing[0].Target); e.DeliveryError != "" {
			p.Outgoing, e.Delivery = nil, cron.DeliveryNot
			return
		}
	}
	failed := len(p.Outgoing) > 0 && p.Outgoing[0].Kind == store.KindNotice
	switch {
	case failed && toWeb(job.Delivery):
		p.Outgoing = nil // in a session where much is said a failure needs the name of its job: the alert has it
	case failed:
		e.Delivery = cron.DeliveryNot
	case len(p.Outgoing) > 0:
		e.Delivery = cron.DeliveryUnknown // until the outbox knows better
	case e.State == cron.RunOK && toWeb(job.Delivery) && webSession(job.Agent, job.Delivery) == t.run.Session:
		e.Delivery = cron.DeliveryDone // with the commit: the run has said it there
	case e.State == cron.RunOK:
		e.Delivery = cron.DeliveryNot
	}
}

// toWeb tells a delivery that goes to a session, where it is read.
func toWeb(at cron.Delivery) bool {
	return at.Mode == cron.DeliverAnnounce && (at.Channel == "" || at.Channel == lastRoute || at.Channel == channel.Web)
}

const (
	// lastRoute is the name by which a delivery means the session in which the job was made.
	lastRoute = "last"
	hookRoute = "hook"
	apiRoute  = "api"
)

// webhookRow is the payload of the finished event on its way to a URL, for runs that started; false where this gateway has no webhooks. why, if not empty,
// is why the answer is not sent: the receiver learns of the run and not of its text.
func (d *Dispatcher) webhookRow(t *turn, e *cron.AttemptEnd, job *cron.Job, to, why string) (store.Outgoing, bool) {
	if d.cfg.CronBody == nil || d.channels[channel.Webhook] == nil {
		return store.Outgoing{}, false
	}
	now := t.storeNow()
	run := cron.Run{
		ID: e.RunID, JobID: job.ID, JobName: job.Name, JobKey: job.Key, Owner: job.Owner, Agent: job.Agent, Lane: t.run.Lane, Trigger: t.cron.trigger,
		SessionKey: t.run.Session.String(), State: e.State, Reason: e.Reason, StartedAt: t.started.StartedAt, FinishedAt: now,
		Duration: now.Sub(t.started.StartedAt), Attempt: e.Attempt.Number, Error: e.Error, ErrorClass: e.ErrorClass, Summary: chat.Cut(e.Summary, 16_384),
		Model: e.Usage.Model, Provider: e.Usage.Provider, InputTokens: int64(e.Usage.InputTokens), OutputTokens: int64(e.Usage.OutputTokens),
		Delivery: cron.DeliveryUnknown, SuppressedBy: why, SlotCount: 1,
	}
	return store.Outgoing{
		ID: newID(), RunID: t.run.RunID, Session: t.run.Session, Target: chat.Target{Channel: channel.Webhook, ChatID: to},
		Kind: store.KindWebhook, Text: string(d.cfg.CronBody(*job, run)), Count: 1,
	}, true
}

// webSession is the session that a delivery to the web names, else the main session of the agent.
func webSession(agent string, at cron.Delivery) chat.SessionKey {
	if at.Channel == channel.Web && at.To != "" {
		if key, err := chat.ParseSessionKey(at.To, agent); err == nil {
			return key
		}
	}
	return chat.MainKey(agent)
}

// alertTarget is where a note about the job goes: the alert's own target, else where the job tells failures, else where its answers go. A chat that is
// gone is passed over.
func (d *Dispatcher) alertTarget(job cron.Job) (at cron.Delivery, own bool) {
	if at = job.Alert.Delivery; at.Mode != "" && !job.State.DeliveryPause.Holds(d.routeTo(job.Agent, at)) {
		return at, true
	}
	if at, own = job.Delivery.Failure(); own && !job.State.DeliveryPause.Holds(d.routeTo(job.Agent, at)) {
		return at, true
	}
	return job.Delivery, false
}

// Places of notes about a job among what a run sends: behind its answer, or the notice instead of one.
const (
	alertPart = 1000 + iota
	gonePart
)

// noteOf is a note about the job on its way to its people; nil where nobody wants it: a webhook of the job's own has been told of the run already.
func (d *Dispatcher) noteOf(job cron.Job, run cron.Run, part int, text string) *store.Outgoing {
	at, own := d.alertTarget(job)
	to := d.routeTo(job.Agent, at)
	switch {
	case at.Mode == "", at.Mode == cron.DeliverNone:
		return nil
	case at.Mode == cron.DeliverWebhook:
		if !own || d.cfg.CronBody == nil || d.channels[channel.Webhook] == nil {
			return nil
		}
		to, text = chat.Target{Channel: channel.Webhook, ChatID: at.To}, string(d.cfg.CronBody(job, run))
	case job.State.DeliveryPause.Holds(to):
		to = webTarget(chat.MainKey(job.Agent))
	}
	return noteTo(to, job, run, part, text)
}

func noteTo(to chat.Target, job cron.Job, run cron.Run, part int, text string) *store.Outgoing {
	return &store.Outgoing{ID: newID(), RunID: run.ID, N: part, Principal: job.Owner, Target: to, Kind: store.KindNotice, Text: text, Count: 1}
}

// alert sends a note about the job.
func (d *Dispatcher) alert(ctx context.Context, job cron.Job, run cron.Run, told cron.Told) {
	text := told.Sentence(job)
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "told", string(told), "errors_in_a_row", job.State.ConsecutiveErrors)
	row := d.noteOf(job, run, alertPart, text)
	if row == nil {
		return
	}
	err := d.node.Final(ctx, "sending an alert", func(ctx context.Context) error { return d.store.Enqueue(ctx, []store.Outgoing{*row}) })
	if err != nil {
		d.log.ErrorContext(ctx, "an alert was not sent", "job_id", job.ID, "err", err)
	}
	d.outbox.Wake()
}

// answersTo is where the answer of a run in a session goes: the transcript of that session has it already.
func (d *Dispatcher) answersTo(job cron.Job, session chat.SessionKey) chat.Target {
	if toWeb(job.Delivery) && webSession(job.Agent, job.Delivery) == session {
		return chat.Target{}
	}
	return d.routeTo(job.Agent, job.Delivery)
}

// routeTo is the address on a channel that a delivery of an agent's job names; zero when it goes elsewhere. A bare channel name means the account
// that there is.
func (d *Dispatcher) routeTo(agent string, at cron.Delivery) chat.Target {
	switch {
	case at.Mode != cron.DeliverAnnounce:
		return chat.Target{}
	case toWeb(at):
		return webTarget(webSession(agent, at))
	}
	name := at.Channel
	if d.channels[name] == nil {
		for _, have := range d.channelNames() {
			if chat.ChannelKind(have) == chat.ChannelKind(name) && (at.Account == "" || have == chat.ChannelKind(name)+":"+at.Account) {
				name = have
				break
			}
		}
	}
	return chat.Target{Channel: name, ChatID: at.To, Thread: at.Thread}
}
