package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

type cronCmd struct {
	List     cronList     `cmd:"" help:"List jobs, next one first."`
	Add      cronAdd      `cmd:"" help:"Create a job; for an existing name, add --replace or --new."`
	Get      cronGet      `cmd:"" help:"Show one job."`
	Edit     cronEdit     `cmd:"" help:"Change a job, with the flags of add or a JSON patch."`
	Rm       cronRm       `cmd:"" help:"Remove a job, and keep its history."`
	Pause    cronPause    `cmd:"" help:"Pause a job."`
	Resume   cronResume   `cmd:"" help:"Resume a paused job."`
	Run      cronRun      `cmd:"" help:"Run a job now."`
	Cancel   cronCancel   `cmd:"" help:"Cancel the active runs of a job, or one run."`
	Runs     cronRuns     `cmd:"" help:"List the runs of jobs, with their outcomes."`
	Why      cronWhy      `cmd:"" help:"Explain why a job ran or did not run at a time."`
	Next     cronNext     `cmd:"" help:"Preview a schedule; needs no gateway."`
	Backfill cronBackfill `cmd:"" help:"Run the scheduled times of a past period."`
	Import   cronImport   `cmd:"" help:"Create or update jobs from a file of laneway cron export."`
	Export   cronExport   `cmd:"" help:"Print all jobs as YAML, for laneway cron import."`
}

// scheduleOf describes when a job fires, for a person.
func scheduleOf(j wire.Job) string {
	s := schedule.Spec{Kind: schedule.Kind(j.Schedule.Kind), EveryMs: j.Schedule.EveryMs, Expr: j.Schedule.Expr, TZ: j.Schedule.TZ, At: instant(j.Schedule.At)}
	return s.Words(s.TZ)
}

// stateOf returns one word for the state of a job.
func stateOf(j wire.Job) string {
	switch {
	case j.Invalid != "":
		return "invalid"
	case j.Paused != nil:
		return "paused"
	case !j.Enabled:
		return "disabled"
	case j.DeliveryPaused != nil:
		return "enabled, not sent: " + cell(j.DeliveryPaused.Reason, 20)
	}
	return "enabled"
}

type cronList struct {
	clientFlags

	All    bool   `help:"Include disabled and paused jobs."`
	System bool   `help:"Include built-in jobs."`
	Query  string `help:"Only jobs that contain this text." placeholder:"TEXT"`
	Only   string `help:"Only jobs in this state, including disabled ones: failing, paused, running, late, invalid or unsent." enum:",failing,paused,running,late,invalid,unsent" default:"" placeholder:"STATE"`
	Agent  string `help:"Only jobs of this agent." placeholder:"ID" complete:"agents"`
	Target string `help:"Only jobs whose answers go to this channel or chat." placeholder:"NAME"`
	Sort   string `help:"Sort by next, name, last (latest run first) or failing (most failures in a row first)." enum:",next,name,last,failing" default:"" placeholder:"ORDER"`
	Limit  int    `help:"How many; 0 = all." default:"0"`
	Offset int    `help:"How many to skip." default:"0"`
	JSON   bool   `help:"Print JSON."`
}

// params returns the parameters of cron.list.
func (c *cronList) params() map[string]any {
	order := map[string]string{"next": "nextRunAtMs", "name": "name", "last": "lastRunAtMs", "failing": "failing"}[c.Sort]
	params := map[string]any{"includeDisabled": c.All, "includeSystem": c.System, "extended": true}
	if c.Sort == "last" || c.Sort == "failing" {
		params["sortDir"] = "desc"
	}
	for name, value := range map[string]string{"sortBy": order, "query": c.Query, "condition": c.Only, "agentId": c.Agent, "target": c.Target} {
		if value != "" {
			params[name] = value
		}
	}
	return params
}

// Run lists jobs.
func (c *cronList) Run(ctx context.Context, env *environment) error {
	if c.Limit < 0 || c.Offset < 0 {
		return usageError("--limit and --offset must be 0 or more")
	}
	conn := c.gateway(env)
	got, err := listing{method: "cron.list", member: "jobs", params: c.params(), offset: c.Offset, limit: c.Limit}.read(ctx, conn)
	if err != nil {
		return err
	}
	if len(got.members) == 0 {
		if err := checkAgent(ctx, conn, c.Agent); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, got.reply)
	}
	var jobs []wire.Job
	if err := got.into(&jobs); err != nil {
		return fmt.Errorf("the list of jobs cannot be read: %w", err)
	}
	rows := [][]string{{"NAME", "SCHEDULE", "STATE", "NEXT", "LAST", "TARGET", "OWNER", "ID"}}
	for _, j := range jobs {
		next := "-"
		if j.NextRunAtMs > 0 {
			next = "in " + short(time.UnixMilli(j.NextRunAtMs).Sub(env.now()))
		}
		rows = append(rows, []string{
			env.cell(j.Name, 40), env.cell(scheduleOf(j), 60), stateOf(j), next, cell(j.LastRunStatus, 10),
			env.cell(targetOf(j.Delivery), 40), env.cell(ownerOfJob(j), 30), env.cell(j.ID, 36),
		})
	}
	if err := errors.Join(env.table(rows), got.more(env, "jobs")); err != nil {
		return err
	}
	return c.hidden(ctx, env, conn)
}

// hidden says how many jobs the list left out, and how to see them.
func (c *cronList) hidden(ctx context.Context, env *environment, conn gatewayConn) error {
	total := func(member string, value any) (reply wire.CronListResult, err error) {
		params := c.params()
		params["limit"], params[member] = 1, value
		err = conn.Call(ctx, "cron.list", params, &reply)
		return reply, err
	}
	var left []string
	if !c.All && c.Only == "" { // a state includes disabled ones
		off, err := total("enabled", "disabled")
		if err != nil {
			return err
		}
		if off.Total > 0 {
			left = append(left, counted(off.Total, off.TotalIsLowerBound)+" disabled or paused (--all)")
		}
	}
	if !c.System {
		shown, err := total("includeSystem", false)
		if err != nil {
			return err
		}
		every, err := total("includeSystem", true)
		if err != nil {
			return err
		}
		switch n := every.Total - shown.Total; {
		case every.TotalIsLowerBound:
			left = append(left, "those built in (--system)")
		case n > 0:
			left = append(left, strconv.Itoa(n)+" built-in (--system)")
		}
	}
	if len(left) > 0 {
		env.note("jobs that are not listed: " + strings.Join(left, ", "))
	}
	return nil
}

// jobArg names a job, by its id or by a name or key that only one job has.
type jobArg struct {
	clientFlags

	Job  string `arg:"" help:"Id, name or key of the job." complete:"jobs"`
	JSON bool   `help:"Print JSON."`
}

// findJob returns the id of the job that a person named.
func findJob(ctx context.Context, conn gatewayConn, name string) (string, error) {
	j, err := lookUpJob(ctx, conn, name)
	return j.ID, err
}

// lookUpJob returns the job that a person named.
func lookUpJob(ctx context.Context, conn gatewayConn, name string) (wire.Job, error) {
	var found []wire.Job
	var ids []string
	begin, end, short := strings.Cut(name, "…") // an id from a narrow terminal
	for more, offset := true, 0; more; {
		var reply wire.CronListResult
		params := map[string]any{"query": begin, "includeDisabled": true, "includeSystem": true, "extended": true, "limit": 200, "offset": offset}
		if err := conn.Call(ctx, "cron.list", params, &reply); err != nil {
			return wire.Job{}, err
		}
		for _, j := range reply.Jobs {
			if j.ID == name {
				return j, nil
			}
			if j.Name == name || j.Key == name || short && strings.HasPrefix(j.ID, begin) && strings.HasSuffix(j.ID, end) {
				found, ids = append(found, j), append(ids, j.ID)
			}
		}
		if more = reply.NextOffset != nil; more { // a page is limited in bytes, too
			offset = *reply.NextOffset
		}
	}
	switch len(ids) {
	case 1:
		return found[0], nil
	case 0:
		return wire.Job{}, missingJob(ctx, conn, "job", name)
	}
	return wire.Job{}, fmt.Errorf("%d jobs are called %s; give the id: %s", len(ids), oneLine(name), strings.Join(ids, ", "))
}

// missingJob is the error for a job that no one has.
func missingJob(ctx context.Context, conn gatewayConn, what, name string) error {
	var names []string
	params := map[string]any{"includeDisabled": true, "includeSystem": true}
	if got, err := (listing{method: "cron.list", member: "jobs", params: params, limit: 1000}).read(ctx, conn); err == nil {
		var jobs []wire.Job
		if err := got.into(&jobs); err == nil {
			for _, j := range jobs {
				names = append(names, j.Name)
			}
		}
	}
	return missing(what, name, "laneway cron list --all", names)
}

// onJob makes one call about the job and prints a line, or JSON. done describes the job that the
// call returns.
func (a jobArg) onJob(ctx context.Context, env *environment, method string, done func(wire.Job) string, params map[string]any) error {
	conn := a.gateway(env)
	id, err := findJob(ctx, conn, a.Job)
	if err != nil {
		return err
	}
	if params == nil {
		params = map[string]any{}
	}
	params["id"] = id
	var raw json.RawMessage
	if err := conn.Call(ctx, method, params, &raw); err != nil {
		return inFlags(err)
	}
	if a.JSON {
		return printJSON(env.stdout, raw)
	}
	var job wire.Job
	if err := json.Unmarshal(raw, &job); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	return env.print("%s %s\n", oneLine(a.Job), done(job))
}

type cronRm struct {
	jobArg

	Cancel bool `help:"Also cancel its active runs."`
}

// Run removes the job.
func (c *cronRm) Run(ctx context.Context, env *environment) error {
	return c.onJob(ctx, env, "cron.remove", func(wire.Job) string { return "removed" }, map[string]any{"cancelRunning": c.Cancel})
}

type cronPause struct {
	jobArg

	Note string        `help:"The reason." default:"paused on the command line"`
	For  time.Duration `help:"Resume automatically after this time." placeholder:"DURATION"`
}

// Run pauses the job.
func (c *cronPause) Run(ctx context.Context, env *environment) error {
	params := map[string]any{"note": c.Note}
	if c.For < 0 {
		return usageError("--for must be longer than 0")
	}
	if c.For > 0 { // the database's clock decides when it has passed
		params["untilMs"] = "in " + c.For.String()
	}
	return c.onJob(ctx, env, "cron.pause", func(j wire.Job) string {
		if j.Paused == nil || j.Paused.UntilMs == nil {
			return "paused; it fires again after laneway cron resume " + chat.ShellWord(c.Job)
		}
		return "paused until " + dated(env.now(), *j.Paused.UntilMs, j.Schedule.TZ)
	}, params)
}

type cronResume struct{ jobArg }

// Run ends the pause.
func (c *cronResume) Run(ctx context.Context, env *environment) error {
	return c.onJob(ctx, env, "cron.resume", func(j wire.Job) string { return "resumed, " + nextOf(j) }, nil)
}

type cronBackfill struct {
	jobArg

	From  string `help:"Start of the period in the job's zone, such as 'yesterday 9:00', '3h ago' or 2027-03-01T00:00." required:"" placeholder:"TIME"`
	To    string `help:"End of the period, such as now." required:"" placeholder:"TIME"`
	Max   int    `help:"At most this many runs, 1 to 1000." default:"100"`
	Dry   bool   `help:"Only print what would run." name:"dry-run"`
	Force bool   `help:"Also repeat successful runs."`
}

// Run fills in runs and prints what is done about each fire.
func (c *cronBackfill) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	job, err := lookUpJob(ctx, conn, c.Job)
	if err != nil {
		return err
	}
	var done wire.CronBackfillResult
	params := map[string]any{"id": job.ID, "fromMs": c.From, "toMs": c.To, "maxRuns": c.Max, "dryRun": c.Dry, "force": c.Force}
	if err := conn.Call(ctx, "cron.backfill", params, &done); err != nil {
		return inFlags(err)
	}
	if c.JSON {
		return printJSON(env.stdout, done)
	}
	return c.print(env, job, done)
}

// print lists the slots with what happens to each.
func (c *cronBackfill) print(env *environment, job wire.Job, done wire.CronBackfillResult) error {
	does := map[string]string{"enqueue": "runs", "exists": "has a run"}
	if c.Dry {
		does["enqueue"] = "would run"
	}
	rows := [][]string{{"SLOT", "WHAT", "RUN"}}
	for _, f := range done.Fires {
		rows = append(rows, []string{dated(env.now(), f.ScheduledForMs, job.Schedule.TZ), cmp.Or(does[f.Action], f.Action), env.cell(f.RunID, 80)})
	}
	if err := env.table(rows); err != nil {
		return err
	}
	if c.Dry {
		env.note(count(len(done.Fires), "slot") + "; nothing was started")
		return nil
	}
	env.note(fmt.Sprintf("%s started, %s had a run already", count(done.Enqueued, "run"), count(done.Existing, "slot")))
	return nil
}

type cronGet struct{ jobArg }

// Run shows the job.
func (c *cronGet) Run(ctx context.Context, env *environment) error {
	conn := c.gateway(env)
	id, err := findJob(ctx, conn, c.Job)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := conn.Call(ctx, "cron.get", map[string]any{"id": id, "extended": true}, &raw); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var job wire.Job
	if err := json.Unmarshal(raw, &job); err != nil {
		return fmt.Errorf("the job cannot be read: %w", err)
	}
	if err := env.table(jobPage(env.now(), job)); err != nil {
		return err
	}
	for _, text := range []*string{job.Payload.Message, job.Payload.Text, job.Payload.Script} {
		if text != nil {
			return env.printLine("\n" + strings.TrimSpace(plain(*text)))
		}
	}
	return nil
}

// jobPage formats a job for a person, without its message.
func jobPage(now time.Time, j wire.Job) [][]string {
	rows := [][]string{{"job", oneLine(j.Name)}, {"id", oneLine(j.ID)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, oneLine(value)})
		}
	}
	add("description", j.Description)
	add("schedule", scheduleOf(j))
	add("expression", strings.TrimSpace(j.Schedule.Expr+" "+j.Schedule.TZ))
	add("state", stateOf(j))
	if j.Paused != nil {
		add("paused", j.Paused.Note)
	}
	add("fires", nextOf(j))
	for _, b := range []struct {
		name string
		ms   int64
	}{{"from", j.StartsAtMs}, {"until", j.EndsAtMs}} {
		if b.ms != 0 {
			add(b.name, localTime(b.ms, j.Schedule.TZ))
		}
	}
	if j.MaxRuns > 0 {
		add("runs at most", strconv.Itoa(j.MaxRuns))
	}
	if j.LastRunAtMs > 0 {
		add("last run", fmt.Sprintf("%s, %s", j.LastRunStatus, ago(now, j.LastRunAtMs)))
	}
	add("session", j.SessionTarget)
	add("agent", j.AgentID)
	add("answers to", targetOf(j.Delivery))
	add("owner", ownerOfJob(j))
	add("key", j.Key)
	add("warning", strings.Join(j.Warnings, "; "))
	return rows
}

// targetOf returns where the answers of a job go; - = only into the history of its runs.
func targetOf(d wire.JobDelivery) string {
	switch {
	case d.Mode == "webhook":
		return d.To
	case d.Mode != "announce":
		return "-"
	case d.Channel == "" || d.Channel == "last":
		return "last"
	}
	parts := slices.DeleteFunc([]string{d.Channel, d.To, d.ThreadID}, func(part string) bool { return part == "" })
	return strings.Join(parts, ":")
}

// ownerOfJob returns the credential that made a job; - when the answer does not have it.
func ownerOfJob(j wire.Job) string {
	if j.Principal == nil {
		return "-"
	}
	return *j.Principal
}

type cronNext struct {
	scheduleFlags

	Count int  `help:"How many, 1 to 100." short:"n" default:"5"`
	JSON  bool `help:"Print JSON."`
}

// Run computes the fires with the same function as the gateway.
func (c *cronNext) Run(_ context.Context, env *environment) error {
	if c.Count < 1 || c.Count > cron.MaxPreview {
		return usageError("-n must be between 1 and " + strconv.Itoa(cron.MaxPreview))
	}
	given, err := c.schedule()
	if err != nil {
		return err
	}
	if given == nil {
		return usageError("say when: --at, --every or --cron")
	}
	values := map[string]any{"schedule": given, "dst": c.dst()}
	c.bounds(values)
	m := cron.Members{}
	for name, value := range values {
		if m[name], err = json.Marshal(value); err != nil {
			return err
		}
	}
	planned, err := cron.Border{Now: env.now()}.Planned(cron.Job{}, m)
	if err != nil {
		return usageError(inFlags(err).Error())
	}
	compiled, err := schedule.Check(planned.Schedule, env.now(), schedule.Rules{})
	if err != nil {
		return usageError(inFlags(err).Error())
	}
	p := planned.Timetable(compiled).Preview(env.now(), c.Count)
	if c.JSON {
		return printJSON(env.stdout, p)
	}
	rows := [][]string{{"LOCAL (" + p.Timezone + ")", "UTC", ""}}
	for _, f := range p.Fires {
		rows = append(rows, []string{f.Local, f.ISO, string(f.DST)})
	}
	for _, w := range p.Warnings {
		env.note(w)
	}
	if err := env.table(rows); err != nil {
		return err
	}
	for _, change := range p.Affected {
		if err := env.printLine("clock change: " + change.Text); err != nil {
			return err
		}
	}
	return nil
}
