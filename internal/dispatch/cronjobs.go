package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"laneway/internal/channel"
	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// errNoCron is told where the store keeps no jobs.
func errNoCron() error {
	return chat.Errorf(chat.CodeInvalid, "this gateway keeps no jobs: its store has no place for them")
}

// jobGone is the refusal for a job that is not there or not the caller's.
func jobGone(id string) error {
	id = chat.Cut(id, 128)
	return chat.Errorf(chat.CodeInvalid, "cron job not found: %s", chat.Escaped(id, "")).With("code", "CRON_JOB_NOT_FOUND").With("jobId", id)
}

// visible is whose jobs a caller sees; "" = everybody's.
func visible(by chat.Caller) string {
	if by.Own {
		return by.Principal
	}
	return ""
}

// border is what new input is checked against.
func (d *Dispatcher) border(by chat.Caller, now time.Time) cron.Border {
	rules := d.cfg.Cron.Rules
	if !OperatorOwner(by.Principal) {
		least := max(rules.MinInterval, d.cfg.Cron.UserMinInterval)
		rules = rules.ForChat()
		if d.cfg.Cron.UserMinInterval > 0 { // it may be shorter than what holds without it
			rules.MinInterval = least
		}
	}
	return cron.Border{
		Now: now, Rules: rules, DefaultAgent: d.DefaultAgent(), Lanes: d.laneNames(),
		Agent:   func(id string) bool { _, ok := d.agents[id]; return ok },
		Payload: func(kind cron.PayloadKind) bool { return slices.Contains(d.cfg.Cron.Payloads, kind) },
		Webhook: d.cfg.Cron.CheckWebhook,
		Channel: func(name string) bool {
			return name != channel.Webhook && (knownChannel(name) || slices.ContainsFunc(d.channelNames(), func(have string) bool { return chat.ChannelKind(have) == chat.ChannelKind(name) }))
		},
	}
}

func (d *Dispatcher) laneNames() []string {
	var names []string
	for _, l := range d.sched.Stats().Lanes {
		names = append(names, l.Name)
	}
	return names
}

// knownChannel tells channels that this program can have, configured or not.
func knownChannel(name string) bool { return chat.ChannelKind(name) == "telegram" }

// wireFault gives errors of package cron the codes that clients know.
func wireFault(err error) error {
	if bad, ok := errors.AsType[*schedule.InvalidError](err); ok {
		return chat.Errorf(chat.CodeInvalid, "%s", bad.Error()).With("code", "CRON_INVALID_SCHEDULE").With("field", bad.Field).With("reason", string(bad.Reason))
	}
	return err
}

// givenKey is the key that a client chose, "" for none.
func givenKey(m cron.Members) (string, error) {
	key := ""
	for _, name := range []string{"key", "declarationKey"} {
		raw, given := m[name]
		if !given {
			continue
		}
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must be string", name)
		}
		if err := chat.CheckText(name, s, 800); err != nil || len([]rune(s)) > 200 {
			return "", chat.Errorf(chat.CodeInvalid, "at /%s: must have 1 to 200 characters, not only blanks", name)
		}
		if key != "" && s != key {
			return "", chat.Errorf(chat.CodeInvalid, "key and declarationKey are different; give one of them")
		}
		key = s
	}
	return key, nil
}

// CronAdd makes a job, or changes the one with the same key; equal configuration writes nothing. With a name, o, a call that is sent again changes
// nothing and gets what the first one came to, also when what it asks for could not be asked for any more.
func (d *Dispatcher) CronAdd(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey) (cron.Put, error) {
	return d.cronAdd(ctx, m, by, o, d.mayTarget)
}

// cronAdd is CronAdd with what decides where a job may run and tell.
func (d *Dispatcher) cronAdd(
	ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey, may func(context.Context, cron.Job, chat.Caller) error,
) (cron.Put, error) {
	switch {
	case d.jobs == nil:
		return cron.Put{}, errNoCron()
	case by.Principal == cron.SystemOwner:
		return cron.Put{}, chat.Errorf(chat.CodeForbidden, "the name %s is the gateway's own", by.Principal)
	}
	key, err := givenKey(m)
	if err != nil {
		return cron.Put{}, err
	}
	if before, err := answered[*cron.PutResult](ctx, d.store, o); err != nil || before != nil {
		return putOf(before, key != ""), err
	}
	draft, err := d.border(by, time.Now()).Apply(cron.Job{}, m)
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	if err := may(ctx, draft, by); err != nil {
		return cron.Put{}, err
	}
	keyed := key != ""
	if !keyed {
		key = schedule.Key(draft.Name, draft.Schedule)
	}
	p := cron.PutParams{
		Owner: by.Principal, Key: key, MaxTotal: max(0, d.cfg.Cron.MaxJobs), EndWaiting: endedBy(m), IdempotencyKey: o, Audit: by.Audit("cron.add", key),
	}
	if !OperatorOwner(by.Principal) {
		if p.MaxOfOwner = d.cfg.Cron.MaxJobsOfUser; p.MaxOfOwner < 0 {
			return cron.Put{}, chat.Errorf(chat.CodeLimit, "chat users may have no jobs here").With("field", "jobs").With("limit", 0)
		}
	}
	id := newID()
	p.Change = func(old *cron.Job, now time.Time) (*cron.Job, error) {
		if old != nil {
			return d.upsert(*old, m, by, now)
		}
		j, err := d.border(by, now).Apply(cron.Job{Owner: by.Principal, Principal: by.Principal, Key: key, KeyDerived: !keyed}, m)
		if err != nil {
			return nil, err
		}
		j.ID = id
		pausedBy(&j, by)
		return d.planned(j, now)
	}
	res, err := d.jobs.PutJob(ctx, p)
	if errors.Is(err, chat.ErrLimit) {
		err = chat.Errorf(chat.CodeLimit, "there are too many jobs; remove one first").With("field", "jobs").With("limit", max(p.MaxOfOwner, p.MaxTotal))
	}
	if err != nil {
		return cron.Put{}, wireFault(err)
	}
	if !res.Repeated {
		d.stopEnded(res.Ended, joinBy("stop", by.Principal))
	}
	switch {
	case res.Repeated:
	case res.Created:
		d.changed(cron.ActionAdded, res.Job)
	case res.Updated:
		d.changed(cron.ActionUpdated, res.Job)
	}
	return putOf(&res, keyed), nil
}

func putOf(res *cron.PutResult, keyed bool) cron.Put {
	if res == nil {
		return cron.Put{}
	}
	return cron.Put{Job: res.Job, Created: res.Created, Updated: res.Updated, Keyed: keyed}
}

// anywhere is for jobs that are made in a chat: they tell the chat in which their owner speaks, and run nowhere else.
func anywhere(context.Context, cron.Job, chat.Caller) error { return nil }

// mayTarget refuses a session of somebody else, to run in or to tell, to a caller that sees its own only. A chat of a channel is not theirs either:
// a credential has none.
func (d *Dispatcher) mayTarget(ctx context.Context, j cron.Job, by chat.Caller) error {
	if !by.Own {
		return nil
	}
	failures, _ := j.Delivery.Failure()
	for _, at := range []cron.Delivery{j.Delivery, j.Alert.Delivery, failures} {
		switch {
		case at.Mode != cron.DeliverAnnounce:
			continue
		case !toWeb(at):
			return chat.ForeignChat(at.Channel, at.To)
		}
		if err := d.access.mayUse(ctx, webSession(j.Agent, at), by.Principal); err != nil {
			return err
		}
	}
	if j.Session == cron.Isolated {
		return nil
	}
	key := chat.MainKey(j.Agent)
	if name, ok := cutSession(j.Session); ok {
		var err error
		if key, err = chat.ParseSessionKey(name, j.Agent); err != nil {
			return err
		}
	}
	return d.access.mayUse(ctx, key, by.Principal)
}

func cutSession(target string) (string, bool) {
	if len(target) <= len(cron.NamedSession) || target[:len(cron.NamedSession)] != cron.NamedSession {
		return "", false
	}
	return target[len(cron.NamedSession):], true
}

// pausedBy says who has paused a job that is written with its pause. A caller who sees all jobs may bring the name along; the pause of others is their own.
func pausedBy(j *cron.Job, by chat.Caller) {
	if j.Pause != nil && (j.Pause.By == "" || by.Own || !OperatorOwner(by.Principal)) {
		j.Pause.By = by.Principal
	}
}

// upsert is a second add under the same key. It never ends a pause.
func (d *Dispatcher) upsert(old cron.Job, m cron.Members, by chat.Caller, now time.Time) (*cron.Job, error) {
	if old.Pause != nil || old.AutoDisabled {
		m = without(without(m, "enabled"), "paused")
	}
	next, err := d.border(by, now).Apply(old, without(m, "sessionKey"))
	if err != nil {
		return nil, err
	}
	if old.Pause == nil {
		pausedBy(&next, by)
	}
	if cron.RevisionOf(next) == cron.RevisionOf(old) {
		return &old, nil
	}
	if _, named := m["enabled"]; over(old) && next.Schedule != old.Schedule {
		next.State.Fired = 0
		next.Enabled = next.Enabled || !named
	}
	return d.replan(old, next, now)
}

// over tells a job of one moment that has fired: it is disabled because there was nothing left to do, not because somebody wanted it so.
func over(j cron.Job) bool {
	return j.Schedule.Kind == schedule.KindAt && !j.Enabled && j.State.Fired > 0 && j.Pause == nil && !j.AutoDisabled
}

func without(m cron.Members, name string) cron.Members {
	out := cron.Members{}
	for k, v := range m {
		if k != name {
			out[k] = v
		}
	}
	return out
}

// replan computes the next fire anew when something changed that decides it; otherwise the plan stays.
func (d *Dispatcher) replan(old, next cron.Job, now time.Time) (*cron.Job, error) {
	if !next.State.DeliveryPause.Holds(d.routeTo(next.Agent, next.Delivery)) {
		next.State.DeliveryPause = cron.DeliveryPause{} // the answers go somewhere else now
	}
	same := old.Schedule == next.Schedule && old.JitterMs == next.JitterMs && old.MayFire() == next.MayFire() &&
		old.StartsAt.Equal(next.StartsAt) && old.EndsAt.Equal(next.EndsAt) && old.MaxRuns == next.MaxRuns
	if !same {
		return d.planned(next, now)
	}
	next.UpdatedAt, next.Revision = now, cron.RevisionOf(next)
	return &next, nil
}
