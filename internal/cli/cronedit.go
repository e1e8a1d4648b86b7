package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"laneway/internal/cron"
	"laneway/internal/wire"
)

type cronEdit struct {
	jobArg
	jobFlags

	Patch string `arg:"" optional:"" help:"Members to change, as JSON; for programs."`
	Yes   bool   `help:"Don't ask before saving."`
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
		return c.onJob(ctx, env, "cron.update", func(j wire.Job) string { return strings.TrimSuffix("changed, "+nextOf(j)+"\n"+warningsOf(j), "\n") }, map[string]any{"patch": members})
	}
	conn := c.gateway(env)
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
	if err := json.Unmarshal([]byte(c.Patch), &members); err != nil || members == nil {
		return nil, usageError("the patch is not a JSON object" + placeOf(c.Patch, err) + `; write it like '{"name":"digest","enabled":false}'`)
	}
	return members, nil
}

// placeOf says where JSON cannot be read.
func placeOf(text string, err error) string {
	var broken *json.SyntaxError
	if !errors.As(err, &broken) {
		return ""
	}
	at := min(int(broken.Offset), len(text))
	if broken.Offset > 0 && strings.HasSuffix(broken.Error(), "unexpected end of JSON input") {
		return ": it ends too early"
	}
	return fmt.Sprintf(": it cannot be read at character %d, after %s", utf8.RuneCountInString(text[:at]), strconv.Quote(text[:max(at-1, 0)]))
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
		return env.print("%s is as you want it already\n", oneLine(c.Job))
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
		if err := env.confirm("Save "+c.Job+"?", "nothing was changed"); err != nil {
			return err
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
	var saved wire.Job
	if err := json.Unmarshal(raw, &saved); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	saved.Warnings = slices.DeleteFunc(saved.Warnings, func(w string) bool { return slices.Contains(fires, "warning: "+oneLine(w)) })
	return env.print("%s changed\n%s", oneLine(c.Job), warningsOf(saved))
}

// fillSchedule completes a schedule with only a zone from the job's own, and adds the zone to one
// of the same kind.
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

// differences returns a line for each member that changes, with the names of the flags and the
// formats of laneway cron list.
func differences(old, members map[string]any) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lines = append(lines, changesOf(name, old[name], members[name])...)
	}
	return lines
}

// changesOf returns the lines of the member at a path; nil when nothing changes. after is a patch:
// members of an object that it does not name are kept.
func changesOf(path string, before, after any) []string {
	was, _ := before.(map[string]any) // nil for all that is no object
	given, isObject := after.(map[string]any)
	switch {
	case isObject && asJSON(onlyNamed(was, given)) == asJSON(given), asJSON(before) == asJSON(after):
		return nil
	case path == "schedule":
		return []string{changed("schedule", shownAs(scheduleOf, path, was), shownAs(scheduleOf, path, given), was, given)}
	case path == "delivery":
		next := onlyNamed(was, was)
		maps.Copy(next, given)
		return []string{changed("answers to", shownAs(deliveryOf, path, was), shownAs(deliveryOf, path, next), was, next)}
	case isObject:
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(given)) {
			lines = append(lines, changesOf(path+"."+name, was[name], given[name])...)
		}
		return lines
	}
	w, known := flagOf(path)
	if !known {
		return []string{changed(path, "", "", before, after)}
	}
	return []string{changed(strings.TrimPrefix(w.flag, "--"), w.shown(before), w.shown(after), before, after)}
}

// changed returns one line. Two values that look the same or have no display form are shown as
// JSON.
func changed(name, was, is string, before, after any) string {
	if was, is = oneLine(was), oneLine(is); was == is {
		was, is = oneLine(asJSON(before)), oneLine(asJSON(after))
	}
	return fmt.Sprintf("%s: %s → %s", name, was, is)
}

// shownAs formats a member of a job for people; "" when it cannot be parsed.
func shownAs(show func(wire.Job) string, member string, value map[string]any) string {
	var j wire.Job
	if value == nil || json.Unmarshal([]byte(asJSON(map[string]any{member: value})), &j) != nil {
		return ""
	}
	return show(j)
}

func deliveryOf(j wire.Job) string { return targetOf(j.Delivery) }

// shown formats a value as the argument of the flag; - for nil.
func (w flagWord) shown(value any) string {
	if value == nil {
		return "-"
	}
	if text, ok := value.(string); ok {
		return text
	}
	if w.unit > 0 {
		return w.duration(asJSON(value))
	}
	text := asJSON(value)
	if ms, err := strconv.ParseInt(text, 10, 64); w.instant && err == nil {
		return localTime(ms, "UTC")
	}
	return text
}

// onlyNamed returns the members of an object that another one has, too.
func onlyNamed(whole, given map[string]any) map[string]any {
	out := map[string]any{}
	for name := range given {
		if value, has := whole[name]; has {
			out[name] = value
		}
	}
	return out
}

// asJSON formats a value on one line; null for nil.
func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(text)
}
