package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/gateway/auth"
	"laneway/internal/wire"
)

// CronBackend is a [Backend] that keeps jobs. Errors are *chat.Error values, and what is not visible is as if it did not exist. Calls that have a name
// (chat.IdempotencyKey) take effect once: sent again, by whichever process, they change nothing and get the first answer; chat.ErrKeyReused when that had other params.
type CronBackend interface {
	CronAdd(ctx context.Context, m cron.Members, by Caller, o *chat.IdempotencyKey) (cron.Put, error)
	CronUpdate(ctx context.Context, id string, patch cron.Members, expected string, by Caller) (cron.Job, error)
	CronRemove(ctx context.Context, id string, cancelRunning bool, by Caller) error
	CronPause(ctx context.Context, id, note string, until time.Time, by Caller) (cron.Job, error)
	CronResume(ctx context.Context, id string, by Caller) (cron.Job, error)
	CronGet(ctx context.Context, id string, by Caller) (cron.Job, error)
	CronList(ctx context.Context, f cron.JobFilter, by Caller) (cron.JobPage, error)
	CronRuns(ctx context.Context, f cron.RunFilter, by Caller) (cron.RunPage, error)
	CronRun(ctx context.Context, id string, mode cron.RunMode, by Caller, o *chat.IdempotencyKey) (runID string, reason string, err error)
	CronCancel(ctx context.Context, p cron.CancelParams, by Caller) ([]string, error)
	CronPreview(ctx context.Context, id string, m cron.Members, from time.Time, count int, by Caller) (cron.Preview, error)
	CronBackfill(ctx context.Context, p cron.BackfillParams, by Caller) ([]cron.BackfillFire, error)
	CronCounts(ctx context.Context, by Caller) (s cron.Summary, enabled bool)
	CronTicked() (last time.Time, running bool)
	// SubscribeCron calls fn for the events of this process, and for those of others as long as wanted says that anybody would see them. Neither may block.
	SubscribeCron(fn func(cron.Event), wanted func() bool) (cancel func())
}

// cronMethods are there when the backend keeps jobs. Each that has a target takes it as id or as jobId: the families of clients differ in the name, and a
// person should not have to know which method came from which.
func cronMethods(b Backend) []*method {
	if _, ok := b.(CronBackend); !ok {
		return nil
	}
	return jobMethods()
}

func jobMethods() []*method {
	return []*method{
		define("cron.add", chat.ScopeAdmin, cronAdd, audited, limited(auth.LimitCronWrites)),
		define("cron.create", chat.ScopeAdmin, cronCreate, audited, limited(auth.LimitCronWrites)),
		define("cron.update", chat.ScopeAdmin, cronUpdate, audited, limited(auth.LimitCronWrites)),
		define("cron.remove", chat.ScopeAdmin, cronRemove, audited, limited(auth.LimitCronWrites)),
		define("cron.delete", chat.ScopeAdmin, cronDelete, audited, limited(auth.LimitCronWrites)),
		define("cron.toggle", chat.ScopeAdmin, cronToggle, audited, limited(auth.LimitCronWrites)),
		define("cron.pause", chat.ScopeAdmin, cronPause, audited, limited(auth.LimitCronWrites)),
		define("cron.resume", chat.ScopeAdmin, cronResume, audited, limited(auth.LimitCronWrites)),
		define("cron.run", chat.ScopeAdmin, cronRun, audited, limited(auth.LimitCronWrites)),
		define("cron.backfill", chat.ScopeAdmin, cronBackfill, audited, limited(auth.LimitCronWrites)),
		define("cron.cancel", chat.ScopeWrite, cronCancel, control, audited, limited(auth.LimitCronWrites)),
		define("cron.get", chat.ScopeRead, cronGet),
		define("cron.list", chat.ScopeRead, cronList, lists),
		define("cron.runs", chat.ScopeRead, cronRuns, lists),
		define("cron.preview", chat.ScopeRead, cronPreview),
		define("cron.status", chat.ScopeRead, cronStatus),
		define("scheduler.status", chat.ScopeRead, schedulerStatus, lists),
	}
}

func (c *call) cron() CronBackend { return c.srv.backend.(CronBackend) } //nolint:errcheck,forcetypeassert // the methods exist for nothing else

// jobMembers reads all params as members of a job.
func jobMembers(raw json.RawMessage) cron.Members {
	m := cron.Members{}
	if json.Unmarshal(raw, &m) != nil { // the shape has seen an object
		return cron.Members{}
	}
	delete(m, "extended")
	delete(m, "idempotencyKey")
	return m
}

func cronAdd(ctx context.Context, c *call, p wire.CronAddParams) (wire.CronAddResult, error) {
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return wire.CronAddResult{}, err
	}
	put, err := c.cron().CronAdd(ctx, jobMembers(c.raw), c.caller(), o)
	if err != nil {
		return wire.CronAddResult{}, err
	}
	job, where := jobView(put.Job, c.extended), previewOf(put.Job.Delivery)
	if put.Keyed {
		return wire.CronAddResult{Of: wire.JobDeclared{Created: put.Created, DeliveryPreview: where, Job: job, Updated: put.Updated}}, nil
	}
	job.DeliveryPreview = &where
	if c.extended {
		job.Created = &put.Created
	}
	return wire.CronAddResult{Of: job}, nil
}

func cronUpdate(ctx context.Context, c *call, p wire.CronUpdateParams) (wire.Job, error) {
	var patch cron.Members
	if err := json.Unmarshal(p.Patch, &patch); err != nil || patch == nil {
		return wire.Job{}, c.badParam("/patch", "must be object")
	}
	patch, err := c.fromAlias(patch)
	if err != nil {
		return wire.Job{}, err
	}
	job, err := c.cron().CronUpdate(ctx, p.ID, patch, p.Expected, c.caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, c.extended), nil
}

func cronGet(ctx context.Context, c *call, p wire.CronJobParams) (wire.Job, error) {
	job, err := c.cron().CronGet(ctx, p.ID, c.caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, c.extended), nil
}

func cronResume(ctx context.Context, c *call, p wire.CronJobParams) (wire.Job, error) {
	job, err := c.cron().CronResume(ctx, p.ID, c.caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, true), nil
}

func cronRemove(ctx context.Context, c *call, p wire.CronRemoveParams) (wire.CronRemoveResult, error) {
	if err := c.cron().CronRemove(ctx, p.ID, p.Cancel, c.caller()); err != nil {
		return wire.CronRemoveResult{}, err
	}
	return wire.CronRemoveResult{OK: true, Removed: true}, nil
}

func cronPause(ctx context.Context, c *call, p wire.CronPauseParams) (wire.Job, error) {
	job, err := c.cron().CronPause(ctx, p.ID, p.Note, momentOf(p.Until), c.caller())
	if err != nil {
		return wire.Job{}, err
	}
	return jobView(job, true), nil
}

func momentOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func cronRun(ctx context.Context, c *call, p wire.CronRunParams) (wire.CronRunResult, error) {
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return wire.CronRunResult{}, err
	}
	id, reason, err := c.cron().CronRun(ctx, p.ID, cron.RunMode(cmp.Or(p.Mode, string(cron.RunForce))), c.caller(), o)
	switch {
	case err != nil:
		return wire.CronRunResult{}, err
	case reason != "":
		return wire.CronRunResult{OK: true, Ran: new(false), Reason: reason}, nil
	}
	return wire.CronRunResult{OK: true, Enqueued: true, RunID: id, ProcessInstanceID: c.srv.bootID}, nil
}

func cronCancel(ctx context.Context, c *call, p wire.CronCancelParams) (wire.CronCancelResult, error) {
	if (p.RunID == "") == (p.ID == "") {
		return wire.CronCancelResult{}, c.badParam("", "must have either runId or id")
	}
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return wire.CronCancelResult{}, err
	}
	ids, err := c.cron().CronCancel(ctx, cron.CancelParams{RunID: p.RunID, JobID: p.ID, Note: p.Reason, IdempotencyKey: o}, c.caller())
	if err != nil {
		return wire.CronCancelResult{}, err
	}
	return wire.CronCancelResult{OK: true, Cancelled: ids}, nil
}

const defaultBackfill = 100

func cronBackfill(ctx context.Context, c *call, p wire.CronBackfillParams) (wire.CronBackfillResult, error) {
	if p.MaxRuns == 0 {
		p.MaxRuns = defaultBackfill
	}
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return wire.CronBackfillResult{}, err
	}
	fires, err := c.cron().CronBackfill(ctx, cron.BackfillParams{
		ID: p.ID, From: time.UnixMilli(p.From), To: time.UnixMilli(p.To), MaxRuns: int(p.MaxRuns), DryRun: p.DryRun, Force: p.Force, IdempotencyKey: o,
	}, c.caller())
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

func cronPreview(ctx context.Context, c *call, p wire.CronPreviewParams) (wire.CronPreviewResult, error) {
	if (p.ID == "") == (p.Schedule == nil) {
		return wire.CronPreviewResult{}, c.badParam("", "must have either id or schedule")
	}
	m := cron.Members{}
	if p.Schedule != nil {
		m["schedule"] = p.Schedule
	}
	if p.DST != nil {
		m["dst"] = p.DST
	}
	if p.Count == 0 {
		p.Count = defaultPreview
	}
	found, err := c.cron().CronPreview(ctx, p.ID, m, momentOf(p.From), int(p.Count), c.caller())
	if err != nil {
		return wire.CronPreviewResult{}, err
	}
	out := previewView(found)
	if p.ID == "" && p.Jitter > 0 { // it follows from the id that a job gets when it is made
		out.Warnings = append(out.Warnings, "each fire will be up to "+strconv.FormatInt(p.Jitter, 10)+" ms later, by a delay that is fixed once the job is made")
	}
	return out, nil
}

func previewView(p cron.Preview) wire.CronPreviewResult {
	out := wire.CronPreviewResult{Timezone: p.Timezone, Fires: make([]wire.PreviewFire, 0, len(p.Fires)), Warnings: p.Warnings}
	for _, f := range p.Fires {
		out.Fires = append(out.Fires, wire.PreviewFire{
			ScheduledForMs: f.ScheduledForMs, FireAtMs: f.FireAtMs, ISO: f.ISO, Local: f.Local, DST: string(f.DST),
		})
	}
	return out
}

func cronStatus(ctx context.Context, c *call, _ wire.NoParams) (wire.CronStatusResult, error) {
	s, enabled := c.cron().CronCounts(ctx, c.caller())
	kind := c.srv.health.Load().status.Store
	return wire.CronStatusResult{Enabled: enabled, Jobs: s.Jobs, NextWakeAtMs: instant(s.NextWake), Storage: kind, StorePath: kind}, nil
}
