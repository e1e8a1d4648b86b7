package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"laneway/internal/wire"
	"laneway/internal/words"
)

type runsCmd struct {
	clientFlags
	ID      string `arg:"" optional:"" help:"Show only this run." complete:"runs"`
	State   string `help:"open (running and waiting), running, waiting or ended." enum:"open,running,waiting,ended" default:"open"`
	Session string `help:"Only runs of this session." placeholder:"KEY" complete:"sessions"`
	Lane    string `help:"Only runs of this lane." placeholder:"NAME"`
	Limit   int    `help:"How many, 1 to 200." default:"50"`
	JSON    bool   `help:"Print JSON."`
}

// Run lists runs, or shows one.
func (c *runsCmd) Run(ctx context.Context, env *environment) error {
	if c.ID != "" {
		return c.show(ctx, env)
	}
	if c.Limit < 1 || c.Limit > 200 {
		return usageError("--limit must be between 1 and 200")
	}
	conn := c.gateway(env)
	var out wire.RunsListResult
	err := conn.Call(ctx, "runs.list", wire.RunsListParams{State: c.State, SessionKey: c.Session, Lane: c.Lane, Limit: new(int64(c.Limit))}, &out)
	if err != nil {
		return err
	}
	if len(out.Runs) == 0 {
		if err := cmp.Or(c.checkLane(ctx, conn), checkSession(ctx, conn, c.Session)); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	if len(out.Runs) == 0 {
		words := "no runs"
		if c.State == "open" {
			words = "no open runs; those that have ended: laneway runs --state ended"
		}
		return env.printLine(words)
	}
	if err := env.table(runRows(env, out.Runs)); err != nil || out.NextCursor == "" {
		return err
	}
	return env.printLine("There are more; see --limit, --lane and --session.")
}

// checkLane returns an error for a lane that the gateway does not have. A lane that was removed may
// still have runs, so the check is made only when no run was found.
func (c *runsCmd) checkLane(ctx context.Context, conn gatewayConn) error {
	if c.Lane == "" {
		return nil
	}
	var status wire.LanesStatusResult
	if err := conn.Call(ctx, "lanes.status", struct{}{}, &status); err != nil {
		return err
	}
	var names []string
	for _, l := range status.Lanes {
		if l.Name == c.Lane {
			return nil
		}
		names = append(names, oneLine(l.Name))
	}
	return fmt.Errorf("there is no lane %s; the lanes are %s%s", oneLine(c.Lane), strings.Join(names, ", "), oneLine(words.Meant(c.Lane, names)))
}

// runRows returns a line for each run: how long it runs or waits, and why.
func runRows(env *environment, runs []wire.Run) [][]string {
	rows := [][]string{{"SESSION", "MESSAGE", "STATE", "LANE", "FOR", "WHY", "RUN"}}
	for i := range runs {
		r := &runs[i]
		rows = append(rows, []string{
			env.cell(r.SessionKey, 60), env.cell(r.Text, 40), cell(stateOfRun(r), 12), env.cell(r.Lane, 20), runTime(env.now(), r), env.cell(runReason(env.now(), r), 80), env.cell(r.ID, 80),
		})
	}
	return rows
}

// stateOfRun returns the outcome of a run that has ended, or its state.
func stateOfRun(r *wire.Run) string {
	return cmp.Or(r.Outcome, r.State)
}

// runTime returns how long a run has waited, has been running, or ran.
func runTime(now time.Time, r *wire.Run) string {
	from, to := r.AcceptedAt, now.UnixMilli()
	if r.StartedAt != 0 {
		from = r.StartedAt
	}
	if r.EndedAt != 0 {
		to = r.EndedAt
	}
	return short(time.Duration(to-from) * time.Millisecond)
}

// runReason returns what a run waits for, or why it ended.
func runReason(now time.Time, r *wire.Run) string {
	w := r.WaitingFor
	if w == nil {
		return cmp.Or(r.Error, r.Reason)
	}
	text := w.Text
	if w.UntilMs != 0 {
		text += ", " + short(time.UnixMilli(w.UntilMs).Sub(now)) + " left"
	}
	if w.BlockedBy != "" {
		text += ", after run " + w.BlockedBy
	}
	return text
}

// wholeRun returns the id of a run that a narrow terminal has shortened.
func wholeRun(ctx context.Context, conn gatewayConn, id string) (string, error) {
	return wholeID(id, func() (ids []string, err error) {
		for _, state := range []string{"open", "ended"} {
			var out wire.RunsListResult
			if err := conn.Call(ctx, "runs.list", wire.RunsListParams{State: state, Limit: new(int64(pageSize))}, &out); err != nil {
				return nil, err
			}
			for i := range out.Runs {
				ids = append(ids, out.Runs[i].ID)
			}
		}
		var ledger wire.CronRunsResult
		if err := conn.Call(ctx, "cron.runs", map[string]any{"includeActive": true, "limit": pageSize}, &ledger); err != nil {
			return nil, err
		}
		for _, r := range ledger.Entries {
			ids = append(ids, r.RunID)
		}
		return ids, nil
	})
}

// getRun reads a run by its id.
func (f clientFlags) getRun(ctx context.Context, env *environment, id, session string) (out wire.RunsGetResult, err error) {
	conn := f.gateway(env)
	if id, err = wholeRun(ctx, conn, id); err != nil {
		return out, err
	}
	return out, conn.Call(ctx, "runs.get", wire.RunsGetParams{ID: id, SessionKey: session}, &out)
}

func (c *runsCmd) show(ctx context.Context, env *environment) error {
	out, err := c.getRun(ctx, env, c.ID, "")
	if err != nil {
		return err
	}
	if out.Run == nil {
		return fmt.Errorf("there is no run %s; see laneway runs --state ended", oneLine(c.ID))
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	r := out.Run
	rows := [][]string{
		{"run", cell(r.ID, 200)},
		{"state", cell(stateOfRun(r), 20) + ", lane " + cell(r.Lane, 20) + ", " + runTime(env.now(), r)},
		{"session", cell(r.SessionKey, 512)},
		{"message", env.cell(r.Text, 200)},
		{"accepted", ago(env.now(), r.AcceptedAt)},
		{"began", ago(env.now(), r.StartedAt)},
	}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, cell(value, 300)})
		}
	}
	if r.WaitingFor != nil {
		add("waits for", runReason(env.now(), r))
	}
	add("gateway", r.NodeID)
	add("job", r.JobID)
	add("asked by run", r.ParentRunID)
	add("reason", r.Reason)
	add("error", r.Error)
	add("detail", r.Detail)
	if r.Usage != nil {
		add("tokens", fmt.Sprintf("%d in, %d out", r.Usage.InputTokens, r.Usage.OutputTokens))
	}
	add("model", r.Model)
	if r.Attempt > 1 {
		add("attempts", strconv.Itoa(r.Attempt))
	}
	if out.Job != nil {
		for _, a := range out.Job.Attempts {
			add("attempt "+strconv.Itoa(a.Attempt), strings.TrimSpace(a.Status+" on "+a.NodeID+" "+a.Error))
		}
	}
	for _, d := range out.Deliveries {
		add("sends", strings.TrimSpace(d.Kind+" to "+d.Channel+" "+d.To+": "+d.State+" "+d.Error))
	}
	for i := range out.Tasks {
		add("task", out.Tasks[i].ID+" "+stateOfRun(&out.Tasks[i]))
	}
	return env.table(rows)
}

type whyCmd struct {
	clientFlags
	ID      string `arg:"" help:"A run from laneway runs, or the id of a message." complete:"runs"`
	Session string `help:"The session, if the id is that of a chat network, such as 4711 in Telegram." placeholder:"KEY" complete:"sessions"`
	JSON    bool   `help:"Print JSON."`
}

// Run queries the gateway.
func (c *whyCmd) Run(ctx context.Context, env *environment) error {
	out, err := c.getRun(ctx, env, c.ID, c.Session)
	if err != nil {
		return err
	}
	if out.Run == nil || out.Answer == nil {
		return fmt.Errorf("there is no run or message %s; see laneway runs --state ended", oneLine(c.ID))
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	return env.print("%s  %s\n", cell(out.Answer.Why, 20), oneLine(out.Answer.Text))
}

type tasksCmd struct {
	List tasksList `cmd:"" help:"List tasks, newest first."`
	Show tasksShow `cmd:"" help:"Show one task."`
	Stop tasksStop `cmd:"" help:"Stop a task and its sub-tasks."`
}

type tasksList struct {
	clientFlags
	Session string `help:"Only tasks that began in this session." placeholder:"KEY" complete:"sessions"`
	All     bool   `help:"Include ended tasks."`
	Limit   int    `help:"How many, 1 to 200." default:"50"`
	JSON    bool   `help:"Print JSON."`
}

// Run lists tasks.
func (c *tasksList) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 200 {
		return usageError("--limit must be between 1 and 200")
	}
	conn := c.gateway(env)
	var out wire.TasksListResult
	if err := conn.Call(ctx, "tasks.list", wire.TasksListParams{SessionKey: c.Session, Open: !c.All, Limit: new(int64(c.Limit))}, &out); err != nil {
		return err
	}
	if len(out.Tasks) == 0 {
		if err := checkSession(ctx, conn, c.Session); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	rows := [][]string{{"TASK", "AGENT", "LANE", "STATE", "BEGAN", "ID"}}
	for _, t := range out.Tasks {
		rows = append(rows, []string{env.cell(t.Text, 60), env.cell(t.AgentID, 20), env.cell(t.Lane, 20), cell(stateOfTask(t), 12), ago(env.now(), t.StartedAt), env.cell(t.ID, 36)})
	}
	if err := env.table(rows); err != nil {
		return err
	}
	switch {
	case len(out.Tasks) == c.Limit:
		env.note("there may be more tasks (--limit)")
	case !c.All:
		var all wire.TasksListResult
		if err := conn.Call(ctx, "tasks.list", wire.TasksListParams{SessionKey: c.Session, Limit: new(int64(pageSize))}, &all); err != nil {
			return err
		}
		if n := len(all.Tasks) - len(out.Tasks); n > 0 {
			env.note(counted(n, len(all.Tasks) == pageSize) + " not listed, ended (--all)")
		}
	}
	return nil
}

// withTask makes a call about a task, whose id a narrow terminal may have shortened.
func (f clientFlags) withTask(ctx context.Context, env *environment, method, id string, out any) error {
	conn := f.gateway(env)
	id, err := wholeID(id, func() (ids []string, err error) {
		var all wire.TasksListResult
		err = conn.Call(ctx, "tasks.list", wire.TasksListParams{Limit: new(int64(pageSize))}, &all)
		for _, t := range all.Tasks {
			ids = append(ids, t.ID)
		}
		return ids, err
	})
	if err != nil {
		return err
	}
	return conn.Call(ctx, method, wire.TaskParams{ID: id}, out)
}

// stateOfTask returns the outcome of a task that has ended, or its state.
func stateOfTask(t wire.Task) string {
	return cmp.Or(t.Outcome, t.State)
}

type tasksShow struct {
	clientFlags
	ID   string `arg:"" help:"Task." complete:"tasks"`
	JSON bool   `help:"Print JSON."`
}

// Run shows a task.
func (c *tasksShow) Run(ctx context.Context, env *environment) error {
	var out wire.TasksGetResult
	if err := c.withTask(ctx, env, "tasks.get", c.ID, &out); err != nil {
		return err
	}
	if out.Task == nil {
		return missing("task", c.ID, "laneway tasks list --all", nil)
	}
	if c.JSON {
		return printJSON(env.stdout, out.Task)
	}
	t := out.Task
	return env.table([][]string{
		{"id", cell(t.ID, 128)},
		{"session", cell(t.SessionKey, 512)},
		{"state", cell(stateOfTask(*t), 20) + ", lane " + cell(t.Lane, 20)},
		{"asked by run", cell(t.ParentRunID, 128)},
		{"root", cell(t.RootRunID, 128)},
		{"began", ago(env.now(), t.StartedAt)},
		{"error", cell(t.Error, 200)},
		{"task", env.cell(t.Text, 200)},
	})
}

type tasksStop struct {
	clientFlags
	ID   string `arg:"" help:"Task." complete:"tasks"`
	JSON bool   `help:"Print JSON."`
}

// Run stops a task.
func (c *tasksStop) Run(ctx context.Context, env *environment) error {
	var out wire.TasksStopResult
	if err := c.withTask(ctx, env, "tasks.stop", c.ID, &out); err != nil {
		return err
	}
	if !out.Stopped {
		var known wire.TasksGetResult
		if err := c.withTask(ctx, env, "tasks.get", c.ID, &known); err != nil {
			return err
		}
		if known.Task == nil {
			return missing("task", c.ID, "laneway tasks list --all", nil)
		}
	}
	if c.JSON {
		return printJSON(env.stdout, out)
	}
	if !out.Stopped {
		return env.print("nothing to stop in task %s\n", oneLine(c.ID))
	}
	return env.print("stopped %s\n", cell(strings.Join(out.RunIDs, " "), 400))
}

type usageCmd struct {
	clientFlags
	Days int    `help:"How many days, including today, 1 to 100." default:"7"`
	By   string `help:"Group by day, principal, agent, model or job." enum:"day,principal,agent,model,job" default:"day"`
	JSON bool   `help:"Print JSON."`
}

// Run reads usage.status and usage.list over one connection.
func (c *usageCmd) Run(ctx context.Context, env *environment) error {
	if c.Days < 1 || c.Days > 100 {
		return usageError("--days must be 1 to 100")
	}
	conn := c.gateway(env)
	var status wire.UsageStatusResult
	if err := conn.Call(ctx, "usage.status", wire.UsageStatusParams{}, &status); err != nil {
		return err
	}
	last, err := time.Parse(time.DateOnly, status.Day)
	if err != nil {
		return fmt.Errorf("the gateway's day cannot be read; are both of the same version? %w", err)
	}
	params := wire.UsageListParams{From: last.AddDate(0, 0, 1-c.Days).Format(time.DateOnly), To: status.Day, By: c.By, Limit: 1000}
	var list wire.UsageListResult
	if err := conn.Call(ctx, "usage.list", params, &list); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, map[string]any{"status": status, "rows": list.Rows})
	}
	return c.print(env, status, list)
}

func (c *usageCmd) print(env *environment, status wire.UsageStatusResult, list wire.UsageListResult) error {
	if rows := budgetRows(status); len(rows) > 1 {
		if err := env.table(rows); err != nil {
			return err
		}
		if err := env.printLine(); err != nil {
			return err
		}
	}
	if len(list.Rows) == 0 {
		return env.printLine("Nothing was used.")
	}
	if err := env.table(usageRows(c.By, list)); err != nil {
		return err
	}
	if !list.HasMore {
		return nil
	}
	return env.printLine("\nThere are more lines; ask for fewer days.")
}

func budgetRows(s wire.UsageStatusResult) [][]string {
	rows := [][]string{{"BUDGET", "TOKENS", "OF", s.Currency, "OF", "LEVEL"}}
	number := func(n *int64, show func(int64) string) string {
		if n == nil {
			return "-"
		}
		return show(*n)
	}
	limit := func(n int64, show func(int64) string) string {
		if n == 0 {
			return "-"
		}
		return show(n)
	}
	for _, b := range s.Budgets {
		level := cmp.Or(b.Level, "-")
		rows = append(rows, []string{
			cell(b.Kind, 20), number(b.UsedTokens, decimal), limit(b.LimitTokens, decimal), number(b.UsedMicros, money), limit(b.LimitMicros, money), cell(level, 20),
		})
	}
	return rows
}

func usageRows(by string, list wire.UsageListResult) [][]string {
	head := []string{"DAY"}
	if by != "day" {
		head = append(head, map[string]string{"principal": "PRINCIPAL", "agent": "AGENT", "model": "MODEL", "job": "JOB"}[by])
	}
	rows := [][]string{append(head, "TURNS", "REQUESTS", "INPUT", "CACHED", "OUTPUT", list.Currency, "UNREPORTED")}
	for _, r := range list.Rows {
		line := []string{cell(r.Day, 10)}
		if by != "day" {
			line = append(line, cell(r.Name, 40))
		}
		rows = append(rows, append(line, decimal(r.Turns), decimal(r.Requests), decimal(r.InputTokens), decimal(r.CachedTokens), decimal(r.OutputTokens), money(r.CostMicros), unreported(r.UnreportedMs)))
	}
	return rows
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// unreported describes how long turns ran without a token count.
func unreported(ms int64) string {
	if ms < 1000 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// money formats an amount in millionths.
func money(micros int64) string { return strconv.FormatFloat(float64(micros)/1e6, 'f', 4, 64) }
