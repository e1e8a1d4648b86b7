package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/agent"
	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

const whenHelp = "Plain words (in 20m, tomorrow 15:00, monday 8:30, 2027-03-02 15:00) are in the person's time zone: the one chosen with /timezone, else that of the gateway; results name it. A time with an offset (2027-03-02T15:00:00+01:00) is exact."

// ReadTimes reports whether one of the tools reads times in the person's zone.
func ReadTimes(tools []agent.ToolSpec) bool {
	return slices.ContainsFunc(tools, func(s agent.ToolSpec) bool { return s.Name == "remind" || s.Name == "cron" })
}

// Clock returns the current local time of a person, with the zone in which the tools read plain
// times.
func (t *Table) Clock(ctx context.Context, person string) (string, error) {
	now, zone, err := t.deps.Jobs.Clock(ctx, command.Call{Principal: person})
	if err != nil {
		return "", err
	}
	return schedule.Shown(now.Truncate(time.Minute), zone) + " (" + zone + ")", nil
}

// Zone returns the time zone of a person.
func (t *Table) Zone(ctx context.Context, person string) (*time.Location, error) {
	_, name, err := t.deps.Jobs.Clock(ctx, command.Call{Principal: person})
	if err != nil {
		return nil, err
	}
	return schedule.LoadZone(name)
}

func (t *Table) remind() Tool {
	return Tool{
		Name: "remind", Scope: chat.ScopeWrite, Idempotent: true, Additive: true, Askable: true, Acts: always,
		Check: func(ctx context.Context, turn Turn, key string, args []byte) error {
			_, err := t.reminder(ctx, turn, key, args)
			return err
		},
		Description: "Sends the person a message once, later, in this chat. The result has the exact local time that was understood; repeat it to the person.",
		Schema: `{"type":"object","additionalProperties":false,"required":["when","text"],"properties":{
			"when":{"type":"string","description":"` + whenHelp + `"},
			"text":{"type":"string","description":"What the person is reminded of."}}}`,
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			p, err := t.reminder(ctx, turn, key, args)
			if err != nil {
				return "", err
			}
			put, err := t.deps.Jobs.AddJob(ctx, p.call, p.job)
			if err != nil {
				return "", err
			}
			return command.Surprised(fmt.Sprintf("Reminder %s is set %s (%s).", put.Job.ID, put.Job.Schedule.Words(p.zone), p.zone), put.Job), nil
		},
	}
}

// plan is a job to be made, with the zone of its time.
type plan struct {
	call command.Call
	job  command.NewJob
	zone string
}

// reminder reads the arguments of remind.
func (t *Table) reminder(ctx context.Context, turn Turn, key string, args []byte) (plan, error) {
	a, err := read[struct {
		When string `json:"when"`
		Text string `json:"text"`
	}](args)
	if err != nil {
		return plan{}, err
	}
	p, err := t.plan(ctx, turn.call("remind", key, string(args)), a.When, a.Text)
	if err == nil && p.job.Schedule.Kind != schedule.KindAt {
		err = chat.Errorf(chat.CodeInvalid, "a reminder is for one moment; use the tool cron for what repeats")
	}
	p.job.Reminder = true
	return p, err
}

// plan reads when a job fires and its text.
func (t *Table) plan(ctx context.Context, c command.Call, when, text string) (plan, error) {
	spec, zone, err := t.when(ctx, c, when)
	if err == nil {
		err = chat.CheckText("text", text, chat.MaxText)
	}
	return plan{call: c, job: command.NewJob{Schedule: spec, Text: text}, zone: zone}, err
}

// when reads a time and its zone.
func (t *Table) when(ctx context.Context, c command.Call, when string) (spec schedule.Spec, zone string, err error) {
	now, zone, err := t.deps.Jobs.Clock(ctx, c)
	if err != nil {
		return spec, zone, err
	}
	when = strings.TrimSpace(when)
	if at, err := time.Parse(time.RFC3339, when); err == nil {
		return schedule.Spec{Kind: schedule.KindAt, At: at}, zone, nil
	}
	spec, rest, err := schedule.ParseWhen(when, now, zone)
	if err == nil && rest != "" {
		err = chat.Errorf(chat.CodeInvalid, "when: %q is not understood", chat.Cut(chat.Printable(rest), 64))
	}
	if err != nil && !errors.As(err, new(*chat.Error)) {
		err = chat.Errorf(chat.CodeInvalid, "%s", err)
	}
	return spec, zone, err
}

// cronArgs are the arguments of the tool cron.
type cronArgs struct {
	Action string `json:"action"`
	ID     string `json:"id"`
	When   string `json:"when"`
	Text   string `json:"text"`

	Everywhere bool `json:"everywhere"`
}

func (t *Table) cron() Tool {
	return Tool{
		Name: "cron", Scope: chat.ScopeWrite, Idempotent: true, Askable: true, Acts: unless("list", "runs", "preview"),
		Description: "Lists, makes and changes the jobs of the person: messages that are sent to an agent at planned times, and whose answers are sent to this chat.",
		Schema: `{"type":"object","additionalProperties":false,"required":["action"],"properties":{
			"action":{"type":"string","enum":["list","add","update","pause","resume","remove","run","preview","runs"]},
			"id":{"type":"string","description":"Of the job, for all actions but list, add and preview."},
			"when":{"type":"string","description":"For add, update and preview. ` + whenHelp + ` every 30m, every weekday 9:00 and cron expressions repeat."},
			"text":{"type":"string","description":"For add and update: what the agent is asked at each time."}}}`,
		Check: t.checkCron,
		Beyond: func(_ Turn, args []byte) bool {
			a, err := read[cronArgs](args)
			return err == nil && a.Everywhere && (a.Action == "list" || a.Action == "runs")
		},
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[cronArgs](args)
			if err != nil {
				return "", err
			}
			return t.runCron(ctx, turn, turn.call("cron", key, string(args)), a)
		},
	}
}

// checkCron refuses a call that acts and would fail.
func (t *Table) checkCron(ctx context.Context, turn Turn, key string, args []byte) error {
	a, err := read[cronArgs](args)
	if err != nil {
		return err
	}
	c := turn.call("cron", key, string(args))
	switch a.Action {
	case "add":
		_, err = t.plan(ctx, c, a.When, a.Text)
		return err
	case "update":
		_, err = t.patchOf(ctx, c, a)
	case "list":
		return nil
	case "pause", "resume", "remove", "run", "runs":
	default:
		return noAction(a.Action)
	}
	if err == nil {
		err = needsID(a)
	}
	if err == nil {
		_, err = t.deps.Editor.Job(ctx, a.ID, turn.caller())
	}
	return err
}

func noAction(name string) error {
	return chat.Errorf(chat.CodeInvalid, "there is no action %q; use list, add, update, pause, resume, remove, run, preview or runs", chat.Cut(chat.Printable(name), 32))
}

func needsID(a cronArgs) error {
	if a.ID == "" {
		return chat.Errorf(chat.CodeInvalid, "the action %s needs the id of a job", a.Action)
	}
	return nil
}

func (t *Table) runCron(ctx context.Context, turn Turn, c command.Call, a cronArgs) (string, error) {
	switch a.Action {
	case "list":
		return t.listJobs(ctx, c)
	case "add":
		return t.planJob(ctx, c, a)
	case "preview":
		return t.previewJob(ctx, c, a)
	}
	actions := map[string]func() (string, error){
		"update": func() (string, error) { return t.updateJob(ctx, turn, c, a) },
		"pause":  func() (string, error) { return "The job is paused.", t.deps.Jobs.PauseJob(ctx, c, a.ID, "") },
		"remove": func() (string, error) {
			err := t.deps.Jobs.RemoveJob(ctx, c, a.ID)
			if isNoJob(err) { // a repeated call finds that the first one has removed it
				return "There is no such job any more.", nil
			}
			return "The job is removed.", err
		},
		"resume": func() (string, error) { return t.resumeJob(ctx, c, a) },
		"run":    func() (string, error) { return t.runJob(ctx, c, a) },
		"runs":   func() (string, error) { return t.listRuns(ctx, turn, a) },
	}
	action, known := actions[a.Action]
	if !known {
		return "", noAction(a.Action)
	}
	if err := needsID(a); err != nil {
		return "", err
	}
	return action()
}

// isNoJob reports whether the person has no such job.
func isNoJob(err error) bool {
	known, ok := errors.AsType[*chat.Error](err)
	return errors.Is(err, chat.ErrNotFound) || (ok && known.Details["code"] == "CRON_JOB_NOT_FOUND")
}

func (t *Table) listJobs(ctx context.Context, c command.Call) (string, error) {
	jobs, err := t.deps.Jobs.Jobs(ctx, c)
	if err != nil || len(jobs) == 0 {
		return "There are no jobs.", err
	}
	_, zone, err := t.deps.Jobs.Clock(ctx, c)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, j := range jobs {
		state := "next " + shown(j.State.NextRunAt)
		if j.Pause != nil {
			state = "paused"
		}
		fmt.Fprintf(&out, "%s: %s, %s, %s\n", j.ID, chat.Printable(j.Name), j.Schedule.Words(zone), state)
	}
	return out.String(), nil
}

func (t *Table) planJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	p, err := t.plan(ctx, c, a.When, a.Text)
	if err != nil {
		return "", err
	}
	put, err := t.deps.Jobs.AddJob(ctx, p.call, p.job)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("Job %s is planned %s (%s), next %s.", put.Job.ID, put.Job.Schedule.Words(p.zone), p.zone, shown(put.Job.State.NextRunAt))
	return command.Surprised(text, put.Job), nil
}

func (t *Table) previewJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	spec, zone, err := t.when(ctx, c, a.When)
	if err != nil {
		return "", err
	}
	now, _, err := t.deps.Jobs.Clock(ctx, c)
	return command.Surprised("That is "+spec.Words(zone)+" ("+zone+").", cron.Job{Schedule: spec, UpdatedAt: now}), err
}

// updateJob changes when a job fires, its prompt, or both.
func (t *Table) updateJob(ctx context.Context, turn Turn, c command.Call, a cronArgs) (string, error) {
	patch, err := t.patchOf(ctx, c, a)
	if err != nil {
		return "", err
	}
	job, err := t.deps.Editor.Update(ctx, a.ID, patch, "", turn.caller())
	return command.Surprised("The job is changed, next "+shown(job.State.NextRunAt)+".", job), err
}

// patchOf returns the change that the action update requests.
func (t *Table) patchOf(ctx context.Context, c command.Call, a cronArgs) (cron.Members, error) {
	patch := cron.Members{}
	if a.When != "" {
		spec, _, err := t.when(ctx, c, a.When)
		if err != nil {
			return nil, err
		}
		if patch["schedule"], err = json.Marshal(command.WireSchedule(spec)); err != nil {
			return nil, fmt.Errorf("encoding a schedule: %w", err)
		}
	}
	if a.Text != "" {
		var err error
		if patch["payload"], err = json.Marshal(map[string]any{"kind": cron.PayloadAgentTurn, "message": a.Text}); err != nil {
			return nil, fmt.Errorf("encoding the text: %w", err)
		}
	}
	if len(patch) == 0 {
		return nil, chat.Errorf(chat.CodeInvalid, "the action update needs when, text or both")
	}
	return patch, nil
}

func (t *Table) resumeJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	job, err := t.deps.Jobs.ResumeJob(ctx, c, a.ID)
	return "The job continues, next " + shown(job.State.NextRunAt) + ".", err
}

func (t *Table) runJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	reason, err := t.deps.Jobs.RunJob(ctx, c, a.ID)
	if reason != "" {
		return "The job does not run now: " + reason + ".", err
	}
	return "The job runs now.", err
}

const runsShown = 10

func (t *Table) listRuns(ctx context.Context, turn Turn, a cronArgs) (string, error) {
	if turn.Audience.Shared() {
		switch job, err := t.deps.Editor.Job(ctx, a.ID, turn.caller()); {
		case err != nil:
			return "", err
		case !job.In(turn.Audience.Conversation):
			return "", turn.notHere("that job")
		}
	}
	page, err := t.deps.Editor.Ledger(ctx, cron.RunFilter{JobID: a.ID, Limit: runsShown, IncludeActive: true}, turn.caller())
	if err != nil || len(page.Runs) == 0 {
		return "There are no runs.", err
	}
	var out strings.Builder
	for _, r := range slices.Backward(page.Runs) {
		fmt.Fprintf(&out, "%s: %s\n", shown(r.ScheduledFor), r.State)
	}
	return out.String(), nil
}
