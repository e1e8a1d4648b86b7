package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"laneway/internal/wire"
)

type cronGet struct{ jobArg }

// Help is the example of the command.
func (*cronGet) Help() string {
	return "Examples:\n\n    laneway cron get digest\n    laneway cron get digest --json | jq .schedule"
}

// Run shows the job.
func (c *cronGet) Run(ctx context.Context, env *environment) error {
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
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
	if err := table(env.stdout, jobPage(env.now(), job)); err != nil {
		return err
	}
	for _, text := range []*string{job.Payload.Message, job.Payload.Text, job.Payload.Script} {
		if text != nil {
			_, err = fmt.Fprintln(env.stdout, "\n"+strings.TrimSpace(plain(*text)))
			return err
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
	add("state", stateOf(j))
	if j.Paused != nil {
		add("paused", j.Paused.Note)
	}
	add("fires", nextOf(j))
	add("from", momentAt(j.StartsAtMs))
	add("until", momentAt(j.EndsAtMs))
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
	return rows
}

// momentAt formats a time in Unix milliseconds; "" for 0.
func momentAt(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
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
