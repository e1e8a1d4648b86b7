// Package jobs has the methods of the protocol for jobs, and the protocol's form of jobs, their
// runs and their events.
//
// [Methods] returns rows of the method table for a [Backend], which makes all decisions: the
// package converts parameters to calls and jobs to the types of package wire. [EventView] is the
// payload of the event cron, [WebhookBody] the body of a webhook.
//
// The standard view of a job has the members that the OpenClaw gateway publishes, the extended view
// also has those of laneway. cron.create, cron.delete and cron.toggle are GoClaw's names for the
// same calls.
//
// The package keeps no state and starts no goroutine.
package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/auth"
	"laneway/internal/gateway/rpc"
	"laneway/internal/wire"
)

// Backend keeps jobs; the job service implements it. Errors are *chat.Error values; a job that is
// not visible counts as one that does not exist. Calls with an idempotency key
// (chat.IdempotencyKey) take effect once: a repetition, in any process, changes nothing and returns
// the first answer; chat.ErrKeyReused when that had other params.
type Backend interface {
	Add(ctx context.Context, m cron.Members, by chat.Caller, o *chat.IdempotencyKey) (cron.Put, error)
	Update(ctx context.Context, id string, patch cron.Members, expected string, by chat.Caller) (cron.Job, error)
	Remove(ctx context.Context, id string, cancelRunning bool, by chat.Caller) error
	Pause(ctx context.Context, id, note string, until time.Time, by chat.Caller) (cron.Job, error)
	// Moment reads a moment in words by the store's clock, in the zone of the job; past: the
	// words mean a moment that has probably passed.
	Moment(ctx context.Context, id, words string, past bool, by chat.Caller) (time.Time, error)
	Resume(ctx context.Context, id string, by chat.Caller) (cron.Job, error)
	Job(ctx context.Context, id string, by chat.Caller) (cron.Job, error)
	Jobs(ctx context.Context, f cron.JobFilter, by chat.Caller) (cron.JobPage, error)
	// Ledger lists runs, Start makes one now.
	Ledger(ctx context.Context, f cron.RunFilter, by chat.Caller) (cron.RunPage, error)
	Start(ctx context.Context, id string, mode cron.RunMode, by chat.Caller, o *chat.IdempotencyKey) (runID string, reason string, err error)
	Cancel(ctx context.Context, p cron.CancelParams, by chat.Caller) ([]string, error)
	Preview(ctx context.Context, p cron.PreviewParams, by chat.Caller) (cron.Preview, error)
	Explain(ctx context.Context, p cron.ExplainParams, by chat.Caller) (cron.Explained, error)
	Backfill(ctx context.Context, p cron.BackfillParams, by chat.Caller) ([]cron.BackfillFire, error)
	Counts(ctx context.Context, by chat.Caller) (s cron.Summary, enabled bool)
	Ticked() (last time.Time, running bool)
	// Subscribe calls fn for the events of this process, and for those of others while wanted
	// reports that a connection would receive them. Neither function may block.
	Subscribe(fn func(cron.Event), wanted func() bool) (cancel func())
}

// handlers implement the methods of jobs.
type handlers struct {
	backend Backend
	bootID  string
	process func() chat.SystemStatus
}

// Methods returns the rows of the table for jobs. Each method with a target accepts it as id and as
// jobId, because the families of clients use different names. bootID names this start of the
// gateway; process returns the last status of the process.
func Methods(backend Backend, bootID string, process func() chat.SystemStatus) []*rpc.Method {
	h := handlers{backend, bootID, process}
	return []*rpc.Method{
		rpc.Define("cron.add", chat.ScopeAdmin, h.add, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.create", chat.ScopeAdmin, h.create, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.update", chat.ScopeAdmin, h.update, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.remove", chat.ScopeAdmin, h.remove, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.delete", chat.ScopeAdmin, h.drop, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.toggle", chat.ScopeAdmin, h.toggle, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.pause", chat.ScopeAdmin, h.pause, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.resume", chat.ScopeAdmin, h.resume, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.run", chat.ScopeAdmin, h.run, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.backfill", chat.ScopeAdmin, h.backfill, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.cancel", chat.ScopeWrite, h.cancel, rpc.Control, rpc.Audited, rpc.Limited(auth.LimitCronWrites)),
		rpc.Define("cron.get", chat.ScopeRead, h.get),
		rpc.Define("cron.list", chat.ScopeRead, h.list, rpc.Lists),
		rpc.Define("cron.runs", chat.ScopeRead, h.runs, rpc.Lists),
		rpc.Define("cron.preview", chat.ScopeRead, h.preview),
		rpc.Define("cron.explain", chat.ScopeRead, h.explain),
		rpc.Define("cron.status", chat.ScopeRead, h.status),
		rpc.Define("scheduler.status", chat.ScopeRead, h.scheduler, rpc.Lists),
	}
}

// jobMembers parses all params as members of a job.
func jobMembers(raw json.RawMessage) cron.Members {
	m := cron.Members{}
	if json.Unmarshal(raw, &m) != nil { // the schema has checked that it is an object
		return cron.Members{}
	}
	delete(m, "extended")
	delete(m, "idempotencyKey")
	return m
}

func (h handlers) add(ctx context.Context, c *rpc.Call, p wire.CronAddParams) (wire.CronAddResult, error) {
	o, err := c.Once(p.IdempotencyKey)
	if err != nil {
		return wire.CronAddResult{}, err
	}
	put, err := h.backend.Add(ctx, jobMembers(c.Raw), c.Caller(), o)
	if err != nil {
		return wire.CronAddResult{}, err
	}
	job, where := writtenView(put.Job, c.Extended), previewOf(put.Job.Delivery)
	if put.Keyed {
		return wire.CronAddResult{Of: wire.JobDeclared{Created: put.Created, DeliveryPreview: where, Job: job, Updated: put.Updated}}, nil
	}
	job.DeliveryPreview = &where
	if c.Extended {
		job.Created = &put.Created
	}
	return wire.CronAddResult{Of: job}, nil
}

func (h handlers) update(ctx context.Context, c *rpc.Call, p wire.CronUpdateParams) (wire.Job, error) {
	var patch cron.Members
	if err := json.Unmarshal(p.Patch, &patch); err != nil || patch == nil {
		return wire.Job{}, c.BadParam("/patch", "must be object")
	}
	patch, err := fromAlias(c, patch)
	if err != nil {
		return wire.Job{}, err
	}
	job, err := h.backend.Update(ctx, p.ID, patch, p.Expected, c.Caller())
	if err != nil {
		return wire.Job{}, err
	}
	return writtenView(job, c.Extended), nil
}

// writtenView is the view of a job that was made or changed.
func writtenView(j cron.Job, extended bool) wire.Job {
	out := jobView(j, extended)
	if extended {
		out.Warnings = j.Surprises()
	}
	return out
}

func (h handlers) get(ctx context.Context, c *rpc.Call, p wire.CronJobParams) (wire.Job, error) {
	job, err := h.backend.Job(ctx, p.ID, c.Caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, c.Extended), nil
}

func (h handlers) resume(ctx context.Context, c *rpc.Call, p wire.CronJobParams) (wire.Job, error) {
	job, err := h.backend.Resume(ctx, p.ID, c.Caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, true), nil
}

func (h handlers) remove(ctx context.Context, c *rpc.Call, p wire.CronRemoveParams) (wire.CronRemoveResult, error) {
	if err := h.backend.Remove(ctx, p.ID, p.Cancel, c.Caller()); err != nil {
		return wire.CronRemoveResult{}, err
	}
	return wire.CronRemoveResult{OK: true, Removed: true}, nil
}

func (h handlers) pause(ctx context.Context, c *rpc.Call, p wire.CronPauseParams) (wire.Job, error) {
	until, err := h.moment(ctx, c, p.ID, "untilMs", p.Until, false)
	if err != nil {
		return wire.Job{}, err
	}
	job, err := h.backend.Pause(ctx, p.ID, p.Note, until, c.Caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, true), nil
}

// moment reads a parameter that is Unix milliseconds or words; zero if it is not given.
func (h handlers) moment(ctx context.Context, c *rpc.Call, id, name string, raw json.RawMessage, past bool) (time.Time, error) {
	var ms int64
	var words string
	switch {
	case raw == nil:
		return time.Time{}, nil
	case json.Unmarshal(raw, &ms) == nil && ms > 0:
		return momentOf(ms), nil
	case json.Unmarshal(raw, &words) != nil || words == "" || len(words) > 64:
		return time.Time{}, c.BadParam("/"+name, "must be Unix milliseconds, or a moment in words")
	}
	at, err := h.backend.Moment(ctx, id, words, past, c.Caller())
	if bad, ok := errors.AsType[*chat.Error](err); ok {
		if field, _ := bad.Details["field"].(string); field != "" {
			return at, chat.Errorf(bad.Code, "%s", strings.Replace(bad.Message, field, name, 1)).With("field", name)
		}
	}
	return at, err
}

func momentOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func (h handlers) run(ctx context.Context, c *rpc.Call, p wire.CronRunParams) (wire.CronRunResult, error) {
	o, err := c.Once(p.IdempotencyKey)
	if err != nil {
		return wire.CronRunResult{}, err
	}
	id, reason, err := h.backend.Start(ctx, p.ID, cron.RunMode(cmp.Or(p.Mode, string(cron.RunForce))), c.Caller(), o)
	switch {
	case err != nil:
		return wire.CronRunResult{}, err
	case reason != "":
		return wire.CronRunResult{OK: true, Ran: new(false), Reason: reason}, nil
	}
	return wire.CronRunResult{OK: true, Enqueued: true, RunID: id, ProcessInstanceID: h.bootID}, nil
}

func (h handlers) cancel(ctx context.Context, c *rpc.Call, p wire.CronCancelParams) (wire.CronCancelResult, error) {
	if (p.RunID == "") == (p.ID == "") {
		return wire.CronCancelResult{}, c.BadParam("", "must have either runId or id")
	}
	o, err := c.Once(p.IdempotencyKey)
	if err != nil {
		return wire.CronCancelResult{}, err
	}
	ids, err := h.backend.Cancel(ctx, cron.CancelParams{RunID: p.RunID, JobID: p.ID, Note: p.Reason, IdempotencyKey: o}, c.Caller())
	if err != nil {
		return wire.CronCancelResult{}, err
	}
	return wire.CronCancelResult{OK: true, Cancelled: ids}, nil
}

const defaultBackfill = 100

func (h handlers) backfill(ctx context.Context, c *rpc.Call, p wire.CronBackfillParams) (wire.CronBackfillResult, error) {
	p.MaxRuns = cmp.Or(p.MaxRuns, defaultBackfill)
	o, err := c.Once(p.IdempotencyKey)
	if err != nil {
		return wire.CronBackfillResult{}, err
	}
	from, err := h.moment(ctx, c, p.ID, "fromMs", p.From, true)
	if err != nil {
		return wire.CronBackfillResult{}, err
	}
	to, err := h.moment(ctx, c, p.ID, "toMs", p.To, true)
	if err != nil {
		return wire.CronBackfillResult{}, err
	}
	fires, err := h.backend.Backfill(ctx, cron.BackfillParams{
		ID: p.ID, From: from, To: to, MaxRuns: int(p.MaxRuns), DryRun: p.DryRun, Force: p.Force, IdempotencyKey: o,
		Spend: func(bytes int) error { return c.Spend(ctx, bytes) },
	}, c.Caller())
	if err != nil {
		return wire.CronBackfillResult{}, err
	}
	return backfillView(fires, p.DryRun), nil
}

func backfillView(fires []cron.BackfillFire, dry bool) wire.CronBackfillResult {
	out := wire.CronBackfillResult{OK: true, Fires: make([]wire.BackfillFire, 0, len(fires))}
	for _, f := range fires {
		action := "enqueue"
		switch {
		case f.Exists:
			action = "exists"
			out.Existing++
		case !dry:
			out.Enqueued++
		}
		out.Fires = append(out.Fires, wire.BackfillFire{Action: action, RunID: f.RunID, ScheduledForMs: f.Slot.UnixMilli()})
	}
	return out
}

const defaultPreview = 5

func (h handlers) preview(ctx context.Context, c *rpc.Call, p wire.CronPreviewParams) (wire.CronPreviewResult, error) {
	if p.ID == "" && p.Schedule == nil {
		return wire.CronPreviewResult{}, c.BadParam("", "must have id or schedule")
	}
	m := cron.Members{}
	for name, raw := range map[string]json.RawMessage{"schedule": p.Schedule, "dst": p.DST, "startsAtMs": p.StartsAt, "endsAtMs": p.EndsAt, "maxRuns": p.MaxRuns} {
		if raw != nil {
			m[name] = raw
		}
	}
	p.Count = cmp.Or(p.Count, defaultPreview)
	found, err := h.backend.Preview(ctx, cron.PreviewParams{ID: p.ID, Schedule: m, From: momentOf(p.From), Count: int(p.Count)}, c.Caller())
	if err != nil {
		return wire.CronPreviewResult{}, err
	}
	out := previewView(found)
	if p.ID == "" && p.Jitter > 0 { // it is derived from the id of the job, which is assigned when the job is made
		out.Warnings = append(out.Warnings, "each fire will be up to "+strconv.FormatInt(p.Jitter, 10)+" ms later, by a delay that is fixed once the job is made")
	}
	return out, nil
}

func previewView(p cron.Preview) wire.CronPreviewResult {
	out := wire.CronPreviewResult{Timezone: p.Timezone, Fires: fireViews(p.Fires), Affected: make([]wire.PreviewChange, 0, len(p.Affected)), Warnings: p.Warnings}
	for _, c := range p.Affected {
		out.Affected = append(out.Affected, wire.PreviewChange{
			AtMs: c.AtMs, Kind: c.Kind, Rule: c.Rule, Wall: c.Wall, Slots: c.Slots, Fires: fireViews(c.Fires), Text: c.Text,
		})
	}
	return out
}

func fireViews(fires []cron.PreviewFire) []wire.PreviewFire {
	out := make([]wire.PreviewFire, 0, len(fires))
	for _, f := range fires {
		out = append(out, wire.PreviewFire{ScheduledForMs: f.ScheduledForMs, FireAtMs: f.FireAtMs, ISO: f.ISO, Local: f.Local, DST: string(f.DST)})
	}
	return out
}

func (h handlers) explain(ctx context.Context, c *rpc.Call, p wire.CronExplainParams) (wire.CronExplainResult, error) {
	whole := p.From != 0 || p.Until != 0
	if p.At != "" && p.AtMs != 0 || whole && (p.At != "" || p.AtMs != 0 || p.From == 0 || p.Until == 0) {
		return wire.CronExplainResult{}, c.BadParam("", "must have at most one of at, atMs, and fromMs with untilMs")
	}
	found, err := h.backend.Explain(ctx, cron.ExplainParams{
		ID: p.ID, At: p.At, Moment: momentOf(p.AtMs), From: momentOf(p.From), Until: momentOf(p.Until),
	}, c.Caller())
	if err != nil {
		return wire.CronExplainResult{}, err
	}
	return explainView(found), nil
}

func explainView(e cron.Explained) wire.CronExplainResult {
	out := wire.CronExplainResult{Timezone: e.Zone, Slots: make([]wire.ExplainedSlot, 0, len(e.Slots))}
	for _, x := range e.Slots {
		s := wire.ExplainedSlot{SlotMs: x.Slot.UnixMilli(), Why: string(x.Why), Text: x.Text, Cure: x.Cure.Text, RunID: x.RunID, BeforeMs: msOf(x.Before), AfterMs: msOf(x.After)}
		for _, act := range x.Cure.Acts {
			s.Acts = append(s.Acts, string(act))
		}
		s.Changes = changeViews(x.Changes)
		out.Slots = append(out.Slots, s)
	}
	return out
}

func changeViews(list []cron.JobChange) (views []wire.JobChange) {
	for _, c := range list {
		views = append(views, wire.JobChange{TS: c.At.UnixMilli(), Who: c.Who, Verb: c.Verb})
	}
	return views
}

// msOf returns an instant in Unix milliseconds; 0 for the zero time.
func msOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (h handlers) status(ctx context.Context, c *rpc.Call, _ wire.NoParams) (wire.CronStatusResult, error) {
	s, enabled := h.backend.Counts(ctx, c.Caller())
	kind := h.process().Store
	return wire.CronStatusResult{Enabled: enabled, Jobs: s.Jobs, NextWakeAtMs: rpc.Instant(s.NextWake), Storage: kind, StorePath: kind}, nil
}
