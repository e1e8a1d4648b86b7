package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"laneway/internal/cron"
)

type cronEdit struct {
	jobArg
	jobFlags

	Patch string `arg:"" optional:"" help:"Members to change, in JSON; for programs."`
	Yes   bool   `help:"Do not ask before it is saved."`
}

// Help is the example of the command.
func (*cronEdit) Help() string {
	return `The flags are those of laneway cron add. What changes and the next fires are shown before the job is saved; on a terminal with a question.

Examples:

    laneway cron edit digest --cron "30 9 * * 1-5"
    laneway cron edit digest --message "Write a short digest" --overlap buffer_one
    laneway cron edit digest '{"overlap":"buffer_one"}'`
}

// editPreview is how many fires are shown before a job is saved.
const editPreview = 3

// Run changes the job.
func (c *cronEdit) Run(ctx context.Context, env *environment) error {
	members, err := c.patch()
	if err != nil {
		return err
	}
	if c.Patch != "" {
		return c.onJob(ctx, env, "cron.update", "changed", map[string]any{"patch": members})
	}
	conn, err := c.connect(ctx, env)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	id, err := findJob(ctx, conn, c.Job)
	if err != nil {
		return err
	}
	return c.edit(ctx, env, conn, id, members)
}

// patch returns the members to change: the JSON, or those that the flags set.
func (c *cronEdit) patch() (map[string]any, error) {
	tz := c.TZ
	if c.At == "" && c.Every == nil && c.Cron == "" {
		c.TZ = "" // of the job's current schedule
	}
	members, err := c.members()
	c.TZ = tz
	if err != nil {
		return nil, err
	}
	if tz != "" && members["schedule"] == nil {
		members["schedule"] = map[string]any{"tz": tz}
	}
	switch {
	case c.Patch == "" && len(members) == 0:
		return nil, usageError("say what to change, by a flag such as --message or by a JSON patch; see laneway cron edit --help")
	case c.Patch == "":
		return members, nil
	case len(members) > 0:
		return nil, usageError("give flags or a JSON patch, not both")
	}
	if err := json.Unmarshal([]byte(c.Patch), &members); err != nil {
		return nil, usageError("the patch is not a JSON object")
	}
	return members, nil
}

// edit shows the changes, asks on a terminal, and saves the job if it has not changed since.
func (c *cronEdit) edit(ctx context.Context, env *environment, conn gatewayConn, id string, members map[string]any) error {
	var old map[string]any
	if err := conn.Call(ctx, "cron.get", map[string]any{"id": id, "extended": true}, &old); err != nil {
		return err
	}
	fillSchedule(old, members)
	lines := differences(old, members)
	if len(lines) == 0 {
		_, err := fmt.Fprintf(env.stdout, "%s is as you want it already\n", oneLine(c.Job))
		return err
	}
	fires, err := c.fires(ctx, conn, id, members)
	if err != nil {
		return inFlags(err)
	}
	show := env.stdout
	if c.JSON {
		show = env.stderr
	}
	if _, err := fmt.Fprintln(show, strings.Join(append(lines, fires...), "\n")); err != nil {
		return err
	}
	if env.terminal != nil && !c.Yes {
		agreed, err := env.confirm("Save " + c.Job + "?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was changed")
		}
	}
	var raw json.RawMessage
	params := map[string]any{"id": id, "patch": members, "expectedConfigRevision": old["configRevision"], "extended": true}
	if err := conn.Call(ctx, "cron.update", params, &raw); err != nil {
		return inFlags(err)
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	_, err = fmt.Fprintf(env.stdout, "%s changed\n", oneLine(c.Job))
	return err
}

// fillSchedule completes a schedule with only a zone from the job's own, and adds the zone to one of the same kind.
func fillSchedule(old, members map[string]any) {
	s, given := members["schedule"].(map[string]any)
	was, has := old["schedule"].(map[string]any)
	if !given || !has {
		return
	}
	if s["kind"] != nil {
		if s["kind"] == was["kind"] && s["tz"] == nil && was["tz"] != nil {
			s["tz"] = was["tz"]
		}
		return
	}
	next := maps.Clone(was)
	maps.Copy(next, s)
	members["schedule"] = next
}

// fires returns the next fires of the changed job.
func (c *cronEdit) fires(ctx context.Context, conn gatewayConn, id string, members map[string]any) ([]string, error) {
	params := map[string]any{"id": id, "count": editPreview}
	for _, name := range cron.PlanningMembers() {
		if value, given := members[name]; given {
			params[name] = value
		}
	}
	var preview struct {
		Fires []struct {
			ISO   string `json:"iso"`
			Local string `json:"local"`
		} `json:"fires"`
		Affected []struct {
			Text string `json:"text"`
		} `json:"affected"`
		Warnings []string `json:"warnings"`
		Timezone string   `json:"timezone"`
	}
	if err := conn.Call(ctx, "cron.preview", params, &preview); err != nil {
		return nil, err
	}
	lines := []string{"next fires (" + oneLine(preview.Timezone) + "):"}
	if len(preview.Fires) == 0 {
		return []string{"it does not fire any more"}, nil
	}
	for _, f := range preview.Fires {
		lines = append(lines, "  "+oneLine(f.Local))
	}
	for _, change := range preview.Affected {
		lines = append(lines, "clock change: "+oneLine(change.Text))
	}
	for _, w := range preview.Warnings {
		lines = append(lines, "warning: "+oneLine(w))
	}
	return lines, nil
}
