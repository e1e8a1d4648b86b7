package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"laneway/internal/client"
	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

type cronRuns struct {
	clientFlags

	Job    string `arg:"" optional:"" help:"Id, name or key of the job. Default: all jobs." complete:"jobs"`
	Limit  int    `help:"How many, 1 to 200." default:"50"`
	Offset int    `help:"How many to skip." default:"0"`
	Active bool   `help:"Include running and waiting runs."`
	JSON   bool   `help:"Print JSON."`
}

// Run shows the ledger, the newest entries first.
func (c *cronRuns) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	if c.Limit < 1 || c.Limit > pageSize || c.Offset < 0 {
		return usageError("--limit must be between 1 and 200, and --offset 0 or more")
	}
	params := map[string]any{"includeActive": c.Active, "extended": true}
	if c.Job != "" {
		id, err := findJobEver(ctx, conn, c.Job)
		if err != nil {
			return err
		}
		params["id"] = id
	}
	got, err := listing{method: "cron.runs", member: "entries", params: params, offset: c.Offset, limit: c.Limit}.read(ctx, conn)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, got.reply)
	}
	var entries []wire.LedgerEntry
	if err := got.into(&entries); err != nil {
		return fmt.Errorf("the entries cannot be read: %w", err)
	}
	rows := [][]string{{"JOB", "SCHEDULED", "OUTCOME", "TOOK", "WHAT", "ANSWER", "POLICY", "RUN"}}
	for _, r := range entries {
		rows = append(rows, []string{
			env.cell(r.JobName, 30), dated(env.now(), r.ScheduledForMs, r.Timezone), cell(r.Outcome, 12), short(ledgerDuration(r)),
			env.cell(whatOf(env.now(), r), 80), env.cell(answerOf(r), 80), cell(r.Policy, 40), env.cell(r.RunID, 80),
		})
	}
	if err := errors.Join(env.table(rows), got.more(env, "entries")); err != nil || c.Active {
		return err
	}
	return c.hidden(ctx, env, conn, params)
}

// hidden says how many runs the list left out because they have not ended.
func (*cronRuns) hidden(ctx context.Context, env *environment, conn gatewayConn, params map[string]any) error {
	params["status"], params["limit"] = "active", 1
	var reply wire.CronRunsResult
	if err := conn.Call(ctx, "cron.runs", params, &reply); err != nil || reply.Total == 0 {
		return err
	}
	what := count(reply.Total, "run")
	if reply.TotalIsLowerBound {
		what = "more than " + what
	}
	env.note(what + " not listed, running or waiting (--active)")
	return nil
}

// answerOf describes what became of the answer of a run.
func answerOf(r wire.LedgerEntry) string {
	switch {
	case r.DeliverySuppressionReason == "empty":
		return "not sent: it was empty"
	case r.DeliverySuppressionReason != "":
		return "not sent: it was " + r.DeliverySuppressionReason
	case r.DeliveryStatus == "not-requested":
		return "-"
	case r.DeliveryStatus == "unknown" && r.DeliveryError == "":
		return "waits, or it is not known whether it arrived"
	case r.DeliveryError != "":
		return strings.ReplaceAll(r.DeliveryStatus, "-", " ") + ": " + r.DeliveryError
	}
	return strings.ReplaceAll(r.DeliveryStatus, "-", " ")
}

// whatOf describes the slots of an entry: the error, the reason why they did not run, or the
// answer.
func whatOf(now time.Time, r wire.LedgerEntry) string {
	what := r.Summary
	switch {
	case r.Outcome == "missed" || r.Outcome == "skipped" || r.Outcome == "cancelled":
		what = reasonOf(r)
	case r.Error != "":
		what = r.Error
	case r.Reason != "":
		what = r.Reason
	}
	if r.SlotCount != nil && *r.SlotCount > 1 {
		what = fmt.Sprintf("%d slots until %s: %s", *r.SlotCount, dated(now, r.SlotUntilMs, r.Timezone), what)
	}
	return what
}

// reasonOf describes why slots did not run; an unknown reason is shown unchanged.
func reasonOf(r wire.LedgerEntry) string {
	words := map[string]string{
		"overlap":     "a run was active, and the job skips such slots",
		"budget":      "the runs of the day, or a budget of tokens or money, were used up",
		"paused":      "the job was paused",
		"buffer_full": "a slot waited already",
		"gap":         "the wall time did not exist, and the job skips such slots",
		"window":      "no gateway ran then, and the slots are older than the job's window",
		"policy":      "no gateway ran then, and the job skips missed slots",
		"no_agent":    "no gateway had its agent then",
		"max_catchup": "no gateway ran then, and the job repeats fewer slots",
		"stopped":     "it was stopped",
		"removed":     "the job was removed",
		"replaced":    "a later run replaced it",
	}
	if text, known := words[r.Reason]; known {
		return text
	}
	return cmp.Or(r.Reason, r.Error, r.Summary)
}

// ledgerDuration returns the duration of a run; 0 while it has not ended.
func ledgerDuration(r wire.LedgerEntry) time.Duration {
	if r.DurationMs == nil {
		return 0
	}
	return time.Duration(*r.DurationMs) * time.Millisecond
}

// findJobEver is findJob that also finds removed jobs in the ledger.
func findJobEver(ctx context.Context, conn gatewayConn, name string) (string, error) {
	id, err := findJob(ctx, conn, name)
	if err == nil {
		return id, nil
	}
	removed, rerr := removedJob(ctx, conn, name)
	if rerr == nil && removed == name && uuid.Validate(name) != nil {
		return "", err
	}
	return removed, rerr
}

// removedJob returns the id for the name of a job that exists only in the ledger; other words may
// be an id. It searches only the last 200 entries that contain the name.
func removedJob(ctx context.Context, conn gatewayConn, name string) (string, error) {
	params := map[string]any{"scope": "all", "query": name, "includeActive": true, "extended": true}
	got, err := listing{method: "cron.runs", member: "entries", params: params, limit: pageSize}.read(ctx, conn)
	if err != nil {
		return "", err
	}
	var entries []wire.LedgerEntry
	if err := got.into(&entries); err != nil {
		return "", fmt.Errorf("the entries cannot be read: %w", err)
	}
	var ids []string
	for _, r := range entries {
		if r.JobName == name && !slices.Contains(ids, r.JobID) {
			ids = append(ids, r.JobID)
		}
	}
	switch len(ids) {
	case 0:
		return name, nil
	case 1:
		return ids[0], nil
	}
	return "", fmt.Errorf("%d jobs were called %s; give the id: %s", len(ids), oneLine(name), oneLine(strings.Join(ids, ", ")))
}

type cronRun struct {
	jobArg

	Wait bool   `help:"Wait for the run; exit status 1 if it fails."`
	Mode string `help:"force, due or if-enabled." default:"force" enum:"force,due,if-enabled"`
}

// Run starts a run.
func (c *cronRun) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	id, err := findJob(ctx, conn, c.Job)
	if err != nil {
		return err
	}
	var reply wire.CronRunResult
	if err := conn.Call(ctx, "cron.run", map[string]any{"id": id, "mode": c.Mode}, &reply); err != nil {
		return err
	}
	if !reply.Enqueued {
		return fmt.Errorf("%s was not run: %s", oneLine(c.Job), oneLine(reply.Reason))
	}
	if !c.Wait {
		return env.printLine(cell(reply.RunID, 200))
	}
	r, err := waitForRun(ctx, conn, reply.RunID)
	if err != nil {
		return err
	}
	if r.Outcome != "ok" {
		return fmt.Errorf("the run ended as %s: %s", oneLine(r.Outcome), oneLine(r.Error))
	}
	return env.printLine(plain(r.Summary))
}

// waitEvery is the interval of reads of the ledger when no event of the end arrives.
const waitEvery = time.Second

// waitForRun waits until the ledger has the outcome of the run.
func waitForRun(ctx context.Context, conn gatewayConn, id string) (wire.LedgerEntry, error) {
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for {
		var reply wire.CronRunsResult
		if err := conn.Call(ctx, "cron.runs", map[string]any{"runId": id, "extended": true}, &reply); err != nil {
			return wire.LedgerEntry{}, err
		}
		if len(reply.Entries) > 0 {
			return reply.Entries[0], nil
		}
		select {
		case <-ctx.Done():
			return wire.LedgerEntry{}, context.Cause(ctx)
		case <-tick.C:
		case _, open := <-conn.Events():
			if !open {
				return wire.LedgerEntry{}, errors.New("the connection was lost; the run continues, see laneway cron runs")
			}
		}
	}
}

type cronCancel struct {
	clientFlags

	What   string `arg:"" help:"A run's id, or a job's id, name or key." complete:"jobs"`
	Reason string `help:"The reason." placeholder:"TEXT"`
	JSON   bool   `help:"Print JSON."`
}

// Run ends runs.
func (c *cronCancel) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	params := map[string]any{}
	id, noJob := findJob(ctx, conn, c.What)
	if noJob == nil {
		params["id"] = id
	} else {
		run, err := wholeRun(ctx, conn, c.What)
		if err != nil {
			return err
		}
		params["runId"] = run
	}
	if c.Reason != "" {
		params["reason"] = c.Reason
	}
	var reply wire.CronCancelResult
	if err := conn.Call(ctx, "cron.cancel", params, &reply); err != nil {
		if refused, ok := errors.AsType[*client.Error](err); ok && noJob != nil && refused.DetailCode == "CRON_RUN_NOT_FOUND" {
			return missingJob(ctx, conn, "job or run", c.What)
		}
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, reply)
	}
	runs := "runs end"
	if len(reply.Cancelled) == 1 {
		runs = "run ends"
	}
	return env.printLine(len(reply.Cancelled), runs)
}

type schedulerCmd struct {
	List   schedulerList   `cmd:"" help:"List jobs and built-in maintenance."`
	Status schedulerStatus `cmd:"" help:"Show one job."`
	Pause  cronPause       `cmd:"" help:"Pause a job."`
	Resume cronResume      `cmd:"" help:"Resume a paused job."`
	Run    cronRun         `cmd:"" help:"Run a job now."`
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return cell(*s, 40)
}

type schedulerList struct {
	clientFlags

	JSON bool `help:"Print JSON."`
}

// Run lists them.
func (c *schedulerList) Run(ctx context.Context, env *environment) error {
	return showScheduler(ctx, env, c.clientFlags, "", c.JSON)
}

type schedulerStatus struct {
	clientFlags

	Name string `arg:"" help:"Name of the job." complete:"jobs"`
	JSON bool   `help:"Print JSON."`
}

// Run shows one.
func (c *schedulerStatus) Run(ctx context.Context, env *environment) error {
	return showScheduler(ctx, env, c.clientFlags, c.Name, c.JSON)
}

func showScheduler(ctx context.Context, env *environment, f clientFlags, name string, asJSON bool) error {
	var reply wire.SchedulerStatusResult
	if err := f.call(ctx, env, "scheduler.status", map[string]any{}, &reply); err != nil {
		return err
	}
	jobs := []wire.SchedulerJob{}
	for _, j := range reply.Jobs {
		if name == "" || j.JobName == name {
			jobs = append(jobs, j)
		}
	}
	if name != "" && len(jobs) == 0 {
		var names []string
		for _, j := range reply.Jobs {
			names = append(names, j.JobName)
		}
		return missing("job", name, "laneway scheduler list", names)
	}
	if asJSON {
		return printJSON(env.stdout, map[string]any{"jobs": schedulerReports(jobs)})
	}
	rows := [][]string{{"NAME", "SCHEDULE", "NEXT", "LAST", "RESULT", "RUNS", "ERRORS", "STATE"}}
	for _, j := range jobs {
		state := "waits"
		if j.IsRunning {
			state = "runs"
		} else if j.IsPaused {
			state = "paused"
		}
		rows = append(rows, []string{
			env.cell(j.JobName, 40), env.cell(strings.TrimSpace(j.CronExpr+" "+j.Timezone), 60), orDash(j.NextRun), orDash(j.LastRun), orDash(j.LastResult),
			strconv.FormatInt(j.RunCount, 10), strconv.FormatInt(j.ErrorCount, 10), state,
		})
	}
	return env.table(rows)
}

type cronWhy struct {
	clientFlags

	Job  string   `arg:"" help:"Id, name or key of the job, even if it was removed." complete:"jobs"`
	When []string `arg:"" optional:"" help:"A time in the job's zone, such as 9:00, yesterday 9:00, monday 8:30 or 2027-03-02 09:00. Default: the newest past one."`
	JSON bool     `help:"Print JSON."`
}

// Run queries the gateway.
func (c *cronWhy) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	id, err := findJobEver(ctx, conn, c.Job)
	if err != nil {
		return err
	}
	var reply wire.CronExplainResult
	params := map[string]any{"id": id}
	if len(c.When) > 0 {
		params["at"] = strings.Join(c.When, " ")
	}
	if err := conn.Call(ctx, "cron.explain", params, &reply); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, reply)
	}
	if len(reply.Slots) != 1 {
		return errors.New("the gateway has not answered about one slot")
	}
	return printWhy(env, reply)
}

// printWhy prints the slot with its explanation, then what to do.
func printWhy(env *environment, reply wire.CronExplainResult) error {
	slot := reply.Slots[0]
	zone, err := schedule.LoadZone(reply.Timezone)
	if err != nil {
		zone = time.UTC
	}
	at := time.UnixMilli(slot.SlotMs).In(zone).Format("Mon 2 Jan 2006 15:04:05 -07:00")
	lines := []string{fmt.Sprintf("%s  %s", at, oneLine(slot.Why)), oneLine(slot.Text)}
	if slot.Cure != "" {
		lines = append(lines, "What to do: "+oneLine(slot.Cure))
	}
	for i, change := range slot.Changes {
		if i == 3 {
			lines = append(lines, fmt.Sprintf("and %d more", len(slot.Changes)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("Changed since: %s by %s at %s", oneLine(change.Verb), oneLine(change.Who), time.UnixMilli(change.TS).In(zone).Format("Mon 2 Jan 15:04:05")))
	}
	return env.printLine(strings.Join(lines, "\n"))
}

// schedulerReport is the JSON form of a job in scheduler list, with the names of the other commands
// instead of those of the method.
type schedulerReport struct {
	Name           string  `json:"name"`
	Schedule       string  `json:"schedule"`
	Timezone       string  `json:"timezone,omitempty"`
	NextRun        *string `json:"nextRun"`
	LastRun        *string `json:"lastRun"`
	LastResult     *string `json:"lastResult"`
	LastDurationMs *int64  `json:"lastDurationMs"`
	RunCount       int64   `json:"runCount"`
	ErrorCount     int64   `json:"errorCount"`
	Running        bool    `json:"running"`
	Paused         bool    `json:"paused"`
}

func schedulerReports(jobs []wire.SchedulerJob) []schedulerReport {
	reports := make([]schedulerReport, len(jobs))
	for i, j := range jobs {
		reports[i] = schedulerReport{
			Name: j.JobName, Schedule: j.CronExpr, Timezone: j.Timezone, NextRun: j.NextRun, LastRun: j.LastRun, LastResult: j.LastResult,
			LastDurationMs: j.LastDurationMs, RunCount: j.RunCount, ErrorCount: j.ErrorCount, Running: j.IsRunning, Paused: j.IsPaused,
		}
	}
	return reports
}
