package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/gateway/rpc"
	"laneway/internal/gateway/strictjson"
	"laneway/internal/wire"
)

const (
	mostJobs    = 200
	defaultRuns = 50
	mostStatus  = 1_000
)

func jobFilter(p *wire.CronListParams) cron.JobFilter {
	f := cron.JobFilter{
		IncludeSystem: p.System, Query: p.Query, Agent: p.AgentID, Descending: p.SortDir == "desc",
		Limit: int(p.Limit), Offset: int(p.Offset), After: p.Cursor, SortBy: strings.TrimSuffix(p.SortBy, "Ms"), IDs: p.IDs, Target: p.Target,
		Counts: p.Counts, Outcomes: int(p.Outcomes), WithoutPayload: p.Brief,
	}
	if p.Condition != "all" {
		f.Condition = cron.JobCondition(p.Condition)
	}
	yes, no := true, false
	switch {
	case p.Enabled == "enabled", p.Enabled == "" && !p.IncludeDisabled && f.Condition == "" && len(p.IDs) == 0:
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

// list lists jobs. When there is more than one page and no order was requested, the order is by id,
// so that pages neither skip nor repeat jobs.
func (h handlers) list(ctx context.Context, c *rpc.Call, p wire.CronListParams) (wire.CronListResult, error) {
	p.Limit = cmp.Or(p.Limit, mostJobs)
	if p.Cursor != "" && p.Offset > 0 {
		return wire.CronListResult{}, c.BadParam("/cursor", "goes without offset")
	}
	f := jobFilter(&p)
	if p.SortBy == "" && (p.Offset > 0 || p.Cursor != "") {
		f.SortBy = "id"
	}
	var page cron.JobPage
	var err error
	if p.Trigger != "conditional" { // no such jobs exist
		page, err = h.backend.Jobs(ctx, f, c.Caller())
	}
	if err == nil && p.SortBy == "" && f.SortBy != "id" && page.Total > len(page.Jobs) {
		f.SortBy = "id"
		page, err = h.backend.Jobs(ctx, f, c.Caller())
	}
	if err != nil {
		return wire.CronListResult{}, err
	}
	out := wire.CronListResult{
		DeliveryPreviews: map[string]wire.DeliveryPreview{}, Jobs: make([]wire.Job, 0, len(page.Jobs)), Limit: p.Limit, Offset: p.Offset,
		SnapshotRevision: cmp.Or(page.Revision, "r0"), Total: page.Total, TotalIsLowerBound: page.More,
	}
	for _, j := range page.Jobs {
		job := jobView(j, c.Extended)
		if p.Brief {
			job = briefJob(&job)
		} else {
			out.DeliveryPreviews[j.ID] = previewOf(j.Delivery)
		}
		job.Outcomes = outcomesView(page.Outcomes[j.ID])
		out.Jobs = append(out.Jobs, job)
	}
	if p.Counts {
		n := page.Counts
		out.Counts = &wire.JobCounts{All: n.All, Failing: n.Failing, Invalid: n.Invalid, Late: n.Late, Paused: n.Paused, Running: n.Running}
	}
	if c.Extended {
		out.NextCursor = page.Next
	}
	if out.HasMore = page.Next != ""; p.Cursor == "" {
		out.HasMore, out.NextOffset = nextOf(int(p.Offset)+len(out.Jobs), page.Total, page.More)
	}
	return out, nil
}

// nextOf returns the offset after a page, if the list continues. The list has more rows than total
// if beyond is set.
func nextOf(next, total int, beyond bool) (more bool, offset *int) {
	if next >= total && !beyond {
		return false, nil
	}
	return true, &next
}

func runFilter(p *wire.CronRunsParams) cron.RunFilter {
	f := cron.RunFilter{
		JobID: p.ID, RunID: p.RunID, Agent: p.AgentID, Query: p.Query, IncludeActive: p.Active, Since: momentOf(p.Since), Until: momentOf(p.Until),
		Ascending: p.SortDir == "asc", Changes: p.Changes, Limit: int(p.Limit), Offset: int(p.Offset),
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

// statesOf returns the outcomes for a value of the filter: the three-valued status, or an outcome
// of laneway.
func statesOf(word string) []cron.RunState {
	switch word {
	case "", "all":
		return nil
	case "active":
		return []cron.RunState{cron.RunQueued, cron.RunRunning, cron.RunRetrying}
	case "error":
		return []cron.RunState{cron.RunError, cron.RunCancelled, cron.RunInterrupted}
	case "skipped":
		return []cron.RunState{cron.RunSkipped, cron.RunMissed}
	}
	return []cron.RunState{cron.RunState(word)}
}

func (h handlers) runs(ctx context.Context, c *rpc.Call, p wire.CronRunsParams) (wire.CronRunsResult, error) {
	p.Limit = cmp.Or(p.Limit, defaultRuns)
	for _, s := range p.Statuses {
		if s != "all" && s != "ok" && s != "error" && s != "skipped" && !cron.RunState(s).Final() {
			return wire.CronRunsResult{}, c.BadParam("/statuses", "unknown status")
		}
	}
	page, err := h.backend.Ledger(ctx, runFilter(&p), c.Caller())
	if err != nil {
		return wire.CronRunsResult{}, err
	}
	jobs := map[string]*cron.Job{}
	out := wire.CronRunsResult{Entries: make([]wire.LedgerEntry, 0, len(page.Runs)), Limit: p.Limit, Offset: p.Offset, Total: page.Total, TotalIsLowerBound: page.More}
	for _, r := range page.Runs {
		job, known := jobs[r.JobID]
		if !known && len(jobs) < 20 { // only a short page queries it
			if j, err := h.backend.Job(ctx, r.JobID, c.Caller()); err == nil {
				job = &j
			}
			jobs[r.JobID] = job
		}
		entry := EntryView(r, job, c.Extended)
		if c.Extended {
			entry.Timezone = cmp.Or(entry.Timezone, page.Zone)
		}
		out.Entries = append(out.Entries, entry)
	}
	out.Changes = changeViews(page.Changes)
	out.HasMore, out.NextOffset = nextOf(int(p.Offset)+len(out.Entries), page.Total, page.More)
	return out, nil
}

// create is cron.add with the member names of GoClaw.
func (h handlers) create(ctx context.Context, c *rpc.Call, _ wire.CronCreateParams) (wire.CronCreateResult, error) {
	m, err := fromAlias(c, jobMembers(c.Raw))
	if err != nil {
		return wire.CronCreateResult{}, err
	}
	if m["sessionTarget"] == nil {
		m["sessionTarget"] = strictjson.Encode(cron.Isolated)
	}
	put, err := h.backend.Add(ctx, m, c.Caller(), nil)
	if err != nil {
		return wire.CronCreateResult{}, err
	}
	job := aliasView(put.Job)
	job.Warnings = put.Job.Surprises()
	return wire.CronCreateResult{Job: job}, nil
}

func aliasView(j cron.Job) wire.Job {
	out := jobView(j, true)
	if j.Schedule.Kind == schedule.KindAt {
		out.Schedule.AtMs = new(j.Schedule.At.UnixMilli())
	}
	return out
}

// fromAlias converts GoClaw's members of a job to those of cron.add.
func fromAlias(c *rpc.Call, m cron.Members) (cron.Members, error) {
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
		return nil, c.BadParam("", "members of the job have the wrong type")
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

func aliasDelivery(deliver bool, channel, to string) wire.JobDelivery {
	if !deliver {
		return wire.JobDelivery{Mode: string(cron.DeliverNone)}
	}
	return wire.JobDelivery{Mode: string(cron.DeliverAnnounce), Channel: channel, To: to}
}

func (h handlers) drop(ctx context.Context, c *rpc.Call, p wire.CronDeleteParams) (wire.CronDeleteResult, error) {
	if err := h.backend.Remove(ctx, p.ID, false, c.Caller()); err != nil {
		return wire.CronDeleteResult{}, err
	}
	return wire.CronDeleteResult{Deleted: true}, nil
}

func (h handlers) toggle(ctx context.Context, c *rpc.Call, p wire.CronToggleParams) (wire.CronToggleResult, error) {
	patch := cron.Members{"enabled": json.RawMessage(strconv.FormatBool(p.Enabled))}
	if _, err := h.backend.Update(ctx, p.ID, patch, "", c.Caller()); err != nil {
		return wire.CronToggleResult{}, err
	}
	return wire.CronToggleResult{JobID: p.ID, Enabled: p.Enabled}, nil
}

// scheduler returns jobs in the format of GoClaw's in-process scheduler.
func (h handlers) scheduler(ctx context.Context, c *rpc.Call, _ wire.NoParams) (wire.SchedulerStatusResult, error) {
	jobs := []wire.SchedulerJob{}
	for more := true; more && len(jobs) < mostStatus; {
		f := cron.JobFilter{IncludeSystem: true, SortBy: "name", Limit: mostStatus - len(jobs), Offset: len(jobs), WithoutPayload: true}
		page, err := h.backend.Jobs(ctx, f, c.Caller())
		if err != nil {
			return wire.SchedulerStatusResult{}, err
		}
		for _, j := range page.Jobs {
			jobs = append(jobs, schedulerJob(j))
		}
		more = len(page.Jobs) > 0 && len(jobs) < page.Total
	}
	last, running := h.backend.Ticked()
	return wire.SchedulerStatusResult{
		TS: time.Now().UnixMilli(), NodeID: h.process().NodeID, Running: running, LastTickMs: rpc.Millis(last), Jobs: jobs,
	}, nil
}

func schedulerJob(j cron.Job) wire.SchedulerJob {
	st := j.State
	out := wire.SchedulerJob{
		JobName: j.Name, CronExpr: exprOf(j.Schedule), RunCount: st.RunCount, ErrorCount: st.ErrorCount, IsRunning: !st.RunningAt.IsZero(), IsPaused: !j.MayFire(),
	}
	if j.Schedule.Kind == schedule.KindCron {
		out.Timezone = j.Schedule.TZ
	}
	if !st.LastRunAt.IsZero() {
		out.LastRun, out.LastDurationMs = new(rpc.ISOTime(st.LastRunAt)), new(st.LastDuration.Milliseconds())
	}
	switch word := statusWord(st.LastState); word {
	case "":
	case "ok":
		out.LastResult = &word
	default:
		out.LastResult = new(word + ": " + st.LastError)
	}
	if j.MayFire() && !st.NextRunAt.IsZero() {
		out.NextRun = new(rpc.ISOTime(st.NextRunAt))
	}
	return out
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
