package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/store"
)

const (
	// NothingToReport is why [chat.NoReply] is not sent.
	NothingToReport = "no-reply"
	// lastRoute is the name by which a delivery refers to the session in which the job was created.
	lastRoute = "last"
	// webhookChannel sends webhooks.
	webhookChannel = channel.Webhook
)

// Delivery decides where the answers of runs and the alerts about jobs are sent.
type Delivery struct {
	*shared

	takenAlerts, expiredAlerts dailyAlerts // by job
}

// answer is the end of an attempt to be put into the outbox.
type answer struct {
	attempt *Attempt
	turn    Turn
	how     Ending
	end     *cron.AttemptEnd
}

// Suppressed is why an answer is not sent, "" when it is.
func (how *Ending) Suppressed() string {
	switch strings.TrimSpace(how.Reply) {
	case "":
		if how.Files {
			return ""
		}
		return "empty"
	case chat.NoReply:
		return NothingToReport
	}
	return ""
}

// deliver adds the outgoing rows of an attempt to p, and its delivery state to the ledger. Nothing
// is sent when the run will be retried, or for a run that a budget has prevented: people get one
// notice a day about the budget.
func (d *Delivery) deliver(ctx context.Context, a answer, job *cron.Job, p *store.FinishParams) {
	e := a.end
	if !e.State.Final() || e.State == cron.RunSkipped || job == nil {
		p.Outgoing = nil
		return
	}
	why := ""
	if e.State == cron.RunOK {
		why = a.how.Suppressed()
	}
	switch job.Delivery.Mode {
	case cron.DeliverWebhook:
		p.Outgoing, e.Delivery, e.SuppressedBy = nil, cron.DeliveryNot, why
		if row, ok := d.webhookRow(a, job, job.Delivery.To, why); ok {
			p.Outgoing, e.Delivery = []store.Outgoing{row}, cron.DeliveryUnknown
		}
	case cron.DeliverAnnounce:
		announce(a, why, job, p)
		d.address(ctx, a, job, p.Outgoing)
	default:
		p.Outgoing = nil
	}
	if also, ok := job.Delivery.Completion(); ok {
		if row, ok := d.webhookRow(a, job, also.To, why); ok {
			row.Kind, row.N = store.KindNotice, nextN(p.Outgoing) // it reports the answer and is not the answer: the ledger does not wait for it
			p.Outgoing = append(p.Outgoing, row)
		}
	}
}

// address sets where the rows of an answer come from, and until when they are sent.
func (d *Delivery) address(ctx context.Context, a answer, job *cron.Job, rows []store.Outgoing) {
	if len(rows) == 0 {
		return
	}
	var notAfter time.Time
	var zone *time.Location
	if job.Once() {
		zone = d.zoneOf(ctx, job)
	} else if t, err := d.planner.Timetable(*job); err == nil {
		notAfter = t.NotAfter(a.turn.storeNow())
	}
	for i := range rows {
		o := a.origin(job, rows[i].Kind)
		if zone != nil {
			o.Once, o.Slot = true, o.Slot.In(zone)
		}
		rows[i].Origin, rows[i].ExpiresAt = o, notAfter
		if waits(*job, a.attempt.trigger) {
			rows[i].Quiet = job.ID
		}
	}
}

// waits reports whether quiet hours hold what a run of a job sends: no reminder, nothing urgent,
// and nothing that a person has asked for now.
func waits(job cron.Job, trigger cron.Trigger) bool {
	return trigger.Planned() && !job.Reminds() && !job.Delivery.Urgent
}

// zoneOf is the zone in which the owner of a job reads times.
func (d *Delivery) zoneOf(ctx context.Context, job *cron.Job) *time.Location {
	name := job.Schedule.TZ
	if name == "" {
		chosen, err := d.store.ZoneOf(ctx, job.Owner)
		if err != nil {
			d.log.WarnContext(ctx, "the time zone of a person cannot be read; a late reminder shows the time of the gateway", "job_id", job.ID, "err", err)
		}
		name = cmp.Or(chosen, d.cfg.Rules.DefaultTZ, "UTC")
	}
	zone, err := schedule.LoadZone(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// origin is the origin of a row of the answer.
func (a *answer) origin(job *cron.Job, kind string) *chat.Origin {
	o := originOf(chat.OriginJob, *job, a.end.RunID)
	switch {
	case kind == store.KindNotice:
		o.Kind = chat.OriginAlert
	case job.Reminds():
		o.Kind = chat.OriginReminder
	}
	o.By, o.Outside = a.turn.Session.String(), a.how.Outside
	return o
}

// originOf is the origin of what a job sends.
func originOf(kind string, job cron.Job, runID string) *chat.Origin {
	o := &chat.Origin{Kind: kind, Job: job.ID, Name: job.Name, Run: runID}
	if _, _, slot, err := cron.ParseRunID(runID); err == nil {
		o.Slot = slot
	}
	return o
}

// announce decides whether the answer in p is sent to its chat or session. why, if not empty,
// suppresses it.
func announce(a answer, why string, job *cron.Job, p *store.FinishParams) {
	e := a.end
	if e.SuppressedBy = why; why != "" {
		p.Outgoing = nil
		return
	}
	if len(p.Outgoing) > 0 {
		if e.DeliveryError = a.attempt.HeldBack(p.Outgoing[0].Target); e.DeliveryError != "" {
			p.Outgoing, e.Delivery = nil, cron.DeliveryNot
			return
		}
	}
	failed := len(p.Outgoing) > 0 && p.Outgoing[0].Kind == store.KindNotice
	switch {
	case failed && toSession(job.Delivery):
		p.Outgoing = nil // a session has many messages, and a failure there needs the name of its job, which the alert has
	case failed:
		e.Delivery = cron.DeliveryNot
	case len(p.Outgoing) > 0:
		e.Delivery = cron.DeliveryUnknown // until the outbox records the delivery
	case e.State == cron.RunOK && toSession(job.Delivery) && sessionOf(job.Agent, job.Delivery) == a.turn.Session:
		e.Delivery = cron.DeliveryDone // with the commit, because the answer is in the transcript of the run
	case e.State == cron.RunOK:
		e.Delivery = cron.DeliveryNot
	}
}

// nextN is the number of a further outgoing row of a run.
func nextN(rows []store.Outgoing) int {
	next := 0
	for _, r := range rows {
		next = max(next, r.N+1)
	}
	return next
}

// webhookRow is the payload of the finished event for a URL, for runs that started; false when this
// gateway has no webhooks. why, if not empty, is why the answer is not sent: the receiver gets the
// run without its text.
func (d *Delivery) webhookRow(a answer, job *cron.Job, to, why string) (store.Outgoing, bool) {
	if !d.hasWebhooks() {
		return store.Outgoing{}, false
	}
	e, t := a.end, a.turn
	now := t.storeNow()
	run := cron.Run{
		ID: e.RunID, JobID: job.ID, JobName: job.Name, JobKey: job.Key, Owner: job.Owner, Agent: job.Agent, Lane: t.Lane, Trigger: a.attempt.trigger,
		SessionKey: t.Session.String(), State: e.State, Reason: e.Reason, StartedAt: t.StartedAt, FinishedAt: now,
		Duration: now.Sub(t.StartedAt), Attempt: e.Attempt.Number, Error: e.Error, ErrorClass: e.ErrorClass, Summary: e.Summary,
		Model: e.Usage.Model, Provider: e.Usage.Provider, InputTokens: int64(e.Usage.InputTokens), OutputTokens: int64(e.Usage.OutputTokens),
		Delivery: cron.DeliveryUnknown, SuppressedBy: why, SlotCount: 1,
	}
	if _, _, slot, err := cron.ParseRunID(e.RunID); err == nil {
		run.ScheduledFor = slot
	}
	return store.Outgoing{
		ID: newID(), RunID: t.RunID, Session: t.Session, Target: webhookTarget(to), Kind: store.KindWebhook, Text: string(d.cfg.WebhookBody(*job, run)), Count: 1,
	}, true
}

func webhookTarget(url string) chat.Target {
	return chat.Target{Channel: webhookChannel, ChatID: url}
}

// toSession reports whether a delivery goes to a session, which people read on the web.
func toSession(at cron.Delivery) bool {
	return at.Mode == cron.DeliverAnnounce && (at.Channel == "" || at.Channel == lastRoute || at.Channel == channel.Web)
}

// sessionOf is the session that a delivery to the web names, else the main session of the agent.
func sessionOf(agent string, at cron.Delivery) chat.SessionKey {
	if at.Channel == channel.Web && at.To != "" {
		if key, err := chat.ParseSessionKey(at.To, agent); err == nil {
			return key
		}
	}
	return chat.MainKey(agent)
}

// replyTarget is the target for the answer of a run in a session; zero when the answer is only in
// the transcript of the session.
func (d *Delivery) replyTarget(job cron.Job, session chat.SessionKey) chat.Target {
	if toSession(job.Delivery) && sessionOf(job.Agent, job.Delivery) == session {
		return chat.Target{}
	}
	return d.target(job.Agent, job.Delivery)
}

// target is the channel address in a delivery of an agent's job; zero for other deliveries. A bare
// channel name means the configured account, else the account that the store has.
func (d *Delivery) target(agent string, at cron.Delivery) chat.Target {
	switch {
	case at.Mode != cron.DeliverAnnounce:
		return chat.Target{}
	case toSession(at):
		return channel.WebTarget(sessionOf(agent, at))
	}
	name := at.Channel
	if !slices.Contains(d.channels, name) {
		for _, have := range d.channels {
			if chat.ChannelKind(have) == chat.ChannelKind(name) && (at.Account == "" || have == chat.ChannelKind(name)+":"+at.Account) {
				name = have
				break
			}
		}
	}
	if !slices.Contains(d.channels, name) && name == chat.ChannelKind(name) {
		switch known := d.accounts.of(name); {
		case at.Account != "":
			name += ":" + at.Account
		case len(known) == 1:
			name = known[0]
		}
	}
	return chat.Target{Channel: name, ChatID: at.To, Thread: at.Thread}
}

// Numbers of alerts among the outgoing rows of a run: after its answer, or the notice that replaces
// it.
const (
	alertN = 1000 + iota
	goneN
)

// alertDelivery is the target of an alert about the job: the alert's own target, else that of
// failures, else that of its answers. It skips a chat that no longer exists. own reports whether it
// differs from the target of the answers.
func (d *Delivery) alertDelivery(job cron.Job) (at cron.Delivery, own bool) {
	if at = job.Alert.Delivery; at.Mode != "" && !job.State.DeliveryPause.Holds(d.target(job.Agent, at)) {
		return at, true
	}
	if at, own = job.Delivery.Failure(); own && !job.State.DeliveryPause.Holds(d.target(job.Agent, at)) {
		return at, true
	}
	return job.Delivery, false
}

// alertRow is the outgoing row of an alert about the job; nil when none is sent because a webhook
// of the answers already received the run.
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

// quietAlert is the word of alerts in [store.Outgoing].Quiet: no alert supersedes another.
func quietAlert(job cron.Job, trigger cron.Trigger) string {
	if !waits(job, trigger) {
		return ""
	}
	return "alert " + newID()
}

func noticeRow(to chat.Target, job cron.Job, run cron.Run, n int, text string) *store.Outgoing {
	return &store.Outgoing{
		ID: newID(), RunID: run.ID, N: n, Principal: job.Owner, Target: to,
		Kind: store.KindNotice, Text: text, Count: 1,
		Origin: originOf(chat.OriginAlert, job, run.ID), Quiet: quietAlert(job, run.Trigger),
	}
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
	d.wake()
}

// taken alerts the owners of jobs whose runs have ended because another principal has made the
// sessions that these jobs name. The claim does not wait for it.
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

// A job whose chat no longer exists does not fail: it fires, and its answer is in the transcript
// and in the ledger. Only the sending ends. The failed send pauses the delivery of the job and
// alerts its owner, in one transaction. If the process dies before that, the next send fails again.
// An answer that is held back has a ledger row with the reason and no row in the outbox.

// AddressGone ends an outgoing row whose address no longer exists, and pauses the delivery of its
// job, if the job still sends to that address.
func (d *Delivery) AddressGone(ctx context.Context, o store.Outgoing, p store.UndeliveredParams) (store.Gone, error) {
	job, run, ok := d.answers(ctx, o)
	if !ok {
		return d.store.Undelivered(ctx, p)
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
		return done, err
	}
	d.log.WarnContext(ctx, "cron alert", "job_id", job.ID, "run_id", run.ID, "alert", string(cron.AlertGone), "channel", chat.ChannelKind(o.Target.Channel), "reason", p.Error)
	d.events.publish(cron.Event{Action: cron.ActionUpdated, Job: *done.Job})
	return done, nil
}

// Expired alerts people that an answer of a job was not sent in time, once a day for each job.
func (d *Delivery) Expired(ctx context.Context, o store.Outgoing) {
	if o.Kind != store.KindReply {
		return
	}
	job, run, ok := d.answers(ctx, o)
	if ok && !job.Alert.Off && d.expiredAlerts.first(job.ID, time.Now()) {
		d.alert(ctx, job, run, cron.AlertExpired)
	}
}

// answers is the job and the run whose answer a row is, if the job still sends to the address of
// the row.
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
