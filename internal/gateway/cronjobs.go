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

type jobParams struct {
	_ struct{} `also:"displayName,description,declarationKey,owner,agentId,sessionKey,enabled,paused,deleteAfterRun,wakeMode,delivery,failureAlert,state,key,dst,overlap,missed,jitterMs,retry,timeoutSeconds,lane,pauseAfterFailures,atMostOnce,startsAtMs,endsAtMs,maxRuns,trigger,pacing"` //nolint:lll // one list

	Name           json.RawMessage `json:"name" p:"required"`
	Schedule       json.RawMessage `json:"schedule" p:"required"`
	SessionTarget  json.RawMessage `json:"sessionTarget" p:"required"`
	Payload        json.RawMessage `json:"payload" p:"required"`
	Extended       bool            `json:"extended"`
	IdempotencyKey string          `json:"idempotencyKey" p:"max=128"`
}

func (p *jobParams) wantsExtended() bool { return p.Extended }

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

func cronAdd(ctx context.Context, c *call, p jobParams) (any, error) {
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	put, err := c.cron().CronAdd(ctx, jobMembers(c.raw), c.caller(), o)
	if err != nil {
		return nil, err
	}
	job, where := jobView(put.Job, c.extended), previewOf(put.Job.Delivery)
	if put.Keyed {
		out := object{"created": put.Created, "job": job, "deliveryPreview": where}
		out.put("updated", true, put.Updated)
		return out, nil
	}
	job["deliveryPreview"] = where
	job.put("created", put.Created, c.extended)
	return job, nil
}

type updateParams struct {
	ID       string          `json:"id" p:"required,or=jobId,min=1,max=128"`
	Patch    json.RawMessage `json:"patch" p:"required"`
	Expected string          `json:"expectedConfigRevision" p:"max=128"`
	Extended bool            `json:"extended"`
}

func (p *updateParams) wantsExtended() bool { return p.Extended }

func cronUpdate(ctx context.Context, c *call, p updateParams) (any, error) {
	var patch cron.Members
	if err := json.Unmarshal(p.Patch, &patch); err != nil || patch == nil {
		return nil, c.badParam("/patch", "must be object")
	}
	patch, err := c.fromAlias(patch)
	if err != nil {
		return nil, err
	}
	job, err := c.cron().CronUpdate(ctx, p.ID, patch, p.Expected, c.caller())
	if err != nil {
		return nil, err
	}
	return jobView(job, c.extended), nil
}

type jobIDParams struct {
	ID       string `json:"id" p:"required,or=jobId,min=1,max=128"`
	Extended bool   `json:"extended"`
}

func (p *jobIDParams) wantsExtended() bool { return p.Extended }

func cronGet(ctx context.Context, c *call, p jobIDParams) (any, error) {
	job, err := c.cron().CronGet(ctx, p.ID, c.caller())
	if err != nil {
		return nil, err
	}
	return jobView(job, c.extended), nil
}

func cronResume(ctx context.Context, c *call, p jobIDParams) (any, error) {
	job, err := c.cron().CronResume(ctx, p.ID, c.caller())
	if err != nil {
		return nil, err
	}
	return jobView(job, true), nil
}

type removeParams struct {
	ID     string `json:"id" p:"required,or=jobId,min=1,max=128"`
	Cancel bool   `json:"cancelRunning"`
}

func cronRemove(ctx context.Context, c *call, p removeParams) (any, error) {
	if err := c.cron().CronRemove(ctx, p.ID, p.Cancel, c.caller()); err != nil {
		return nil, err
	}
	return object{"ok": true, "removed": true}, nil
}

type pauseParams struct {
	ID    string `json:"id" p:"required,or=jobId,min=1,max=128"`
	Note  string `json:"note" p:"required,min=1,max=500"`
	Until int64  `json:"untilMs" p:"min=1"`
}

func cronPause(ctx context.Context, c *call, p pauseParams) (any, error) {
	job, err := c.cron().CronPause(ctx, p.ID, p.Note, momentOf(p.Until), c.caller())
	if err != nil {
		return nil, err
	}
	return jobView(job, true), nil
}

func momentOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

type runParams struct {
	_ struct{} `also:"expectedProcessInstanceId"`

	ID             string `json:"id" p:"required,or=jobId,min=1,max=128"`
	Mode           string `json:"mode" p:"enum=force|due|if-enabled"`
	IdempotencyKey string `json:"idempotencyKey" p:"max=128"`
}

func cronRun(ctx context.Context, c *call, p runParams) (any, error) {
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	id, reason, err := c.cron().CronRun(ctx, p.ID, cron.RunMode(cmp.Or(p.Mode, string(cron.RunForce))), c.caller(), o)
	switch {
	case err != nil:
		return nil, err
	case reason != "":
		return object{"ok": true, "ran": false, "reason": reason}, nil
	}
	return object{"ok": true, "enqueued": true, "runId": id, "processInstanceId": c.srv.bootID}, nil
}

type cancelParams struct {
	RunID          string `json:"runId" p:"min=1,max=512"`
	ID             string `json:"id" p:"or=jobId,min=1,max=128"`
	Reason         string `json:"reason" p:"max=200"`
	IdempotencyKey string `json:"idempotencyKey" p:"max=128"`
}

func cronCancel(ctx context.Context, c *call, p cancelParams) (any, error) {
	if (p.RunID == "") == (p.ID == "") {
		return nil, c.badParam("", "must have either runId or id")
	}
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	ids, err := c.cron().CronCancel(ctx, cron.CancelParams{RunID: p.RunID, JobID: p.ID, Note: p.Reason, IdempotencyKey: o}, c.caller())
	if err != nil {
		return nil, err
	}
	return object{"ok": true, "cancelled": ids}, nil
}

type backfillParams struct {
	ID             string `json:"id" p:"required,or=jobId,min=1,max=128"`
	From           int64  `json:"fromMs" p:"required"`
	To             int64  `json:"toMs" p:"required"`
	MaxRuns        int64  `json:"maxRuns" p:"min=1,max=1000"`
	DryRun         bool   `json:"dryRun"`
	Force          bool   `json:"force"`
	IdempotencyKey string `json:"idempotencyKey" p:"max=128"`
}

const defaultBackfill = 100

func cronBackfill(ctx context.Context, c *call, p backfillParams) (any, error) {
	if p.MaxRuns == 0 {
		p.MaxRuns = defaultBackfill
	}
	o, err := c.onceOf(p.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	fires, err := c.cron().CronBackfill(ctx, cron.BackfillParams{
		ID: p.ID, From: time.UnixMilli(p.From), To: time.UnixMilli(p.To), MaxRuns: int(p.MaxRuns), DryRun: p.DryRun, Force: p.Force, IdempotencyKey: o,
	}, c.caller())
	if err != nil {
		return nil, err
	}
	return backfillView(fires, p.DryRun), nil
}

func backfillView(fires []cron.BackfillFire, dry bool) object {
	list, enqueued, existing := make([]object, 0, len(fires)), 0, 0
	for _, f := range fires {
		action := "enqueue"
		switch {
		case f.Exists:
			action = "exists"
			existing++
		case !dry:
			enqueued++
		}
		list = append(list, object{"scheduledForMs": f.Slot.UnixMilli(), "runId": f.RunID, "action": action})
	}
	return object{"ok": true, "enqueued": enqueued, "existing": existing, "fires": list}
}

type previewParams struct {
	ID       string          `json:"id" p:"or=jobId,min=1,max=128"`
	Schedule json.RawMessage `json:"schedule"`
	Jitter   int64           `json:"jitterMs" p:"min=0,max=3600000"`
	DST      json.RawMessage `json:"dst"`
	Count    int64           `json:"count" p:"min=1,max=100"`
	From     int64           `json:"fromMs" p:"min=1"`
}

const defaultPreview = 5

func cronPreview(ctx context.Context, c *call, p previewParams) (any, error) {
	if (p.ID == "") == (p.Schedule == nil) {
		return nil, c.badParam("", "must have either id or schedule")
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
	out, err := c.cron().CronPreview(ctx, p.ID, m, momentOf(p.From), int(p.Count), c.caller())
	if err == nil && p.ID == "" && p.Jitter > 0 { // it follows from the id that a job gets when it is made
		out.Warnings = append(out.Warnings, "each fire will be up to "+strconv.FormatInt(p.Jitter, 10)+" ms later, by a delay that is fixed once the job is made")
	}
	return out, err
}

func cronStatus(ctx context.Context, c *call, _ noParams) (any, error) {
	s, enabled := c.cron().CronCounts(ctx, c.caller())
	kind := c.srv.health.Load().status.Store
	out := object{"enabled": enabled, "triggersEnabled": false, "storePath": kind, "storage": kind, "jobs": s.Jobs, "nextWakeAtMs": nil}
	out.put("nextWakeAtMs", millis(s.NextWake), !s.NextWake.IsZero())
	return out, nil
}
