package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

type cronWhy struct {
	clientFlags

	Job  string   `arg:"" help:"Id, name or key of the job; also one that was removed." complete:"jobs"`
	When []string `arg:"" optional:"" help:"The slot, in the time zone of the job, such as 9:00, yesterday 9:00, monday 8:30 or 2027-03-02 09:00. Default: the newest one that has passed."`
	JSON bool     `help:"Print JSON."`
}

// Help is the example of the command.
func (*cronWhy) Help() string {
	return "Example:\n\n    laneway cron why digest 9:00\n    laneway cron why digest yesterday 9:00"
}

// Run queries the gateway.
func (c *cronWhy) Run(ctx context.Context, env *environment) error {
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
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
	_, err = fmt.Fprintln(env.stdout, strings.Join(lines, "\n"))
	return err
}
