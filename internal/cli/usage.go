package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"laneway/internal/wire"
)

type usageCmd struct {
	clientFlags
	Days int    `help:"How many days, today included, 1 to 100." default:"7"`
	By   string `help:"What a line is for besides its day: day, principal, agent, model or job." enum:"day,principal,agent,model,job" default:"day"`
	JSON bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*usageCmd) Help() string {
	return "Examples:\n\n    laneway usage\n    laneway usage --by agent --days 30\n    laneway usage --by job --json | jq .rows"
}

// Run reads usage.status and usage.list over one connection.
func (c *usageCmd) Run(ctx context.Context, env *environment) error {
	if c.Days < 1 || c.Days > 100 {
		return usageError("--days must be 1 to 100")
	}
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
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
		if err := table(env.stdout, rows); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(env.stdout); err != nil {
			return err
		}
	}
	if len(list.Rows) == 0 {
		_, err := fmt.Fprintln(env.stdout, "Nothing was used.")
		return err
	}
	if err := table(env.stdout, usageRows(c.By, list)); err != nil {
		return err
	}
	if !list.HasMore {
		return nil
	}
	_, err := fmt.Fprintln(env.stdout, "\nThere are more lines; ask for fewer days.")
	return err
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
		level := b.Level
		if level == "" {
			level = "-"
		}
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
