package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/command"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

const whenHelp = "Plain words (in 20m, tomorrow 15:00, monday 8:30, 2027-03-02 15:00) are local time of the gateway; a time with an offset (2027-03-02T15:00:00+01:00) is exact."

func (t *Table) remind() Tool {
	return Tool{
		Name: "remind", Scope: chat.ScopeWrite, Idempotent: true, Askable: true, Acts: always,
		Description: "Sends the person a text once, later, in this chat. The result has the exact local time that was understood; repeat it to the person.",
		Schema: `{"type":"object","additionalProperties":false,"required":["when","text"],"properties":{
			"when":{"type":"string","description":"` + whenHelp + `"},
			"text":{"type":"string","description":"What the person is reminded of."}}}`,
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[struct {
				When string `json:"when"`
				Text string `json:"text"`
			}](args)
			if err != nil {
				return "", err
			}
			call := turn.call("remind", key, string(args))
			spec, zone, err := t.when(ctx, call, a.When)
			if err != nil {
				return "", err
			}
			if spec.Kind != schedule.KindAt {
				return "", chat.Errorf(chat.CodeInvalid, "a reminder is for one moment; use the tool cron for what repeats")
			}
			put, err := t.addJob(ctx, call, spec, a.Text, true)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("Reminder %s is set %s (%s).", put.Job.ID, command.ScheduleWords(put.Job.Schedule, zone), zone), nil
		},
	}
}

// when reads a time and the zone in which it is meant.
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

func (t *Table) addJob(ctx context.Context, c command.Call, spec schedule.Spec, text string, reminder bool) (cron.Put, error) {
	if err := chat.CheckText("text", text, chat.MaxText); err != nil {
		return cron.Put{}, err
	}
	return t.deps.Jobs.AddJob(ctx, c, command.NewJob{Schedule: spec, Text: text, Reminder: reminder})
}

// cronArgs are the arguments of the tool cron.
type cronArgs struct {
	Action string `json:"action"`
	ID     string `json:"id"`
	When   string `json:"when"`
	Text   string `json:"text"`
}

func (t *Table) cron() Tool {
	return Tool{
		Name: "cron", Scope: chat.ScopeWrite, Idempotent: true, Askable: true, Acts: unless("list", "runs", "preview"),
		Description: "Lists, makes and changes the jobs of the person: texts that an agent gets by the clock, and whose answers go to this chat.",
		Schema: `{"type":"object","additionalProperties":false,"required":["action"],"properties":{
			"action":{"type":"string","enum":["list","add","update","pause","resume","remove","run","preview","runs"]},
			"id":{"type":"string","description":"Of the job, for all actions but list, add and preview."},
			"when":{"type":"string","description":"For add, update and preview. ` + whenHelp + ` every 30m, every weekday 9:00 and cron expressions repeat."},
			"text":{"type":"string","description":"For add and update: what the agent is asked at each time."}}}`,
		Run: func(ctx context.Context, turn Turn, key string, args []byte) (string, error) {
			a, err := read[cronArgs](args)
			if err != nil {
				return "", err
			}
			return t.runCron(ctx, turn, turn.call("cron", key, string(args)), a)
		},
	}
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
	switch {
	case !known:
		return "", chat.Errorf(chat.CodeInvalid, "there is no action %q; use list, add, update, pause, resume, remove, run, preview or runs", chat.Cut(chat.Printable(a.Action), 32))
	case a.ID == "":
		return "", chat.Errorf(chat.CodeInvalid, "the action %s needs the id of a job", a.Action)
	}
	return action()
}

// isNoJob reports whether there is no such job of the person.
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
		fmt.Fprintf(&out, "%s: %s, %s, %s\n", j.ID, chat.Printable(j.Name), command.ScheduleWords(j.Schedule, zone), state)
	}
	return out.String(), nil
}

func (t *Table) planJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	spec, zone, err := t.when(ctx, c, a.When)
	if err != nil {
		return "", err
	}
	put, err := t.addJob(ctx, c, spec, a.Text, false)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Job %s is planned %s (%s), next %s.", put.Job.ID, command.ScheduleWords(put.Job.Schedule, zone), zone, shown(put.Job.State.NextRunAt)), nil
}

func (t *Table) previewJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	spec, zone, err := t.when(ctx, c, a.When)
	if err != nil {
		return "", err
	}
	return "That is " + command.ScheduleWords(spec, zone) + " (" + zone + ").", nil
}

// updateJob changes when a job fires, what it asks, or both.
func (t *Table) updateJob(ctx context.Context, turn Turn, c command.Call, a cronArgs) (string, error) {
	patch := cron.Members{}
	if a.When != "" {
		spec, _, err := t.when(ctx, c, a.When)
		if err != nil {
			return "", err
		}
		if patch["schedule"], err = json.Marshal(command.WireSchedule(spec)); err != nil {
			return "", fmt.Errorf("encoding a schedule: %w", err)
		}
	}
	if a.Text != "" {
		var err error
		if patch["payload"], err = json.Marshal(map[string]any{"kind": cron.PayloadAgentTurn, "message": a.Text}); err != nil {
			return "", fmt.Errorf("encoding a text: %w", err)
		}
	}
	if len(patch) == 0 {
		return "", chat.Errorf(chat.CodeInvalid, "the action update needs when, text or both")
	}
	job, err := t.deps.Editor.CronUpdate(ctx, a.ID, patch, "", turn.caller())
	return "The job is changed, next " + shown(job.State.NextRunAt) + ".", err
}

func (t *Table) resumeJob(ctx context.Context, c command.Call, a cronArgs) (string, error) {
	job, err := t.deps.Jobs.ResumeJob(ctx, c, a.ID)
	return "The job goes on, next " + shown(job.State.NextRunAt) + ".", err
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
	page, err := t.deps.Editor.CronRuns(ctx, cron.RunFilter{JobID: a.ID, Limit: runsShown, IncludeActive: true}, turn.caller())
	if err != nil || len(page.Runs) == 0 {
		return "There are no runs.", err
	}
	var out strings.Builder
	for _, r := range slices.Backward(page.Runs) {
		fmt.Fprintf(&out, "%s: %s\n", shown(r.ScheduledFor), r.State)
	}
	return out.String(), nil
}
