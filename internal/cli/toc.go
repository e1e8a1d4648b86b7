package cli

import (
	"context"
	"fmt"

	"laneway/internal/wire"
)

type tocCmd struct {
	clientFlags
	Level   string `arg:"" optional:"" help:"day, week or month." enum:"day,week,month" default:"day"`
	Session string `help:"Only this session; with day." placeholder:"KEY"`
	From    string `help:"The first period, such as 2026-03-14, 2026-W11 or 2026-03." placeholder:"PERIOD"`
	To      string `help:"The last period." placeholder:"PERIOD"`
	Limit   int    `help:"How many, 1 to 100." default:"20"`
	Offset  int    `help:"How many of the newest to skip."`
	JSON    bool   `help:"Print JSON."`
}

// Help is the example of the command.
func (*tocCmd) Help() string {
	return "Summaries are made where the setting history.summary_agent names an agent.\n\nExample:\n\n    laneway toc week --from 2026-W10"
}

// Run lists summaries.
func (c *tocCmd) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 100 || c.Offset < 0 {
		return usageError("--limit must be between 1 and 100, and --offset must not be negative")
	}
	params := wire.TocListParams{Level: c.Level, Key: c.Session, From: c.From, To: c.To, Limit: new(int64(c.Limit)), Offset: int64(c.Offset)}
	var found wire.TocListResult
	if err := c.call(ctx, env, "toc.list", params, &found); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, found)
	}
	return c.print(env, found)
}

func (*tocCmd) print(env *environment, found wire.TocListResult) error {
	for _, n := range found.Nodes {
		where, stale := n.SessionKey, ""
		if where == "" {
			where = n.Principal
		}
		if n.Stale {
			stale = "  (messages came since)"
		}
		if _, err := fmt.Fprintf(env.stdout, "%s  %s%s\n    %s\n", n.Period, cell(where, 512), stale, oneLine(n.Text)); err != nil {
			return err
		}
	}
	switch {
	case found.NextOffset != nil:
		_, err := fmt.Fprintf(env.stdout, "there may be others; continue with --offset %d\n", *found.NextOffset)
		return err
	case len(found.Nodes) == 0:
		_, err := fmt.Fprintln(env.stdout, "there are no summaries")
		return err
	}
	return nil
}
