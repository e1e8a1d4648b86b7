package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"laneway/internal/wire"
)

type sessionsSearch struct {
	clientFlags
	Query   []string      `arg:"" help:"The words; a message must contain each of them."`
	Session string        `help:"Only this session." placeholder:"KEY"`
	Agent   string        `help:"Only sessions of this agent." placeholder:"ID"`
	Since   time.Duration `help:"Only messages of this last period, such as 720h." placeholder:"DURATION"`
	Until   string        `help:"Only messages up to this time, to go further back." placeholder:"TIME"`
	Limit   int           `help:"How many, 1 to 100." default:"20"`
	JSON    bool          `help:"Print JSON."`
}

// Help is the example of the command.
func (*sessionsSearch) Help() string {
	return "Case and accents do not count, and a word finds longer words that begin with it.\n\nExample:\n\n    laneway sessions search invoice 4711"
}

// Run searches the transcripts.
func (c *sessionsSearch) Run(ctx context.Context, env *environment) error {
	if c.Limit < 1 || c.Limit > 100 || c.Since < 0 {
		return usageError("--limit must be between 1 and 100, and --since must not be negative")
	}
	params := wire.SessionsSearchParams{Query: strings.Join(c.Query, " "), Key: c.Session, AgentID: c.Agent, Limit: new(int64(c.Limit))}
	if c.Since > 0 {
		params.SinceMs = new(env.now().Add(-c.Since).UnixMilli())
	}
	if c.Until != "" {
		until, err := time.Parse(time.RFC3339Nano, c.Until)
		if err != nil {
			return usageError("--until is a time like 2026-03-14T15:00:00Z")
		}
		params.UntilMs = new(until.UnixMilli())
	}
	var found wire.SessionsSearchResult
	if err := c.call(ctx, env, "sessions.search", params, &found); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(env.stdout, found)
	}
	return c.print(env, found)
}

func (*sessionsSearch) print(env *environment, found wire.SessionsSearchResult) error {
	for _, h := range found.Hits {
		at := time.UnixMilli(h.Timestamp).Local().Format("2006-01-02 15:04:05")
		if _, err := fmt.Fprintf(env.stdout, "%s  %s  %s\n    %s\n", at, cell(h.SessionKey, 512), cell(h.Role, 12), oneLine(h.Excerpt)); err != nil {
			return err
		}
	}
	switch {
	case found.NextUntilMs != nil:
		back := time.UnixMilli(*found.NextUntilMs).UTC().Format(time.RFC3339Nano)
		_, err := fmt.Fprintf(env.stdout, "there may be older ones; continue with --until %s\n", back)
		return err
	case len(found.Hits) == 0:
		_, err := fmt.Fprintln(env.stdout, "no message has these words")
		return err
	}
	return nil
}
