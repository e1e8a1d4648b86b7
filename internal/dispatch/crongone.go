package dispatch

import (
	"context"
	"errors"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/store"
)

// A job whose chat is gone is no failing job: it fires, its answer is in the transcript and in the ledger. What ends is the sending. The
// failure that shows it pauses the delivery of the job, and tells its people, in one transaction: a process that dies before finds the address
// gone again, one that dies behind it has told already. An answer that is held back has a ledger row with the reason and no row in the outbox.

// addressGone ends a row for good whose address is gone, and pauses the delivery of the job whose answer it is, if that still sends there.
func (d *Dispatcher) addressGone(ctx context.Context, o store.Outgoing, p store.UndeliveredParams) error {
	job, run, ok := d.sendsTo(ctx, o)
	if !ok {
		return d.store.Undelivered(ctx, p)
	}
	job.State.DeliveryPause = cron.DeliveryPause{Since: time.Now(), Reason: p.Error, Channel: o.Target.Channel, ChatID: o.Target.ChatID}
	job.State.LastDelivery, job.State.LastDeliveryError = cron.DeliveryNot, p.Error
	run.Delivery, run.DeliveryError = cron.DeliveryNot, p.Error
	text := cron.TellGone.Sentence(job)
	row := d.noteOf(job, run, gonePart, text)
	if row == nil { // what the job has for alerts does not work here; somebody hears of it all the same
		row = noteTo(webTarget(chat.MainKey(job.Agent)), job, run, gonePart, text)
	}
	done, err := d.store.AddressGone(ctx, store.GoneParams{
		Node: p.Node, ID: p.ID, Error: p.Error, JobID: job.ID, Revision: job.Revision, Outgoing: []store.Outgoing{*row},
	})
	if err != nil || done.Job == nil {
		return err
	}
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "told", string(cron.TellGone), "channel", chat.ChannelKind(o.Target.Channel), "reason", p.Error)
	d.tellCron(cron.Event{Action: cron.ActionUpdated, Job: *done.Job})
	return nil
}

// sendsTo is the job, with the run, whose answer a row has, if it sends to the address of the row as it is now.
func (d *Dispatcher) sendsTo(ctx context.Context, o store.Outgoing) (job cron.Job, run cron.Run, ok bool) {
	id, _, _ := strings.Cut(o.RunID, "/")
	_, _, _, err := cron.ParseRunID(id)
	if d.jobs == nil || err != nil {
		return job, run, false
	}
	run, err = d.jobs.Run(ctx, id, "")
	if err == nil {
		job, err = d.jobs.Job(ctx, run.JobID, "")
	}
	if err != nil && !errors.Is(err, chat.ErrNotFound) {
		d.log.WarnContext(ctx, "the job of an answer whose address is gone cannot be read; its next answer is sent there, too", "run_id", id, "err", err)
	}
	to := d.routeTo(job.Agent, job.Delivery)
	return job, run, err == nil && to.Channel == o.Target.Channel && to.ChatID == o.Target.ChatID && !job.State.DeliveryPause.Holds(to)
}

// heldBack is why nothing is sent to an address for the job of this attempt, as it was when the attempt began; "" = it is sent.
func (c *cronTurn) heldBack(to chat.Target) string {
	if c == nil || c.job == nil || !c.job.State.DeliveryPause.Holds(to) {
		return ""
	}
	return "delivery is paused: " + c.job.State.DeliveryPause.Reason
}
