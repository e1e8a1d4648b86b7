package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// Numbers of alerts among the outgoing rows of a run: after its answer, or the notice that replaces it.
const (
	alertN = 1000 + iota
	goneN
)

// alertDelivery is the target of an alert about the job: the alert's own target, else that of failures, else that of its answers. It skips a chat that no
// longer exists. own reports whether it differs from the target of the answers.
func (d *Delivery) alertDelivery(job cron.Job) (at cron.Delivery, own bool) {
	if at = job.Alert.Delivery; at.Mode != "" && !job.State.DeliveryPause.Holds(d.target(job.Agent, at)) {
		return at, true
	}
	if at, own = job.Delivery.Failure(); own && !job.State.DeliveryPause.Holds(d.target(job.Agent, at)) {
		return at, true
	}
	return job.Delivery, false
}

// alertRow is the outgoing row of an alert about the job; nil when none is sent because a webhook of the answers already received the run.
func (d *Delivery) alertRow(job cron.Job, run cron.Run, n int, text string) *store.Outgoing {
	at, own := d.alertDelivery(job)
	to := d.target(job.Agent, at)
	switch {
	case at.Mode == "", at.Mode == cron.DeliverNone:
		return nil
	case at.Mode == cron.DeliverWebhook:
		if !own || !d.hasWebhooks() {
			return nil
		}
		to, text = webhookTarget(at.To), string(d.cfg.WebhookBody(job, run))
	case job.State.DeliveryPause.Holds(to):
		to = channel.WebTarget(chat.MainKey(job.Agent))
	}
	return noticeRow(to, job, run, n, text)
}

func noticeRow(to chat.Target, job cron.Job, run cron.Run, n int, text string) *store.Outgoing {
	return &store.Outgoing{ID: newID(), RunID: run.ID, N: n, Principal: job.Owner, Target: to,
		Kind: store.KindNotice, Text: text, Count: 1,
		Origin: originOf(chat.OriginAlert, job, run.ID)}
}

// alert sends an alert about the job.
func (d *Delivery) alert(ctx context.Context, job cron.Job, run cron.Run, kind cron.AlertKind) {
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "alert", string(kind), "errors_in_a_row", job.State.ConsecutiveErrors)
	row := d.alertRow(job, run, alertN, kind.Sentence(job))
	if row == nil {
		return
	}
	err := d.node.Final(ctx, "sending an alert", func(ctx context.Context) error { return d.store.Enqueue(ctx, []store.Outgoing{*row}) })
	if err != nil {
		d.log.ErrorContext(ctx, "an alert was not sent", "job_id", job.ID, "err", err)
	}
	d.outbox.Wake()
}

// taken alerts the owners of jobs whose runs have ended because another principal has made the sessions that these jobs name. The claim does not wait for it.
func (d *Delivery) taken(ctx context.Context, ended []cron.Run) {
	for _, run := range ended {
		if run.ErrorClass != cron.ClassTaken || !d.takenAlerts.first(run.JobID, time.Now()) {
			continue
		}
		d.background(func() {
			ctx := context.WithoutCancel(ctx)
			job, err := d.jobs.Job(ctx, run.JobID, "")
			if err != nil {
				d.log.ErrorContext(ctx, "the job of a run without its session cannot be read; no alert is sent", "job_id", run.JobID, "run_id", run.ID, "err", err)
				return
			}
			if at, _ := d.alertDelivery(job); at.Mode != cron.DeliverWebhook && d.target(job.Agent, at).Channel == channel.Web || at.Mode == cron.DeliverNone {
				job.Alert.Delivery = cron.Delivery{Mode: cron.DeliverAnnounce} // the main session: the other one may be taken, too
			}
			d.alert(ctx, job, run, cron.AlertTaken)
		})
	}
}

// A job whose chat no longer exists does not fail: it fires, and its answer is in the transcript and in the ledger. Only the sending ends. The failed send
// pauses the delivery of the job and alerts its owner, in one transaction. If the process dies before that, the next send fails again. An answer that is held
// back has a ledger row with the reason and no row in the outbox.

// AddressGone ends an outgoing row whose address no longer exists, and pauses the delivery of its job, if the job still sends to that address.
func (d *Delivery) AddressGone(ctx context.Context, o store.Outgoing, p store.UndeliveredParams) error {
	job, run, ok := d.answers(ctx, o)
	if !ok {
		_, err := d.store.Undelivered(ctx, p)
		return err
	}
	job.State.DeliveryPause = cron.DeliveryPause{Since: time.Now(), Reason: p.Error, Channel: o.Target.Channel, ChatID: o.Target.ChatID}
	job.State.LastDelivery, job.State.LastDeliveryError = cron.DeliveryNot, p.Error
	run.Delivery, run.DeliveryError = cron.DeliveryNot, p.Error
	text := cron.AlertGone.Sentence(job)
	row := d.alertRow(job, run, goneN, text)
	if row == nil { // the job has no usable target for alerts: the main session of its agent receives it
		row = noticeRow(channel.WebTarget(chat.MainKey(job.Agent)), job, run, goneN, text)
	}
	p.Gone = &store.GoneAddress{JobID: job.ID, Revision: job.Revision, Outgoing: []store.Outgoing{*row}}
	done, err := d.store.Undelivered(ctx, p)
	if err != nil || done.Job == nil {
		return err
	}
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "alert", string(cron.AlertGone), "channel", chat.ChannelKind(o.Target.Channel), "reason", p.Error)
	d.events.publish(cron.Event{Action: cron.ActionUpdated, Job: *done.Job})
	return nil
}

// answers is the job and the run whose answer a row is, if the job still sends to the address of the row.
func (d *Delivery) answers(ctx context.Context, o store.Outgoing) (job cron.Job, run cron.Run, ok bool) {
	id, _, _ := strings.Cut(o.RunID, "/")
	if _, _, _, err := cron.ParseRunID(id); err != nil {
		return job, run, false
	}
	run, err := d.jobs.Run(ctx, id, "")
	if err == nil {
		job, err = d.jobs.Job(ctx, run.JobID, "")
	}
	if err != nil && !errors.Is(err, chat.ErrNotFound) {
		d.log.WarnContext(ctx, "the job of an answer whose address is gone cannot be read; its next answer is sent there, too", "run_id", id, "err", err)
	}
	to := d.target(job.Agent, job.Delivery)
	return job, run, err == nil && to.Channel == o.Target.Channel && to.ChatID == o.Target.ChatID && !job.State.DeliveryPause.Holds(to)
}
