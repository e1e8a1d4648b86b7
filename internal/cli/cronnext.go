package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

type cronNext struct {
	scheduleFlags

	Count int  `help:"How many, 1 to 100." short:"n" default:"5"`
	JSON  bool `help:"Print JSON."`
}

// Help is the example of the command.
func (*cronNext) Help() string {
	return "Example:\n\n    laneway cron next --cron \"0 9 * * 1-5\" --tz Europe/Berlin -n 10"
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
	if err := c.bounds(values); err != nil {
		return err
	}
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
	if err := table(env.stdout, rows); err != nil {
		return err
	}
	for _, change := range p.Affected {
		if _, err := fmt.Fprintln(env.stdout, "clock change: "+change.Text); err != nil {
			return err
		}
	}
	return nil
}
