package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"laneway/internal/chat"
	"laneway/internal/cron"
	"laneway/internal/cron/schedule"
)

// JobActions is what the commands do to jobs. Every method sees and changes the person's own jobs only, and in a group only those that
// answer there: other people must not read the private jobs of a person.
type JobActions interface {
	// Clock is the store's time, which decides what is due, and the zone of times that name none: the person's own, else the gateway's.
	Clock(ctx context.Context, c Call) (now time.Time, zone string, err error)
	// AddJob makes a job that answers where the command was given, or changes the one whose key n has. The same job again is one job.
	AddJob(ctx context.Context, c Call, n NewJob) (cron.Put, error)
	// Jobs lists jobs in the order in which they were made.
	Jobs(ctx context.Context, c Call) ([]cron.Job, error)
	RemoveJob(ctx context.Context, c Call, id string) error
	PauseJob(ctx context.Context, c Call, id, note string) error
	ResumeJob(ctx context.Context, c Call, id string) (cron.Job, error)
	// RunJob starts a run now; reason is why there was none.
	RunJob(ctx context.Context, c Call, id string) (reason string, err error)
	// ExplainJob explains a slot of a job; when is a moment in words.
	ExplainJob(ctx context.Context, c Call, id, when string) (cron.Explanation, error)
}

// NewJob is what a person asked for.
type NewJob struct {
	Schedule schedule.Spec
	Text     string
	// Reminder: the text is sent as it is. Otherwise the agent gets it as a message and its answer is sent.
	Reminder bool
	// Key is that of the job to change; "" = a new one.
	Key string
}

func jobCommands() []Command {
	return []Command{
		{
			Name: "remind", Args: "WHEN TEXT", Common: true, Category: "jobs", Method: "cron.add",
			Description: "Send you a text later: in 20m, 15:00, tomorrow 9:00, every 30m.", Run: textOnly(runRemind),
		},
		{
			Name: "cron", Args: "[add WHEN TEXT | list | show N | why N WHEN | pause N | resume N | run N | rm N]", Category: "jobs", Method: "cron.list",
			Verbs: map[string]string{
				"add": "cron.add", "replace": "cron.add", "new": "cron.add", "show": "cron.get", "why": "cron.explain", "pause": "cron.pause", "resume": "cron.resume", "run": "cron.run", "rm": "cron.remove", "remove": "cron.remove",
			},
			Description: "Let the agent do something by the clock, and look after such jobs.", Run: runCron,
		},
		{
			Name: "jobs", Common: true, Category: "jobs", Method: "cron.list",
			Description: "List your reminders and jobs.", Run: runJobs,
		},
	}
}

const (
	remindUsage = "write /remind WHEN TEXT, such as /remind in 20m tea is ready"
	cronUsage   = `write /cron add WHEN TEXT, such as /cron add "0 9 * * 1-5" morning briefing`
	// maxJobName cuts the text of a job down to a name.
	maxJobName = 80
)

func runRemind(ctx context.Context, a Actions, c Call) (string, error) {
	n, zone, err := readJob(ctx, a, c, c.Args, remindUsage)
	if err != nil {
		return "", err
	}
	n.Reminder = true
	return addJob(ctx, a, c, n, zone)
}

func runCron(ctx context.Context, a Actions, c Call) (Answer, error) {
	verb, rest, _ := cutWord(c.Args)
	switch strings.ToLower(verb) {
	case "", "list":
		return runJobs(ctx, a, c)
	case "add", "replace", "new":
		text, err := addCron(ctx, a, c, strings.ToLower(verb), rest)
		return Answer{Text: text}, err
	case "why":
		return whyJob(ctx, a, c, rest)
	case "show", "pause", "resume", "run", "rm", "remove":
		return onJob(ctx, a, c, strings.ToLower(verb), rest)
	default:
		return Answer{}, chat.Errorf(chat.CodeInvalid, "I do not know /cron %s; use add, replace, new, list, show, why, pause, resume, run or rm", chat.Cut(verb, 20))
	}
}

// readJob reads what is behind /remind or /cron add: a time and a text.
func readJob(ctx context.Context, a Actions, c Call, text, usage string) (n NewJob, zone string, err error) {
	if text == "" {
		return n, "", chat.Errorf(chat.CodeInvalid, "%s", usage)
	}
	now, zone, err := a.Clock(ctx, c)
	if err != nil {
		return n, "", err
	}
	if n.Schedule, n.Text, err = schedule.ParseWhen(text, now, zone); err != nil {
		return n, "", inChatWords(chat.Errorf(chat.CodeInvalid, "%s", err))
	}
	if n.Text == "" {
		return n, "", chat.Errorf(chat.CodeInvalid, "the text is missing behind the time; %s", usage)
	}
	return n, zone, nil
}

func addJob(ctx context.Context, a Actions, c Call, n NewJob, zone string) (string, error) {
	put, err := a.AddJob(ctx, c, n)
	if err != nil {
		return "", inChatWords(err)
	}
	return added(put, n.Text, zone, n.Reminder), nil
}

// addCron is /cron add, replace and new. The first line of the text is the name of a job, and a name identifies it: add does not make a second one that fires beside
// the first, replace changes the first, new makes the second.
func addCron(ctx context.Context, a Actions, c Call, verb, text string) (string, error) {
	n, zone, err := readJob(ctx, a, c, text, cronUsage)
	if err != nil {
		return "", err
	}
	if verb == "new" {
		return addJob(ctx, a, c, n, zone)
	}
	jobs, err := a.Jobs(ctx, c)
	if err != nil {
		return "", err
	}
	name, place := JobName(n.Text), -1
	for i, j := range jobs {
		switch {
		case !strings.EqualFold(j.Name, name) || over(j):
		case j.Schedule.Signature() == n.Schedule.Signature() && j.Payload.Text == n.Text: // the same request again
			n.Key = j.Key
			return addJob(ctx, a, c, n, zone)
		case place >= 0 && verb == "replace":
			return "", chat.Errorf(chat.CodeInvalid, "several jobs are named %s; remove one of them with /cron rm and its number first", name)
		default:
			place = i
		}
	}
	switch {
	case verb == "replace" && place < 0:
		return "", chat.Errorf(chat.CodeInvalid, "there is no job named %s to replace; /cron add makes one", name)
	case verb == "replace":
		n.Key = jobs[place].Key
	case place >= 0 && c.Again: // a job of a moment from now is another one by now
		return "", errInterrupted()
	case place >= 0:
		return "", chat.Errorf(chat.CodeInvalid, "there is a job of this name already: %s. Write /cron replace WHEN TEXT to change it, or /cron new WHEN TEXT for a second one",
			strings.TrimSuffix(jobLine(place, jobs[place], zone), "."))
	}
	return addJob(ctx, a, c, n, zone)
}

// over reports whether a job will do nothing any more unless a person wakes it.
func over(j cron.Job) bool {
	return j.Pause == nil && !j.AutoDisabled && (!j.Enabled || j.State.NextRunAt.IsZero())
}

// inChatWords takes the names that the wire has for members out of a refusal.
func inChatWords(err error) error {
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return err
	}
	text := strings.ReplaceAll(e.Message, "a schedule of kind every with everyMs", "every 30m")
	if field, sentence, found := strings.Cut(text, ": "); found {
		switch strings.TrimSuffix(field, " is in the past") {
		case "when", "schedule.at", "schedule.every", "schedule.everyMs", "schedule.expr":
			text = sentence
		}
	}
	return chat.Errorf(e.Code, "%s", text)
}

func added(put cron.Put, text, zone string, reminder bool) string {
	next, words := nextOf(put.Job, zone), ScheduleWords(put.Job.Schedule, zone)
	switch {
	case !put.Created && !put.Updated:
		return "That is planned already: " + next + "."
	case reminder && put.Job.Schedule.Kind == schedule.KindAt:
		return "I will remind you " + words + ": " + text
	case reminder:
		return "I will remind you " + words + ", " + next + ": " + text
	default:
		return "Planned: " + put.Job.Name + " (" + words + "), " + next + "."
	}
}

// JobName makes a name of a text: its first line, printable, of a bounded length.
func JobName(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(strings.Map(func(r rune) rune {
		if chat.Unprintable(r) {
			return ' '
		}
		return r
	}, line))
	line = cutRunes(line, maxJobName)
	if line == "" {
		return "job"
	}
	return line
}

// WireSchedule is a schedule in the members of the wire.
func WireSchedule(s schedule.Spec) map[string]any {
	switch s.Kind {
	case schedule.KindAt:
		return map[string]any{"kind": s.Kind, "at": s.At.UTC().Format(time.RFC3339Nano)} // as a refusal then names it
	case schedule.KindEvery:
		return map[string]any{"kind": s.Kind, "everyMs": s.EveryMs, "anchorMs": s.AnchorMs}
	case schedule.KindCron:
		return map[string]any{"kind": s.Kind, "expr": s.Expr, "tz": s.TZ}
	}
	return map[string]any{"kind": s.Kind}
}

// runJobs lists the jobs and offers each of them for a closer look.
func runJobs(ctx context.Context, a Actions, c Call) (Answer, error) {
	jobs, zone, err := jobsHere(ctx, a, c)
	if err != nil || len(jobs) == 0 {
		return Answer{Text: noJobs()}, err
	}
	lines := make([]string, 0, len(jobs))
	for i, j := range jobs {
		lines = append(lines, jobLine(i, j, zone))
	}
	choice := whichJob("show", jobs, func(cron.Job) bool { return true })
	choice.Typed = "Write /cron show N, pause N, resume N, run N or rm N with the number of a job."
	return Answer{Text: strings.Join(lines, "\n"), Choice: choice}, nil
}

func jobsHere(ctx context.Context, a Actions, c Call) (jobs []cron.Job, zone string, err error) {
	if jobs, err = a.Jobs(ctx, c); err != nil {
		return nil, "", err
	}
	_, zone, err = a.Clock(ctx, c)
	return jobs, zone, err
}

func noJobs() string {
	return "There are no jobs here. " + strings.ToUpper(remindUsage[:1]) + remindUsage[1:] + ", or " + strings.TrimPrefix(cronUsage, "write ") + "."
}

// jobLine is one job in a list; i counts from 0.
func jobLine(i int, j cron.Job, zone string) string {
	when, next := ScheduleWords(j.Schedule, zone), nextOf(j, zone)+unsent(j)
	if j.Schedule.Kind == schedule.KindAt && strings.HasPrefix(next, "next ") { // once is enough
		return fmt.Sprintf("%d. %s, %s", i+1, j.Name, when)
	}
	return fmt.Sprintf("%d. %s (%s), %s", i+1, j.Name, when, next)
}

// unsent is the note that the answers of a job are not sent, "" where they are.
func unsent(j cron.Job) string {
	if p := j.State.DeliveryPause; !p.Since.IsZero() {
		return "; its answers are not sent (" + p.Reason + ")"
	}
	return ""
}

// nextOf describes when a job fires next, or why it does not.
func nextOf(j cron.Job, zone string) string {
	switch {
	case j.Invalid != "":
		return "cannot be understood any more"
	case j.Pause != nil && j.Pause.Until.IsZero():
		return "paused"
	case j.Pause != nil:
		return "paused until " + ShownTime(j.Pause.Until, zone)
	case j.AutoDisabled:
		return "switched off after failures"
	case !j.Enabled || j.State.NextRunAt.IsZero():
		return "not planned any more"
	}
	if j.Schedule.Kind == schedule.KindCron {
		zone = j.Schedule.TZ
	}
	return "next " + ShownTime(j.State.NextRunAt, zone)
}

// ScheduleWords describes a schedule in a few words, moments in the given zone.
func ScheduleWords(s schedule.Spec, zone string) string {
	switch s.Kind {
	case schedule.KindAt:
		return "at " + ShownTime(s.At, zone)
	case schedule.KindEvery:
		return "every " + DurationWords(time.Duration(s.EveryMs)*time.Millisecond)
	case schedule.KindCron:
		return s.Expr + " " + s.TZ
	}
	return string(s.Kind)
}

// DurationWords is a duration without the zeros that its String has: 2h, 1h30m, 90ms.
func DurationWords(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ShownTime is a moment as a person reads it.
func ShownTime(t time.Time, zone string) string {
	loc, err := schedule.LoadZone(zone)
	if err != nil {
		loc = time.UTC
	}
	layout := "Mon 2 Jan 2006 15:04 MST"
	if t.Second() != 0 {
		layout = "Mon 2 Jan 2006 15:04:05 MST"
	}
	return t.In(loc).Format(layout)
}
