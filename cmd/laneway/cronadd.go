package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"laneway/internal/cron/schedule"
	"laneway/internal/wire"
)

// scheduleFlags set when a job fires; exactly one of the first three.
type scheduleFlags struct {
	At         string        `help:"Once: a moment such as 2027-03-02T08:00, 'in 20m', 15:00 or 'tomorrow 9:00' (in --tz, else UTC)." placeholder:"TIME" xor:"when"`
	Every      time.Duration `help:"Again and again, at a fixed distance." placeholder:"DURATION" xor:"when"`
	Cron       string        `help:"A cron expression of five or six fields." placeholder:"EXPR" xor:"when"`
	TZ         string        `help:"Time zone of the schedule; default that of the gateway." placeholder:"ZONE" name:"tz"`
	DSTGap     string        `help:"Wall times that do not exist: run_after or skip." placeholder:"RULE" name:"dst-gap" enum:",run_after,skip" default:""`
	DSTOverlap string        `help:"Wall times that come twice: first, second or both." placeholder:"RULE" name:"dst-overlap" enum:",first,second,both" default:""`
}

func (f scheduleFlags) schedule() (map[string]any, error) {
	s := map[string]any{}
	switch {
	case f.At != "":
		s["kind"], s["at"] = "at", momentOf(f.At, f.TZ, time.Now())
	case f.Every != 0:
		s["kind"], s["everyMs"] = "every", f.Every.Milliseconds()
	case f.Cron != "":
		s["kind"], s["expr"] = "cron", f.Cron
	default:
		return nil, usageError("say when: --at, --every or --cron")
	}
	if f.TZ != "" {
		s["tz"] = f.TZ
	}
	return s, nil
}

// momentOf turns words such as "in 20m", "15:00" and "tomorrow 9:00" into a moment. What is no such words is left for the gateway to judge.
func momentOf(text, zone string, now time.Time) string {
	if zone == "" {
		zone = "UTC"
	}
	spec, rest, err := schedule.ParseWhen(text, now, zone)
	if err != nil || rest != "" || spec.Kind != schedule.KindAt {
		return text
	}
	return spec.At.UTC().Format(time.RFC3339Nano)
}

func (f scheduleFlags) dst() map[string]any {
	d := map[string]any{}
	if f.DSTGap != "" {
		d["gap"] = f.DSTGap
	}
	if f.DSTOverlap != "" {
		d["overlap"] = f.DSTOverlap
	}
	return d
}

type cronAdd struct {
	clientFlags
	scheduleFlags

	Name    string        `help:"Name of the job." required:"" placeholder:"NAME"`
	Message string        `help:"What the agent is told." required:"" placeholder:"TEXT"`
	Agent   string        `help:"The agent; default the gateway's." placeholder:"ID"`
	Session string        `help:"isolated, main or session:KEY." default:"isolated" placeholder:"TARGET"`
	Deliver string        `help:"Where the answer goes: CHANNEL:CHAT[:THREAD], or last." placeholder:"TARGET" xor:"deliver"`
	Webhook string        `help:"URL that is told when a run has ended." placeholder:"URL" xor:"deliver"`
	Overlap string        `help:"What a fire does while a run is active: skip, concurrent, buffer_one or cancel_previous." placeholder:"POLICY"`
	Missed  string        `help:"What becomes of fires that were missed: skip, fire_once or fire_all." placeholder:"POLICY"`
	Jitter  time.Duration `help:"Spread the fires over this time." placeholder:"DURATION"`
	Timeout time.Duration `help:"Limit of an attempt; default 10m." placeholder:"DURATION"`
	Retries *int          `help:"Further attempts after a failure; default 3." placeholder:"N"`
	Key     string        `help:"Key under which the same job is found again." placeholder:"KEY"`
	JSON    bool          `help:"Print JSON."`
}

// Help is the example of the command.
func (*cronAdd) Help() string {
	return "Example:\n\n    laneway cron add --name digest --cron \"0 9 * * 1-5\" --tz Europe/Berlin --message \"Write the daily digest\""
}

// Run makes the job.
func (c *cronAdd) Run(ctx context.Context, env *environment) error {
	params, err := c.params()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.call(ctx, env, "cron.add", params, &raw); err != nil {
		return inFlags(err)
	}
	if c.JSON {
		return printJSON(env.stdout, raw)
	}
	var reply struct {
		wire.Job // of an answer without a key of the client

		Declared *wire.Job `json:"job"`
	}
	if err := json.Unmarshal(raw, &reply); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	job := reply.Job
	if reply.Declared != nil {
		job = *reply.Declared
	}
	next := "it does not fire"
	if job.NextRunAtMs > 0 {
		next = "next " + time.UnixMilli(job.NextRunAtMs).UTC().Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(env.stdout, "%s %s, %s\n", cell(job.ID, 36), cell(job.Name, 60), next)
	return err
}

func (c *cronAdd) params() (map[string]any, error) {
	s, err := c.schedule()
	if err != nil {
		return nil, err
	}
	p := map[string]any{
		"name": c.Name, "schedule": s, "sessionTarget": c.Session, "extended": true,
		"payload": map[string]any{"kind": "agentTurn", "message": c.Message},
	}
	for name, value := range map[string]string{"agentId": c.Agent, "overlap": c.Overlap, "key": c.Key} {
		if value != "" {
			p[name] = value
		}
	}
	if d := c.dst(); len(d) > 0 {
		p["dst"] = d
	}
	if c.Missed != "" {
		p["missed"] = map[string]any{"policy": c.Missed}
	}
	if c.Jitter > 0 {
		p["jitterMs"] = c.Jitter.Milliseconds()
	}
	if c.Timeout > 0 {
		p["timeoutSeconds"] = int64(c.Timeout / time.Second)
	}
	if c.Retries != nil {
		p["retry"] = map[string]any{"maxRetries": *c.Retries}
	}
	if d := c.delivery(); d != nil {
		p["delivery"] = d
	}
	return p, nil
}

func (c *cronAdd) delivery() map[string]any {
	if c.Webhook != "" {
		return map[string]any{"mode": "webhook", "to": c.Webhook}
	}
	if c.Deliver == "" {
		return nil
	}
	d := map[string]any{"mode": "announce"}
	channel, rest, _ := strings.Cut(c.Deliver, ":")
	to, thread, _ := strings.Cut(rest, ":")
	for name, value := range map[string]string{"channel": channel, "to": to, "threadId": thread} {
		if value != "" {
			d[name] = value
		}
	}
	return d
}
