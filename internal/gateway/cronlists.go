package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/strictjson"
)

const (
	mostJobs    = 200
	defaultRuns = 50
	mostStatus  = 1_000
)

type listParams struct {
	_ struct{} `also:"compact,includeDeliveryPreviews"`

	IncludeDisabled bool   `json:"includeDisabled"`
	Enabled         string `json:"enabled" p:"enum=all|enabled|disabled"`
	Limit           int64  `json:"limit" p:"min=1,max=200"`
	Offset          int64  `json:"offset" p:"min=0"`
	Query           string `json:"query" p:"max=256"`
	Kind            string `json:"scheduleKind" p:"enum=all|at|every|cron|on-exit|stream"`
	Last            string `json:"lastRunStatus" p:"enum=all|ok|error|skipped|unknown"`
	Trigger         string `json:"trigger" p:"enum=all|conditional|unconditional"`
	SortBy          string `json:"sortBy" p:"enum=nextRunAtMs|updatedAtMs|name"`
	SortDir         string `json:"sortDir" p:"enum=asc|desc"`
	AgentID         string `json:"agentId" p:"min=1,max=64"`
	System          bool   `json:"includeSystem"`
	Extended        bool   `json:"extended"`
}

func (p *listParams) wantsExtended() bool { return p.Extended }

func (p *listParams) filter() cron.JobFilter {
	f := cron.JobFilter{
		IncludeSystem: p.System, Query: p.Query, Agent: p.AgentID, Descending: p.SortDir == "desc",
		Limit: int(p.Limit), Offset: int(p.Offset), SortBy: map[string]string{"nextRunAtMs": "nextRunAt", "updatedAtMs": "updatedAt", "name": "name"}[p.SortBy],
	}
	yes, no := true, false
	switch {
	case p.Enabled == "enabled", p.Enabled == "" && !p.IncludeDisabled:
		f.Enabled = &yes
	case p.Enabled == "disabled":
		f.Enabled = &no
	}
	if p.Kind != "" && p.Kind != "all" {
		f.Kind = schedule.Kind(p.Kind)
	}
	switch p.Last {
	case "", "all":
	case "unknown":
		f.NeverRan = true
	default:
		f.LastState = cron.RunState(p.Last)
	}
	return f
}

// cronList lists jobs. When one page is not enough and no order was asked for, the order is by id, so that pages neither skip nor repeat.
func cronList(ctx context.Context, c *call, p listParams) (any, error) {
	if p.Limit == 0 {
		p.Limit = mostJobs
	}
	f := p.filter()
	if p.SortBy == "" && p.Offset > 0 {
		f.SortBy = "id"
	}
	var page cron.JobPage
	var err error
	if p.Trigger != "conditional" { // there are none
		page, err = c.cron().CronList(ctx, f, c.caller())
	}
	if err == nil && p.SortBy == "" && f.SortBy != "id" && page.Total > len(page.Jobs) {
		f.SortBy = "id"
		page, err = c.cron().CronList(ctx, f, c.caller())
	}
	if err != nil {
		return nil, err
	}
	jobs, where := make([]object, 0, len(page.Jobs)), object{}
	for _, j := range page.Jobs {
		jobs = append(jobs, jobView(j, c.extended))
		where[j.ID] = previewOf(j.Delivery)
	}
	out := pageOf(len(jobs), page.Total, p.Offset, p.Limit)
	out["jobs"], out["snapshotRevision"], out["deliveryPreviews"] = jobs, cmp.Or(page.Revision, "r0"), where
	return out, nil
}

// pageOf is what the pieces of all lists say about their place.
func pageOf(n, total int, offset, limit int64) object {
	next := int(offset) + n
	out := object{"total": total, "offset": offset, "limit": limit, "hasMore": next < total, "nextOffset": nil}
	out.put("nextOffset", next, next < total)
	return out
}

type runsParams struct {
	ID         string   `json:"id" p:"or=jobId,min=1,max=128"`
	Scope      string   `json:"scope" p:"enum=job|all"`
	RunID      string   `json:"runId" p:"min=1,max=512"`
	Limit      int64    `json:"limit" p:"min=1,max=200"`
	Offset     int64    `json:"offset" p:"min=0"`
	Status     string   `json:"status" p:"enum=all|ok|error|skipped|missed|cancelled|interrupted"`
	Statuses   []string `json:"statuses" p:"max=8"`
	Delivery   string   `json:"deliveryStatus" p:"max=32"`
	Deliveries []string `json:"deliveryStatuses" p:"max=8"`
	Query      string   `json:"query" p:"max=256"`
	AgentID    string   `json:"agentId" p:"min=1,max=64"`
	SortDir    string   `json:"sortDir" p:"enum=asc|desc"`
	Since      int64    `json:"sinceMs"`
	Until      int64    `json:"untilMs"`
	Active     bool     `json:"includeActive"`
	Extended   bool     `json:"extended"`
}

func (p *runsParams) wantsExtended() bool { return p.Extended }

func (p *runsParams) filter() cron.RunFilter {
	f := cron.RunFilter{
		JobID: p.ID, RunID: p.RunID, Agent: p.AgentID, Query: p.Query, IncludeActive: p.Active, Since: momentOf(p.Since), Until: momentOf(p.Until),
		Ascending: p.SortDir == "asc", Limit: int(p.Limit), Offset: int(p.Offset),
	}
	if p.Scope == "all" {
		f.JobID = ""
	}
	for _, s := range append(slices.Clone(p.Statuses), p.Status) {
		f.States = append(f.States, statesOf(s)...)
	}
	for _, s := range append(slices.Clone(p.Deliveries), p.Delivery) {
		if s != "" && s != "all" {
			f.Deliveries = append(f.Deliveries, cron.DeliveryStatus(s))
		}
	}
	return f
}

// statesOf are the outcomes that a word of the filter means: the three-valued status, or one of ours.
func statesOf(word string) []cron.RunState {
	switch word {
	case "", "all":
		return nil
	case "error":
		return []cron.RunState{cron.RunError, cron.RunCancelled, cron.RunInterrupted}
	case "skipped":
		return []cron.RunState{cron.RunSkipped, cron.RunMissed}
	}
	return []cron.RunState{cron.RunState(word)}
}

func cronRuns(ctx context.Context, c *call, p runsParams) (any, error) {
	if p.Limit == 0 {
		p.Limit = defaultRuns
	}
	for _, s := range p.Statuses {
		if s != "all" && s != "ok" && s != "error" && s != "skipped" && !cron.RunState(s).Final() {
			return nil, c.badParam("/statuses", "unknown status")
		}
	}
	page, err := c.cron().CronRuns(ctx, p.filter(), c.caller())
	if err != nil {
		return nil, err
	}
	jobs := map[string]*cron.Job{}
	entries := make([]object, 0, len(page.Runs))
	for _, r := range page.Runs {
		job, known := jobs[r.JobID]
		if !known && len(jobs) < 20 { // a page of one job asks once; a page of many does without
			if j, err := c.cron().CronGet(ctx, r.JobID, c.caller()); err == nil {
				job = &j
			}
			jobs[r.JobID] = job
		}
		entries = append(entries, entryView(r, job, c.extended))
	}
	out := pageOf(len(entries), page.Total, p.Offset, p.Limit)
	out["entries"] = entries
	return out, nil
}

type aliasParams struct {
	Name           json.RawMessage `json:"name" p:"required"`
	Schedule       json.RawMessage `json:"schedule" p:"required"`
	Message        json.RawMessage `json:"message" p:"required"`
	Deliver        bool            `json:"deliver"`
	Channel        string          `json:"channel"`
	DeliverChannel string          `json:"deliverChannel"`
	To             string          `json:"to"`
	DeliverTo      string          `json:"deliverTo"`
	AgentID        json.RawMessage `json:"agentId"`
	Stateless      *bool           `json:"stateless"`
	DeleteAfterRun json.RawMessage `json:"deleteAfterRun"`
}

// cronCreate is cron.add under the names of GoClaw.
func cronCreate(ctx context.Context, c *call, _ aliasParams) (any, error) {
	m, err := c.fromAlias(jobMembers(c.raw))
	if err != nil {
		return nil, err
	}
	if m["sessionTarget"] == nil {
		m["sessionTarget"] = strictjson.Encode(cron.Isolated)
	}
	put, err := c.cron().CronAdd(ctx, m, c.caller(), nil)
	if err != nil {
		return nil, err
	}
	return object{"job": aliasView(put.Job)}, nil
}

func aliasView(j cron.Job) object {
	o := jobView(j, true)
	if s, ok := o["schedule"].(object); ok && j.Schedule.Kind == schedule.KindAt {
		s["atMs"] = j.Schedule.At.UnixMilli()
	}
	return o
}

// fromAlias turns GoClaw's members of a job into ours.
func (c *call) fromAlias(m cron.Members) (cron.Members, error) {
	var in struct {
		Deliver        *bool   `json:"deliver"`
		Channel        *string `json:"channel"`
		DeliverChannel *string `json:"deliverChannel"`
		To             *string `json:"to"`
		DeliverTo      *string `json:"deliverTo"`
		Stateless      *bool   `json:"stateless"`
		Name           string  `json:"name"`
	}
	if err := json.Unmarshal(strictjson.Encode(m), &in); err != nil {
		return nil, c.badParam("", "members of the job have the wrong type")
	}
	out := cron.Members{}
	for name, raw := range m {
		switch name {
		case "deliver", "channel", "deliverChannel", "to", "deliverTo", "stateless", "message":
		default:
			out[name] = raw
		}
	}
	if text, given := m["message"]; given {
		out["payload"] = strictjson.Encode(map[string]any{"kind": cron.PayloadAgentTurn, "message": text})
	}
	if in.Stateless != nil {
		target := cron.Isolated
		if !*in.Stateless {
			target = cron.NamedSession + "cron:" + in.Name
		}
		out["sessionTarget"] = strictjson.Encode(target)
	}
	if in.Deliver != nil {
		out["delivery"] = strictjson.Encode(aliasDelivery(*in.Deliver, orPointer(in.Channel, in.DeliverChannel), orPointer(in.To, in.DeliverTo)))
	}
	return out, nil
}

func orPointer(a, b *string) string {
	switch {
	case a != nil:
		return *a
	case b != nil:
		return *b
	}
	return ""
}

func aliasDelivery(deliver bool, channel, to string) object {
	if !deliver {
		return object{"mode": cron.DeliverNone}
	}
	o := object{"mode": cron.DeliverAnnounce}
	o.put("channel", channel, channel != "")
	o.put("to", to, to != "")
	return o
}

type aliasIDParams struct {
	ID string `json:"id" p:"required,or=jobId,min=1,max=128"`
}

func cronDelete(ctx context.Context, c *call, p aliasIDParams) (any, error) {
	if err := c.cron().CronRemove(ctx, p.ID, false, c.caller()); err != nil {
		return nil, err
	}
	return object{"deleted": true}, nil
}

type toggleParams struct {
	ID      string `json:"id" p:"required,or=jobId,min=1,max=128"`
	Enabled bool   `json:"enabled" p:"required"`
}

func cronToggle(ctx context.Context, c *call, p toggleParams) (any, error) {
	patch := cron.Members{"enabled": json.RawMessage(strconv.FormatBool(p.Enabled))}
	if _, err := c.cron().CronUpdate(ctx, p.ID, patch, "", c.caller()); err != nil {
		return nil, err
	}
	return object{"jobId": p.ID, "enabled": p.Enabled}, nil
}

// schedulerStatus shows jobs in the words of the in-process scheduler.
func schedulerStatus(ctx context.Context, c *call, _ noParams) (any, error) {
	jobs := []object{}
	for more := true; more && len(jobs) < mostStatus; { // what is shown of a job is small; the jobs as they are read are not
		page, err := c.cron().CronList(ctx, cron.JobFilter{IncludeSystem: true, SortBy: "name", Limit: mostStatus - len(jobs), Offset: len(jobs)}, c.caller())
		if err != nil {
			return nil, err
		}
		for _, j := range page.Jobs {
			jobs = append(jobs, schedulerJob(j))
		}
		more = len(page.Jobs) > 0 && len(jobs) < page.Total
	}
	last, running := c.cron().CronTicked()
	return object{"ts": time.Now().UnixMilli(), "nodeId": c.srv.health.Load().status.NodeID, "running": running, "lastTickMs": millis(last), "jobs": jobs}, nil
}

func schedulerJob(j cron.Job) object {
	st := j.State
	o := object{
		"job_name": j.Name, "cron_expr": exprOf(j.Schedule), "last_run": nil, "last_duration_ms": nil, "last_result": nil, "next_run": nil,
		"run_count": st.RunCount, "error_count": st.ErrorCount, "is_running": !st.RunningAt.IsZero(), "is_paused": !j.MayFire(),
	}
	if !st.LastRunAt.IsZero() {
		o["last_run"], o["last_duration_ms"] = isoTime(st.LastRunAt), st.LastDuration.Milliseconds()
	}
	switch word := statusWord(st.LastState); word {
	case "":
	case "ok":
		o["last_result"] = word
	default:
		o["last_result"] = word + ": " + st.LastError
	}
	o.put("next_run", isoTime(st.NextRunAt), j.MayFire() && !st.NextRunAt.IsZero())
	return o
}

func exprOf(s schedule.Spec) string {
	switch s.Kind {
	case schedule.KindAt:
		return "@at " + s.At.UTC().Format(time.RFC3339)
	case schedule.KindEvery:
		d := time.Duration(s.EveryMs) * time.Millisecond
		if d%time.Second == 0 {
			return "@every " + strconv.FormatInt(int64(d/time.Second), 10) + "s"
		}
		return "@every " + d.String()
	case schedule.KindCron:
	}
	return s.Expr
}
